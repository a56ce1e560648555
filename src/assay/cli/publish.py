"""`assay publish RUN` and `assay verify FILE`: a run that anybody can judge again."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path

import click
from rich.console import Console

from assay.archive import Archive, read_bundle, write_bundle
from assay.records import UserError

SUFFIX = ".assay.zip"
SAMPLE = 10


@click.command()
@click.argument("run", type=click.Path())
@click.option("--out", type=click.Path(dir_okay=False), help=f"Default: beside the run, ending in {SUFFIX}")
def publish(run: str, out: str | None) -> None:
    """Write RUN as one file with all sources, verdicts and the environment, bound by one digest."""
    path = Path(out) if out else Path(run).with_suffix(SUFFIX)
    with Archive(Path(run)) as archive:
        root = write_bundle(archive, path)
    click.echo(f"published: {path}\nroot: {root}")


@click.command()
@click.argument("file", type=click.Path())
@click.option(
    "--sample", type=click.IntRange(min=0), default=SAMPLE, show_default=True, help="How many to judge again."
)
@click.option("--root", help="The root that was published with it: refuse any other file.")
@click.option("--device", help="cpu, cuda or cuda:N. Default: the GPU if there is one.")
def verify(file: str, sample: int, root: str | None, device: str | None) -> None:
    """Check that FILE is whole, and judge some of its candidates again.

    They are judged as they were, with the policy of the run. Exit 0: it holds, 1: it does not.
    """
    bundle = read_bundle(Path(file))
    if root is not None and root != bundle.root:
        raise UserError(f"{file} has the root {bundle.root}, not the one that was published")
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"{file}: whole; {len(bundle.judged)} verdicts of {bundle.label}, root {bundle.root[:16]}")
    from assay.evaluation.crew import Crew
    from assay.evaluation.verifying import Checked, drawn, judge_again, write_problems

    def tell(one: Checked) -> None:
        mark = "[red]differs[/]" if one.trouble else "[green]holds[/]"
        console.print(f"{mark}  {one.problem} {one.name}: {one.trouble or one.found}")

    members = drawn(bundle, sample)
    if not members:
        raise click.exceptions.Exit(0)
    with (
        tempfile.TemporaryDirectory(prefix="assay-verify-") as folder,
        closing(Crew([device or _device()], dict(bundle.facts.get("policy", {})))) as crew,
    ):
        checked = judge_again(members, write_problems(bundle, members, Path(folder)), crew, tell)
    held = sum(not one.trouble for one in checked)
    console.print(f"{held} of {len(checked)} hold")
    raise click.exceptions.Exit(0 if held == len(checked) else 1)


def _device() -> str:
    import torch  # takes seconds, and --help should not

    return "cuda" if torch.cuda.is_available() else "cpu"
