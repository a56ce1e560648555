"""A profile for a person: one headline, three numbers, what to try, then what it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from assay.cli import figures
from assay.llm.feedback import feedback
from assay.profile.advice import BOUND
from assay.records import Census, Counters, KernelResources, Passed, Profile, Speed, Verdict

_NAME_WIDTH = 44
_MOST_SHARES = 6
_MOST_COUNTED = 4
_SHOWN_COUNTERS = (
    ("memory", "dram_percent"),
    ("SMs", "sm_percent"),
    ("L2 hits", "l2_hit_percent"),
    ("occupancy", "occupancy_percent"),
    ("used bytes", "load_efficiency_percent"),
    ("wait: memory", "stall_long_scoreboard"),
)


def show_profile(console: Console, verdict: Passed, profile: Profile, record: Path) -> None:
    """A candidate that is right."""
    _show_title(console, verdict)
    advice = profile.advice
    console.print(f"[bold]{BOUND[advice.regime].upper()}[/]  {escape(advice.why)}", soft_wrap=True)
    grid = _grid("bold cyan", "bold", "")
    for figure in advice.figures:
        grid.add_row(f"  {figure.name}", escape(figure.value), escape(figure.meaning))
    console.print(grid)
    if advice.steps:
        console.print("\n[bold]what to try[/]")
    steps = _grid("", "")
    for number, step in enumerate(advice.steps, 1):
        steps.add_row(f"  {number}", f"{escape(step.action)}\n[dim]{escape(step.reason)}[/]")
    console.print(steps)
    _show_kernels(console, verdict.resources)
    _show_census(console, verdict.census, on_gpu=verdict.environment.device.startswith("cuda"))
    _show_counters(console, profile.counters)
    _show_speed(console, verdict)
    console.print(f"[dim]record: {escape(str(record))}[/]", soft_wrap=True, highlight=False)


def show_failure(console: Console, verdict: Verdict, record: Path) -> None:
    """A candidate that did not pass: what whoever writes the next attempt is told."""
    _show_title(console, verdict)
    console.print("[bold red]NO PROFILE[/]  what is not right has no speed\n")
    console.print(escape(feedback(verdict.status, verdict, {})), soft_wrap=True, highlight=False)
    console.print(f"[dim]record: {escape(str(record))}[/]", soft_wrap=True, highlight=False)


def _show_title(console: Console, verdict: Verdict) -> None:
    who = f"{verdict.candidate.name} ({verdict.candidate.language}) on {verdict.problem.name}"
    console.print(f"[bold]PROFILE[/]  {escape(who)}, {escape(verdict.environment.device_name)}")


def _grid(*styles: str) -> Table:
    table = Table.grid(padding=(0, 2))
    for style in styles:
        table.add_column(style=style, overflow="fold")
    return table


def _show_kernels(console: Console, kernels: Sequence[KernelResources]) -> None:
    if not kernels:
        return
    console.print("\n[bold]compiled code[/]")
    grid = _grid("", "")
    for kernel in kernels:
        digest = f" [dim]code {kernel.digest[:8]}[/]" if kernel.digest else ""
        grid.add_row(f"  {escape(_clipped(kernel.name))}", f"{escape(kernel.in_words())}{digest}")
    console.print(grid)


def _show_census(console: Console, census: Census | None, *, on_gpu: bool) -> None:
    if census is None or census.absent:
        return
    shares = sorted((s for s in census.shares if s.time_us > 0), key=lambda s: -s.time_us)
    total_us = sum(share.time_us for share in shares)
    if not on_gpu and census.own_share is not None and census.own_share < 1:
        total_us = sum(s.time_us for s in shares if s.kind != "own") / (1 - census.own_share)
    own = f"; own code {census.own_share:.0%} of the time" if census.own_share is not None else ""
    what = "kernels" if on_gpu else "operators of torch"
    console.print(f"\n[bold]one call[/]  {sum(s.calls for s in shares)} {what}{own}")
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for heading in ("  name", "calls", "us", "share", "whose"):
        table.add_column(heading, justify="right" if heading in ("calls", "us", "share") else "left")
    for share in shares[:_MOST_SHARES]:
        part = f"{share.time_us / total_us:.0%}" if total_us else ""
        time = figures.digits(share.time_us, 3)
        table.add_row(f"  {escape(_clipped(share.name))}", str(share.calls), time, part, share.kind)
    if shares:
        console.print(table)


def _show_counters(console: Console, counters: Counters) -> None:
    if not counters.kernels:
        console.print(f"\n[dim]no counters: {escape(counters.absent)}[/]", soft_wrap=True)
        return
    console.print(f"\n[bold]counters[/]  case {escape(counters.case)}, percent")
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    table.add_column("  kernel")
    for heading, _ in _SHOWN_COUNTERS:
        table.add_column(heading, justify="right")
    for kernel in counters.kernels[:_MOST_COUNTED]:
        values = [kernel.values.get(name) for _, name in _SHOWN_COUNTERS]
        cells = ["" if value is None else f"{value:.0f}" for value in values]
        table.add_row(f"  {escape(_clipped(kernel.name))}", *cells)
    console.print(table)


def _show_speed(console: Console, verdict: Passed) -> None:
    speed = verdict.speed
    if speed is None:
        console.print(f"[dim]not timed: {escape(verdict.speed_absent)}[/]", soft_wrap=True)
        return
    console.print(f"[dim]{escape(_against(speed))}[/]", soft_wrap=True, highlight=False)


def _against(speed: Speed) -> str:
    ratio = f"{figures.digits(speed.ratio.middle, 3)}x the speed of {speed.opponent}"
    return f"{speed.outcome}: {ratio} (95 %: {figures.span(speed.ratio)})"


def _clipped(name: str) -> str:
    return name if len(name) <= _NAME_WIDTH else f"{name[: _NAME_WIDTH - 3]}..."
