"""A verdict for a person: what failed, where, what was expected, what to do."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from assay.cli.render_speed import show_speed, show_untimed
from assay.cli.terminal import Terminal
from assay.records import BuildFailed, CaseResult, Crashed, Mismatch, Passed, TimedOut, Verdict, Wrong

_COLOURS = {"passed": "green", "refused": "yellow", "not_run": "dim"}
_ADVICE = {
    "wrong": "Compare with the reference on the first failing case; hidden ones vary size, strides, scale.",
    "input_modified": "Write into a new tensor: callers keep using their inputs.",
    "aliased_output": "Return memory of its own from every call.",
    "late_write": "Join every stream and thread before returning, and do not hand out a shared buffer.",
    "patched_names": "Leave torch's and Python's own functions as they are.",
    "nondeterministic": "Uninitialised memory or unordered atomics; the problem asks for equal bits.",
    "host_memory": "Allocate less, or raise the limit if the problem really needs it.",
    "timed_out": "Raise --timeout if the work is honest; a first call may compile.",
    "clocks_disagree": "Do all work inside the call: what goes on after it counts by the judge's clock.",
    "opponent_disturbed": "Leave nothing at work between calls; on a busy machine, try again later.",
    "faster_than_physics": "Do the whole work on every call; if cost() claims too much, correct it.",
    "persisting_l2": "Give the cache back: cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, 0).",
    "library_calls": "Do the work in your own kernels; allocation, views and copies are free to use.",
    "kernel_does_not_matter": "Let your kernel make the answer: now what torch computes beside it does.",
    "wrong_when_timed": "Look for what changes from call to call: races, kept results, buffers used again.",
}


def show_verdict(verdict: Verdict, record: Path) -> None:
    console = Terminal()
    colour = _COLOURS.get(verdict.status, "red")
    console.print(
        f"[bold {colour}]{verdict.status.upper().replace('_', ' ')}[/]  "
        f"{escape(verdict.candidate.name)} ({verdict.candidate.language}) on {escape(verdict.problem.name)}, "
        f"{escape(verdict.environment.device_name)}"
    )
    if verdict.cases:
        console.print(_case_table(verdict.cases))
    _show_cause(console, verdict)
    for finding in verdict.findings:
        if finding.message in _cause(verdict):
            continue
        mark = "[red]✗[/]" if finding.fatal else "[yellow]·[/]"
        where = f" [dim]({escape(finding.case)})[/]" if finding.case else ""
        console.print(f"{mark} {finding.code}: {escape(finding.message)}{where}", soft_wrap=True)
    for advice in _advice(verdict):
        console.print(f"[bold]→[/] {advice}", soft_wrap=True)
    _show_footer(console, verdict, record)


def _case_table(cases: tuple[CaseResult, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("case", "outcome", "calls", "error/tol", "what"):
        table.add_column(heading, overflow="fold", no_wrap=heading == "case")
    for case in cases:
        sizes = ", ".join(f"{k}={v}" for k, v in case.sizes.items())
        extra = [sizes, "" if case.layout == "given" else case.layout]
        extra += ["" if case.distribution == "nominal" else case.distribution, case.dtype or ""]
        ratio = "" if case.worst_ratio is None else f"{case.worst_ratio:.3g}"
        colour = _COLOURS.get(case.outcome, "red")
        what = case.message or ", ".join(part for part in extra if part)
        table.add_row(escape(case.name), f"[{colour}]{case.outcome}[/]", str(case.calls), ratio, escape(what))
    return table


def _cause(verdict: Verdict) -> str:
    if isinstance(verdict, BuildFailed):
        return verdict.diagnosis
    return verdict.death if isinstance(verdict, Crashed) else ""


def _show_cause(console: Console, verdict: Verdict) -> None:
    if _cause(verdict):
        console.print(escape(_cause(verdict)), soft_wrap=True)
    elif isinstance(verdict, TimedOut):
        console.print(f"no answer to {verdict.phase} within {verdict.limit_s:g} s")
    failing = next((case for case in verdict.cases if case.mismatches), None)
    if failing is not None:
        console.print(f"first mismatches on [bold]{escape(failing.name)}[/]:")
        console.print(_mismatch_table(failing.mismatches))
    if isinstance(verdict, Crashed) and verdict.output_tail.strip():
        console.print("[dim]its last output:[/]")
        console.print(escape(verdict.output_tail[-1500:].strip()), soft_wrap=True)


def _mismatch_table(mismatches: tuple[Mismatch, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("output", "index", "expected", "got", "tolerance"):
        table.add_column(heading, justify="right")
    for m in mismatches:
        index = str(list(m.index))
        table.add_row(str(m.output), index, f"{m.expected:.9g}", f"{m.got:.9g}", f"{m.tolerance:.3g}")
    return table


def _advice(verdict: Verdict) -> list[str]:
    keys = [f.code for f in verdict.findings if f.fatal]
    # Wrong on no case, it was wrong when timed: there is no failing case to compare.
    if not isinstance(verdict, Wrong) or any(case.outcome == "wrong" for case in verdict.cases):
        keys.insert(0, verdict.status)
    said = [_ADVICE[key] for key in keys if key in _ADVICE]
    said += [escape(f.hint) for f in verdict.findings if f.fatal and f.hint]
    return list(dict.fromkeys(said))


def _show_rules(console: Console, verdict: Verdict) -> None:
    """What was allowed, and who did the work."""
    rules, census = verdict.problem.rules, verdict.census
    said = ["library calls allowed" if rules.library_calls else "no library calls"]
    said.append(
        f"preparing weights charged over {rules.calls_per_weights} calls"
        if rules.calls_per_weights
        else "preparing weights free"
    )
    further = (
        ("buffers are part of the answer", rules.keeps_state),
        ("calls on any stream", rules.any_stream),
        ("TF32 allowed", rules.allow_tf32),
        ("bits must repeat", rules.deterministic),
    )
    said += [words for words, holds in further if holds]
    console.print(f"[dim]rules: {', '.join(said)}[/]", soft_wrap=True)
    if census is None:
        return
    if census.absent:
        console.print(f"[dim]what it ran could not be counted: {escape(census.absent)}[/]", soft_wrap=True)
    elif census.own_share is not None:
        library = [share.name for share in census.shares if share.kind == "library"]
        also = f"; library: {escape(', '.join(library[:3]))}" if library else ""
        console.print(f"[dim]own code {census.own_share:.0%} of the time{also}[/]", soft_wrap=True)


def _show_footer(console: Console, verdict: Verdict, record: Path) -> None:
    if isinstance(verdict, Passed):
        hidden = sum(case.hidden and case.outcome == "passed" for case in verdict.cases)
        calls = sum(case.calls for case in verdict.cases)
        console.print(
            f"{calls} verified calls, {hidden} hidden cases; largest error {verdict.margin:.2f} of tolerance"
        )
        if verdict.speed is not None:
            show_speed(console, verdict.speed, verdict.candidate.name)
        else:
            show_untimed(console, verdict.speed_absent)
    elif not verdict.speed_measurable:
        console.print("[dim]run through Triton's interpreter: correctness only, speed is not measurable[/]")
    _show_rules(console, verdict)
    off = [layer for layer in verdict.sandbox if not layer.active]
    if off:
        names = ", ".join(layer.name for layer in off)
        console.print(f"[yellow]sandbox incomplete: {names}[/] (see `assay doctor`)")
    if verdict.problem.flaws:
        console.print(f"[bold red]flawed problem:[/] {escape('; '.join(verdict.problem.flaws))}")
    console.print(f"record: {record}", soft_wrap=True, highlight=False)
