"""A speed verdict and a ladder for a person: one headline, one chart, one line per thing to know."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from assay.cli import figures
from assay.records import FASTER, NO_DIFFERENCE, SLOWER, Conditions, Ladder, Roofline, Rung, Speed

_COLOURS = {FASTER: "green", SLOWER: "red", NO_DIFFERENCE: "yellow"}
_WIDE = 1.1
"""An interval whose ends are further apart than this says more about the machine than about the kernel."""
_NAME_WIDTH = 28
_BAR_WIDTH, _SHORT_BAR_WIDTH = 24, 14
_LABEL_WIDTH = 8


@dataclass(frozen=True, slots=True)
class Line:
    """One thing to know, under its name."""

    label: str
    text: str


def show_speed(console: Console, speed: Speed, candidate: str) -> None:
    """The speed of a candidate that is right."""
    _show_headline(console, speed)
    console.print(_race_chart(speed, candidate))
    lines = [_times(speed), _clocks(speed), *_roofline(speed.roofline), _race(speed)]
    lines += [*_device(speed.conditions), _graphed(speed), *_calibration(speed), *_absent(speed.rungs)]
    console.print(_grid(lines))


def show_untimed(console: Console, why: str) -> None:
    """A candidate that is right and has no speed."""
    console.print(f"[bold]NOT TIMED[/]  {escape(why)}", soft_wrap=True)


def show_ladder(console: Console, ladder: Ladder, record: Path) -> None:
    """The baselines of one problem."""
    sizes = ", ".join(f"{name}={size}" for name, size in ladder.sizes.items())
    what = f"{ladder.problem} ({sizes})" if sizes else ladder.problem
    console.print(f"[bold]LADDER[/]  {escape(what)}, {escape(ladder.environment.device_name)}")
    ran = [rung for rung in ladder.rungs if rung.times is not None]
    if ran:
        console.print(_ladder_chart(ladder, ran))
        console.print(f"▸ the opponent of every candidate: {ladder.opponent}", highlight=False)
    else:
        console.print("[bold red]NO BASELINE RAN[/]")
    lines = [
        *_other_times(ran),
        *_roofline(ladder.roofline),
        *_device(ladder.conditions),
        *_absent(ladder.rungs),
        Line("measured", f"in {ladder.seconds:.1f} s; kept for the same problem, device and versions"),
    ]
    console.print(_grid(lines))
    console.print(f"record: {record}", soft_wrap=True, highlight=False)


def _show_headline(console: Console, speed: Speed) -> None:
    word = speed.outcome.upper()
    ratio = f"{figures.digits(speed.ratio.middle, 3)}x the speed of {speed.opponent}"
    first = f"{ratio} (95 %: {figures.span(speed.ratio)})"
    rest = []
    if speed.outcome == NO_DIFFERENCE:
        rest.append(f"nothing beat {speed.opponent}")
        if speed.ratio.high > _WIDE * speed.ratio.low:
            rest[0] = "cannot tell: the machine is too noisy"
    if speed.roofline is not None:
        rest.append(f"{figures.percent(speed.roofline.percent)} of speed of light")
    second = "; ".join(rest)
    gap = ", " if len(f"{word}  {first}, {second}") <= console.width else "\n" + " " * (len(word) + 2)
    console.print(
        f"[bold {_COLOURS[speed.outcome]}]{word}[/]  {escape(first)}{gap if second else ''}{escape(second)}",
        highlight=False,
    )


def _race_chart(speed: Speed, candidate: str) -> Table:
    table = _chart("cold us", "ratio", "relative time")
    rows = [(rung.ratio, rung) for rung in speed.rungs if rung.ratio is not None]
    largest = max([1.0, *(ratio for ratio, _ in rows)])
    own = f"▸ {candidate}", figures.digits(speed.times.device_us, 4), "1"
    style = f"bold {_COLOURS[speed.outcome]}"
    own_is_in = False
    for ratio, rung in sorted(rows, key=lambda row: row[0]):
        if ratio > 1 and not own_is_in:
            own_is_in = True
            table.add_row(*map(escape, own), figures.bar(1, largest, _BAR_WIDTH), style=style)
        time = figures.digits(rung.times.device_us, 4) if rung.times is not None else ""
        name = f"  {rung.name}"
        table.add_row(name, time, figures.digits(ratio, 3), figures.bar(ratio, largest, _BAR_WIDTH))
    if not own_is_in:
        table.add_row(*map(escape, own), figures.bar(1, largest, _BAR_WIDTH), style=style)
    return table


def _ladder_chart(ladder: Ladder, ran: Sequence[Rung]) -> Table:
    table = _chart("cold us", "95 %", "of light", "relative time")
    timed = sorted(((r.times.device_us, r) for r in ran if r.times is not None), key=lambda row: row[0])
    largest = timed[-1][0]
    for time_us, rung in timed:
        is_opponent = rung.name == ladder.opponent
        floor_us = ladder.roofline.floor_us if ladder.roofline is not None else None
        table.add_row(
            f"{'▸' if is_opponent else ' '} {rung.name}",
            figures.digits(time_us, 4),
            figures.span(rung.device_us) if rung.device_us is not None else "",
            figures.percent(100 * floor_us / time_us) if floor_us is not None and time_us > 0 else "",
            figures.bar(time_us, largest, _SHORT_BAR_WIDTH),
            style="bold green" if is_opponent else "",
        )
    return table


def _chart(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True, overflow="ellipsis", max_width=_NAME_WIDTH)
    for heading in headings[:-1]:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column(headings[-1], no_wrap=True)
    return table


def _grid(lines: Sequence[Line]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(min_width=_LABEL_WIDTH, no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for line in lines:
        table.add_row(line.label, escape(line.text), style="dim" if line.label == "absent" else "")
    return table


def _times(speed: Speed) -> Line:
    times = speed.times
    parts = [f"cold {figures.microseconds(times.device_us)} (scored)"]
    if times.warm_us is not None:
        parts.append(f"warm {figures.digits(times.warm_us, 4)}")
    if times.latency_us is not None:
        parts.append(f"latency {figures.digits(times.latency_us, 4)}")
    if times.first_call_ms is not None:
        parts.append(f"first call {figures.milliseconds(times.first_call_ms)}")
    if times.preparation_us:
        parts.append(f"new weights {figures.milliseconds(times.preparation_us / 1e3)}")
    if speed.compile_s:
        parts.append(f"compiled in {speed.compile_s:.1f} s")
    return Line("times", ", ".join(parts))


def _clocks(speed: Speed) -> Line:
    clocks = speed.clocks
    word = "they agree" if clocks.agrees else "they disagree"
    own, judges = figures.microseconds(clocks.device_us), figures.microseconds(clocks.judge_us)
    error = figures.digits(clocks.error_us, 2)
    return Line("clocks", f"its own {own}, the judge's {judges} (give or take {error}): {word}")


def _roofline(roofline: Roofline | None) -> list[Line]:
    if roofline is None:
        return []
    floor = f"floor {figures.microseconds(roofline.floor_us)} ({roofline.bound})"
    work = [
        figures.amount(roofline.bytes_read + roofline.bytes_written, "B"),
        f"{figures.amount(roofline.flops, 'FLOP')} {roofline.source}",
    ]
    return [Line("roofline", f"{floor}, {figures.percent(roofline.percent)} reached; {', '.join(work)}")]


def _race(speed: Speed) -> Line:
    processes = f"{speed.processes} process" + ("" if speed.processes == 1 else "es")
    parts = [processes, f"{speed.blocks} blocks of 2 + 2 calls"]
    dropped = speed.conditions.dropped_blocks
    parts.append(f"{dropped} left out: the clock fell" if dropped else "none left out")
    if speed.early_out:
        parts.append("stopped early: far behind the opponent, or behind a better candidate")
    return Line("race", ", ".join(parts))


def _device(conditions: Conditions) -> list[Line]:
    parts = []
    if conditions.sm_clock_mhz is not None:
        parts.append(f"{conditions.sm_clock_mhz:.0f} MHz")
    if conditions.memory_clock_mhz is not None:
        parts.append(f"memory {conditions.memory_clock_mhz} MHz")
    if conditions.temperature_c is not None:
        parts.append(f"{conditions.temperature_c} °C")
    if conditions.power_w is not None:
        parts.append(f"{conditions.power_w:.0f} W")
    if conditions.throttle_reasons:
        parts.append(f"throttled: {', '.join(conditions.throttle_reasons)}")
    if conditions.other_processes:
        parts.append(f"{conditions.other_processes} other processes on it")
    if conditions.forced:
        parts.append("timed even if busy (--force-busy)")
    return [Line("device", ", ".join(parts))] if parts else []


def _graphed(speed: Speed) -> Line:
    if speed.graphed is None:
        return Line("graphed", speed.graphed_absent or "not measured")
    middle = figures.digits(speed.graphed.middle, 3)
    return Line("graphed", f"{middle}x (95 %: {figures.span(speed.graphed)}), both replayed from CUDA graphs")


def _calibration(speed: Speed) -> list[Line]:
    found = speed.calibration
    if found is None:
        return []
    parts = []
    if "false_rate" in found:
        parts.append(f"false calls {figures.percent(100 * found['false_rate'])}")
    if "smallest_detectable" in found:
        parts.append(f"smallest difference noticed {figures.percent(100 * found['smallest_detectable'])}")
    return [Line("self-test", ", ".join(parts))] if parts else []


def _absent(rungs: Sequence[Rung]) -> list[Line]:
    """Rungs without times by reason: several share one more often than not."""
    names: dict[str, list[str]] = {}
    for rung in rungs:
        if rung.absent:
            names.setdefault(rung.absent, []).append(rung.name)
    return [Line("absent", f"{', '.join(group)}: {reason}") for reason, group in names.items()]


def _other_times(ran: Sequence[Rung]) -> list[Line]:
    """What the chart has no room for."""
    latencies, firsts = [], []
    for rung in ran:
        if rung.times is not None and rung.times.latency_us is not None:
            latencies.append(f"{rung.name} {figures.microseconds(rung.times.latency_us)}")
        if rung.times is not None and rung.times.first_call_ms is not None:
            firsts.append(f"{rung.name} {figures.milliseconds(rung.times.first_call_ms)}")
    lines = (Line("latency", ", ".join(latencies)), Line("1st call", ", ".join(firsts)))
    return [line for line in lines if line.text]
