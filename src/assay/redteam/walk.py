"""Runs a corpus against the judge, one entry after the other, whatever the entries do.

A judge that fails on one entry is replaced for the next, and the failure is a row of its own: the report is
always complete. Not covered: whether expectations are sensible.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from assay.candidates import read_candidate
from assay.judge import Judge, Policy
from assay.problems import load_problem
from assay.records import AssayError, Passed, RedteamRow, Speed, Verdict
from assay.redteam.corpus import Entry, read_entry

HONEST_ATTEMPTS = 3
"""On a CPU whoever else runs disturbs the opponent as a cheat would; honest kernels may try again."""
RUNGS = {"cpu": ("eager",), "cuda": ("eager", "compile")}
"""Enough of an opponent to show a cheat; the full ladder would compile for minutes."""


class Judges:
    """A judge for each policy that entries need, started when first needed."""

    def __init__(self, device: str | None, cache: Path | None = None) -> None:
        self._device = device
        self._cache = cache
        self._open = ExitStack()
        self._judges: dict[tuple[bool, bool], Judge] = {}

    def __enter__(self) -> Judges:
        return self

    def __exit__(self, *_error: object) -> None:
        self._open.close()

    def judge_for(self, entry: Entry) -> Judge:
        key = (entry.timed, entry.forbid_libraries)
        if key not in self._judges:
            kind = "cpu" if (self._device or "cpu").startswith("cpu") else "cuda"
            policy = Policy(speed=entry.timed, forbid_libraries=entry.forbid_libraries, rungs=RUNGS[kind])
            self._judges[key] = self._open.enter_context(Judge(self._device, policy, self._cache))
        return self._judges[key]

    def drop(self, entry: Entry) -> None:
        """A judge that failed is not trusted with the next entry."""
        self._judges.pop((entry.timed, entry.forbid_libraries), None)


def walk(entries: Iterable[Entry], judges: Judges, on_row: Callable[[RedteamRow], None]) -> list[RedteamRow]:
    """Every entry's row, told as it comes."""
    rows = []
    for entry in entries:
        start = time.monotonic()
        try:
            row = _row(entry, judges)
        except AssayError as error:
            judges.drop(entry)
            row = _shaped(entry, "no verdict", "", (), f"{type(error).__name__}: {error}", ok=False)
        rows.append(replace(row, seconds=round(time.monotonic() - start, 2)))
        on_row(rows[-1])
    return rows


def _row(entry: Entry, judges: Judges) -> RedteamRow:
    judge = judges.judge_for(entry)
    if judge.device.type not in entry.devices:
        return _shaped(entry, "not run", "", (), f"not for {judge.device.type}", ok=True)
    attempts = HONEST_ATTEMPTS if entry.honest and entry.timed and judge.device.type == "cpu" else 1
    for _ in range(attempts):
        verdict = verdict_on(judge, entry)
        twin = None
        if entry.twin is not None and verdict.status == "passed":
            twin = speed_in(verdict_on(judge, read_entry(entry.twin)))
        why = unexpected(entry, verdict, twin, judge.device.type)
        if not why:
            break
    speed = speed_in(verdict)
    outcome = speed.outcome if speed is not None else ""
    codes = tuple(finding.code for finding in verdict.findings if finding.fatal)
    return _shaped(entry, verdict.status, outcome, codes, why, ok=not why)


def verdict_on(judge: Judge, entry: Entry) -> Verdict:
    return judge.evaluate(load_problem(entry.problem_on(judge.device.type)), read_candidate(entry.path))


def speed_in(verdict: Verdict) -> Speed | None:
    return verdict.speed if isinstance(verdict, Passed) else None


def unexpected(entry: Entry, verdict: Verdict, twin: Speed | None, device_type: str) -> str:
    """What is not as the header says; empty if everything is."""
    speed = speed_in(verdict)
    if entry.honest:
        return _harmed(entry, verdict, speed, device_type)
    if verdict.status == "passed" and entry.speeds:
        if speed is None:
            return "it passed and was not timed"
        if speed.outcome not in entry.speeds:
            return f"it passed and was called {speed.outcome}"
        if twin is not None and speed.ratio.low > twin.ratio.high * (1 + speed.margin):
            return f"it beat its honest twin: {speed.ratio.middle:.3f} against {twin.ratio.middle:.3f}"
        return ""
    if verdict.status not in entry.statuses:
        return f"it was {verdict.status}, expected was {' or '.join(entry.statuses)}"
    if entry.finding and entry.finding not in [finding.code for finding in verdict.findings]:
        return f"nobody named it: {entry.finding} is not among the findings"
    return ""


def _harmed(entry: Entry, verdict: Verdict, speed: Speed | None, device_type: str) -> str:
    if verdict.status != "passed":
        return f"it is honest and was {verdict.status}: {_reasons(verdict)}"
    if entry.timed and speed is None:
        return "it was not timed"
    # Two cores shared with others tell no small difference.
    if speed is not None and entry.speeds and device_type == "cuda" and speed.outcome not in entry.speeds:
        return f"it was called {speed.outcome}"
    if speed is not None and entry.speeds == ("slower",) and speed.outcome == "faster":
        return "it is slower and was called faster"
    return ""


def _reasons(verdict: Verdict) -> str:
    told = [f"{finding.code}: {finding.message}" for finding in verdict.findings if finding.fatal]
    told += [f"{case.name}: {case.message}" for case in verdict.cases if case.outcome == "wrong"]
    return "; ".join(told)[:300]


def _shaped(
    entry: Entry, status: str, outcome: str, codes: tuple[str, ...], why: str, *, ok: bool
) -> RedteamRow:
    return RedteamRow(
        name=entry.path.name,
        catalogue=entry.catalogue,
        honest=entry.honest,
        expected=" ".join(entry.statuses),
        status=status,
        outcome=outcome,
        findings=codes,
        ok=ok,
        open=entry.because if entry.open_on else "",
        why=why,
        seconds=0.0,
    )
