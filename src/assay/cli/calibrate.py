"""`assay calibrate`: how far this machine's clock can be trusted."""

from __future__ import annotations

import statistics

import click
from rich.console import Console

from assay.records import SelfTest, to_json

_BINS = 21
_WIDEST_BAR = 40


@click.command()
@click.option("--device", help="cpu, cuda or cuda:N. Default: the GPU if there is one.")
@click.option(
    "--comparisons",
    type=click.IntRange(min=2),
    default=100,
    show_default=True,
    help="How often a kernel is compared with itself.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the record alone, as one JSON object.")
def calibrate(device: str | None, comparisons: int, as_json: bool) -> None:
    """Compare kernels whose relation is known, and keep what that says about this machine.

    A kernel against itself, a twin that does 3 % more, a kernel of known duration, another timer. Takes about
    a second for each comparison. Later verdicts carry the result.
    """
    # Imported here: torch takes seconds, and --help should not.
    from assay.judge import Judge

    console = Console(stderr=True)
    with Judge(device) as judge, console.status("starting") as status:
        found = judge.calibrate(comparisons, lambda text: status.update(text))
    if as_json:
        click.echo(to_json(found))
    else:
        _show(Console(), found)


def _show(console: Console, found: SelfTest) -> None:
    count = found.comparisons
    console.print(f"[bold]{found.environment.device_name}[/], {found.seconds:.0f} s")
    console.print(
        f"a kernel against itself: {found.false_calls} of {count} called different "
        f"({found.false_calls / count:.1%}); median interval ±{statistics.median(found.half_widths):.2%}"
    )
    for text in found.rejections:
        console.print(f"[red]rejected, which it should not be:[/] {text}")
    for line in histogram(found.ratios):
        console.print(line, highlight=False)
    twin = statistics.median(found.twin_ratios)
    console.print(
        f"a twin {found.twin_slowdown - 1:.0%} slower: called slower {found.twin_detected} of "
        f"{len(found.twin_ratios)} times, measured {1 / twin - 1:.2%}"
    )
    console.print(f"smallest detectable difference: {found.smallest_detectable:.2%}")
    console.print(f"a kernel of {found.spin_us:.0f} us: measured {found.spin_measured_us:.1f} us")
    if found.do_bench_ratio is not None:
        console.print(f"our time of a copy over triton.testing.do_bench's: {found.do_bench_ratio:.3f}")
    console.print(f"the same over cuda-bench's: {found.cuda_bench}")


def histogram(ratios: tuple[float, ...]) -> list[str]:
    """Ratios around 1 as bars; what lies outside is counted at the ends."""
    reach = max(max(abs(ratio - 1) for ratio in ratios), 1e-4)
    counts = [0] * _BINS
    for ratio in ratios:
        counts[min(int((ratio - 1 + reach) / (2 * reach) * _BINS), _BINS - 1)] += 1
    widest = max(counts)
    lines = []
    for k, bar in enumerate(counts):
        centre = 1 - reach + (k + 0.5) * 2 * reach / _BINS
        lines.append(f"  {centre:.4f} {'█' * round(bar / widest * _WIDEST_BAR):{_WIDEST_BAR}} {bar or ''}")
    return lines
