"""One problem's part of the report: its candidates with sources, differences, ladders and reasons."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from assay.archive import Judged, Listed
from assay.records import Passed, Speed, Verdict
from assay.report.svg import bars

MOST_SOURCE = 20_000
_CONTEXT_LINES = 2
_MOST_SHARES = 6


def problem_section(
    problem: Listed, members: Sequence[Judged], sources: Mapping[int, str], anchor: str
) -> str:
    right = sum(one.status == "passed" for one in members)
    about = ", ".join(filter(None, (problem.about.category, problem.about.regime)))
    inside = _folded("specification", _code(problem.source)) + "".join(
        _candidate(one, sources) for one in members
    )
    return (
        f'<details id="{anchor}"><summary><b>{escape(problem.name)}</b> '
        f'<span class="soft">{escape(about)}</span> {right} of {len(members)} right</summary>'
        f"{inside}</details>"
    )


def _candidate(one: Judged, sources: Mapping[int, str]) -> str:
    candidate = one.candidate
    where = f"sample {candidate.sample}" + (f", turn {candidate.turn}" if candidate.turn else "")
    verdict = one.verdict()
    parts = [_reasons(one, verdict)]
    speed = verdict.speed if isinstance(verdict, Passed) else None
    if speed is not None:
        parts.append(_speed(speed))
    if verdict is not None:
        parts.append(_census(verdict))
        parts.append(_folded(f"{len(verdict.cases)} cases", _cases(verdict)))
    before = sources.get(candidate.parent) if candidate.parent is not None else None
    if before is not None:
        parts.append(_folded("difference to the turn before", _difference(before, candidate.source)))
    parts.append(_folded("source", _code(candidate.source)))
    return (
        f'<details id="c{candidate.id}"><summary>{escape(candidate.name)} <span class="soft">{where}</span> '
        f'<span class="{one.status}">{one.status}</span></summary>{"".join(parts)}</details>'
    )


def _reasons(one: Judged, verdict: Verdict | None) -> str:
    if verdict is None:
        return f"<p>{escape(str(one.record.get('message', '')))}</p>"
    told = [
        f"<li>{'<b>' if f.fatal else ''}{escape(f.code)}{'</b>' if f.fatal else ''}: {escape(f.message)}"
        f"{' <span class=soft>' + escape(f.hint) + '</span>' if f.hint else ''}</li>"
        for f in verdict.findings
    ]
    told += [
        f"<li>{escape(case.name)}: {escape(case.message)}</li>"
        for case in verdict.cases
        if case.outcome == "wrong"
    ]
    for name in ("diagnosis", "death"):
        if text := getattr(verdict, name, ""):
            told.append(f"<li><pre>{escape(str(text))}</pre></li>")
    return f"<ul>{''.join(told)}</ul>" if told else ""


def _speed(speed: Speed) -> str:
    rows: list[tuple[str, float, float | None, float | None, str]] = [
        ("this candidate", speed.times.device_us, None, None, f"{speed.times.device_us:.1f} us")
    ]
    for rung in speed.rungs:
        if rung.times is None:
            continue
        low, high = (rung.device_us.low, rung.device_us.high) if rung.device_us else (None, None)
        ratio = f", {rung.ratio:.3f}x" if rung.ratio is not None else ""
        rows.append((rung.name, rung.times.device_us, low, high, f"{rung.times.device_us:.1f} us{ratio}"))
    absent = [f"{rung.name}: {rung.absent}" for rung in speed.rungs if rung.absent]
    light = ""
    if speed.roofline is not None:
        roof = speed.roofline
        light = f" {roof.percent:.0f} % of the speed of light ({roof.bound}, floor {roof.floor_us:.1f} us)."
    text = (
        f"<p><b>{escape(speed.outcome)}</b>: {speed.ratio.middle:.3f} times the speed of "
        f"{escape(speed.opponent)} (95 %: {speed.ratio.low:.3f} to {speed.ratio.high:.3f}).{light}</p>"
        f"{bars(rows, 'ladder')}"
    )
    return text + (f'<p class="soft">absent: {escape("; ".join(absent))}</p>' if absent else "")


def _census(verdict: Verdict) -> str:
    """What one call ran, the longest first."""
    census = verdict.census
    if census is None or not census.shares:
        return ""
    shares = sorted(census.shares, key=lambda one: -one.time_us)[:_MOST_SHARES]
    lines = "\n".join(f"{one.time_us:10.1f} us  {one.calls:4}x  {one.kind:12} {one.name}" for one in shares)
    own = "" if census.own_share is None else f", {census.own_share:.0%} own code"
    return _folded(f"what one call ran{own}", f"<pre>{escape(lines)}</pre>")


def _cases(verdict: Verdict) -> str:
    lines = []
    for case in verdict.cases:
        sizes = ", ".join(f"{name}={value}" for name, value in case.sizes.items())
        ratio = "" if case.worst_ratio is None else f"{case.worst_ratio:.3g} of tolerance"
        what = " ".join(
            filter(None, (sizes, case.layout, case.distribution, case.dtype, ratio, case.message))
        )
        lines.append(f"{case.name:30} {case.outcome:9} {what}")
    return f"<pre>{escape(chr(10).join(lines))}</pre>"


def _difference(before: str, after: str) -> str:
    marks: dict[str, str] = {"+": "add", "-": "del"}
    lines = list(
        difflib.unified_diff(before.splitlines(), after.splitlines(), n=_CONTEXT_LINES, lineterm="")
    )[2:]
    return f"<pre>{chr(10).join(_marked(line, marks.get(line[:1], '')) for line in lines)}</pre>"


def _marked(line: str, mark: str) -> str:
    return f'<span class="{mark}">{escape(line)}</span>' if mark else escape(line)


def _code(text: str) -> str:
    cut = f"\n... {len(text) - MOST_SOURCE} characters more" if len(text) > MOST_SOURCE else ""
    return f"<pre>{escape(text[:MOST_SOURCE])}{cut}</pre>"


def _folded(title: str, inside: Any) -> str:
    return f"<details><summary>{escape(title)}</summary>{inside}</details>"
