"""Verdicts and baselines for an agent: the figures it decides by, and the words it reads."""

from __future__ import annotations

from collections import Counter
from typing import Any

from assay.llm import feedback
from assay.profile import advice_lines
from assay.records import Ladder, Passed, Roofline, Rung, Speed, Verdict, to_plain

MOST_MISMATCHES = 5
MOST_FINDINGS = 20
OUTPUT_CHARACTERS = 1000


def verdict_data(verdict: Verdict) -> dict[str, Any]:
    """The record without what only a machine compares."""
    speed = verdict.speed if isinstance(verdict, Passed) else None
    data: dict[str, Any] = {
        "status": verdict.status,
        "problem": verdict.problem.name,
        "candidate": verdict.candidate.name,
        "language": verdict.candidate.language,
        "device": verdict.environment.device_name,
        "findings": [to_plain(finding) for finding in verdict.findings[:MOST_FINDINGS]],
        "cases": dict(Counter(case.outcome for case in verdict.cases)),
        "first_mismatches": _mismatches(verdict),
        "speed": None if speed is None else _speed(speed),
        "speed_absent": verdict.speed_absent if isinstance(verdict, Passed) else "",
        "feedback": verdict_text(verdict),
    }
    if verdict.output_tail:
        data["printed"] = verdict.output_tail[-OUTPUT_CHARACTERS:]
    return data


def verdict_text(verdict: Verdict) -> str:
    return feedback(verdict.status, verdict, {})


def profile_text(verdict: Verdict) -> str:
    """What the time of a candidate goes into, and what to try; counters are left to `assay profile`."""
    return feedback(verdict.status, verdict, {}, advice_lines(verdict))


def ladder_data(ladder: Ladder) -> dict[str, Any]:
    return {
        "problem": ladder.problem,
        "sizes": to_plain(ladder.sizes),
        "best": ladder.opponent,
        "baselines": [_rung(rung) for rung in ladder.rungs],
        "limit": None if ladder.roofline is None else _limit(ladder.roofline),
        "device": ladder.environment.device_name,
    }


def ladder_text(ladder: Ladder) -> str:
    lines = [f"Baselines of {ladder.problem} on {ladder.environment.device_name}, one call:"]
    for rung in ladder.rungs:
        told = f"{rung.times.device_us:.2f} us" if rung.times is not None else f"none ({rung.absent})"
        lines.append(f"- {rung.name}: {told}{', the one to beat' if rung.name == ladder.opponent else ''}")
    if ladder.roofline is not None:
        lines.append(
            f"The {ladder.roofline.bound} limit of this device is {ladder.roofline.floor_us:.2f} us."
        )
    return "\n".join(lines)


def _mismatches(verdict: Verdict) -> list[dict[str, Any]]:
    found = [(case, miss) for case in verdict.cases for miss in case.mismatches]
    return [{"case": case.name, **to_plain(miss)} for case, miss in found[:MOST_MISMATCHES]]


def _speed(speed: Speed) -> dict[str, Any]:
    return {
        "outcome": speed.outcome,
        "ratio": to_plain(speed.ratio),
        "opponent": speed.opponent,
        "us": speed.times.device_us,
        "baselines": [_rung(rung) for rung in speed.rungs],
        "limit": None if speed.roofline is None else _limit(speed.roofline),
    }


def _rung(rung: Rung) -> dict[str, Any]:
    return {"name": rung.name, "us": rung.times.device_us if rung.times else None, "absent": rung.absent}


def _limit(roofline: Roofline) -> dict[str, Any]:
    return {"us": roofline.floor_us, "bound": roofline.bound, "percent_reached": to_plain(roofline.percent)}
