"""Everything that is timed on one problem: the ladder once, then every candidate against its fastest rung.

What the ladder showed is kept on disk by problem, sizes, precision and environment, together with what the
fastest rung compiled, so that the next judge neither climbs nor compiles again.
"""

from __future__ import annotations

import datetime
import json
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from assay.candidates import Candidate
from assay.correctness import pinned_precision
from assay.judge.course import Course
from assay.judge.devices import own_pids
from assay.judge.environment import read_environment
from assay.judge.ladder import climb, compile_rungs, rung_names
from assay.judge.prepare import Prepared
from assay.judge.race import Race, least_margin
from assay.judge.stable import Stable
from assay.judge.workshop import Workshop
from assay.problems import Problem
from assay.records import (
    Conditions,
    Finding,
    Ladder,
    Roofline,
    Rung,
    SelfTest,
    Speed,
    UserError,
    digest,
    from_plain,
    to_json,
)
from assay.speed.ceilings import Ceilings, load_ceilings
from assay.speed.cost import Work, count_work
from assay.speed.gpu_state import read_gpu_state
from assay.speed.opponents import make_opponent
from assay.speed.roofline import place_under_roof
from assay.speed.score import Heat, device_us, score

CACHES, RECORD = ".caches", "record-2.json"
"""The number grows when baselines come to be timed in another way: what was kept before is forgotten."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A ladder as it lies on disk."""

    opponent: str
    seconds: float
    measured_at: str
    rungs: tuple[Rung, ...]


class _Entry(NamedTuple):
    """Who takes part in a race, and what is known of it before."""

    candidate: Candidate
    built: bytes
    caches: bytes
    first_call_ms: float | None
    compile_s: float
    worth: float


class Speedway:
    """The timing of one problem on one device."""

    def __init__(self, shop: Workshop, prepared: Prepared, problem: Problem) -> None:
        self._shop = shop
        self._prepared = prepared
        self._problem = problem
        self._rungs: tuple[Rung, ...] = ()
        self._stable: Stable | None = None
        self._seconds = 0.0
        self._measured_at = ""
        self._work: Work | None = None
        self._ceilings: Ceilings | None = None

    def close(self) -> None:
        if self._stable is not None:
            self._stable.close()
            self._stable = None

    def open(self) -> None:
        """Climb the ladder, or read what an earlier judge found."""
        if self._rungs:
            return
        start = time.monotonic()
        self._check_idle()
        self._ceilings = load_ceilings(self._shop.device, self._shop.cache / "ceilings")
        self._shop.note_peak(0)
        self._work = self._count()
        if not self._recall():
            caches = self._kept_caches()
            course = Course(self._shop, self._prepared)
            try:
                self._rungs, self._stable = climb(self._shop, course, self._problem, caches)
            finally:
                self._shop.note_peak(course.desk.size_bytes())
                course.close()
            self._keep_caches(caches)
            self._seconds = round(time.monotonic() - start, 3)
            self._measured_at = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
            if not self._gaps():
                self._remember()

    def _gaps(self) -> bool:
        """A rung that failed may have failed for a passing reason: the next judge tries again."""
        wanted = rung_names(self._shop)
        return any(rung.absent and rung.name in wanted for rung in self._rungs)

    def why_absent(self) -> str:
        """Why a candidate that is right has nothing to race against."""
        wanted = rung_names(self._shop)
        failed = (f"{rung.name}: {rung.absent}" for rung in self._rungs if rung.name in wanted)
        return f"no baseline ran ({'; '.join(failed)})"

    def ladder(self) -> Ladder:
        """What `assay bench` shows."""
        self.open()
        opponent = self._stable.name if self._stable is not None else ""
        return Ladder(
            problem=self._problem.name,
            digest=self._problem.digest,
            sizes=dict(self._prepared.cases[0].instance.case.sizes),
            rungs=self._rungs,
            opponent=opponent,
            roofline=self._roofline(self._opponent_us()) if opponent else None,
            measured_at=self._measured_at,
            conditions=self._conditions(),
            precision=self._precision(),
            environment=read_environment(self._shop.device),
            seconds=self._seconds,
        )

    def race(
        self,
        candidate: Candidate,
        built: bytes,
        caches: bytes,
        first_call_ms: float | None,
        compile_s: float,
        worth: float,
    ) -> tuple[Speed | None, list[Finding]]:
        """One candidate against the opponent; its failures propagate.

        On a CPU whatever else runs may look like a cheat. A cheat does so again, and noise seldom: there
        doubts that would reject a candidate do so once a second race raises some, too. That race counts.
        """
        self.open()
        if self._stable is None:
            return None, []
        self._check_idle()
        entry = _Entry(candidate, built, caches, first_call_ms, compile_s, worth)
        speed, found, doubts = self._race_once(self._stable, entry)
        first = next((doubt for doubt in doubts if doubt.fatal), None)
        if self._shop.device.type == "cpu" and first and not any(finding.fatal for finding in found):
            speed, found, doubts = self._race_once(self._stable, entry)
            text = f"a first race was in doubt ({first.code}: {first.message})"
            doubts.append(Finding("raced_again", text, False))
        return speed, found + doubts

    def _race_once(self, stable: Stable, entry: _Entry) -> tuple[Speed, list[Finding], list[Finding]]:
        """The speed, what was found in the processes, and what the times themselves speak against."""
        self._shop.pool.settle()
        course = Course(self._shop, self._prepared)
        opponent_us = self._opponent_us()
        race = Race(self._shop, course, stable, self._problem, entry.candidate, opponent_us, entry.worth)
        try:
            evidence = race.run(entry.built, entry.caches)
        finally:
            self._shop.note_peak(course.desk.size_bytes())
            course.close()
        heat = Heat(
            runs=evidence.runs,
            rungs=self._rungs,
            opponent=stable.name,
            margin=least_margin(self._shop, opponent_us),
            first_call_ms=entry.first_call_ms,
            compile_s=entry.compile_s,
            graphed=evidence.graphed,
            graphed_absent=evidence.graphed_absent,
            early_out=evidence.early_out,
            conditions=self._conditions(),
            precision=self._precision(),
            calibration=self._calibration(),
            preparation_us=evidence.preparation_us,
            calls_per_weights=self._prepared.record.rules.calls_per_weights,
        )
        speed, doubts = score(heat, self._roofline(device_us(evidence.runs)))
        return speed, evidence.findings, doubts

    def _opponent_us(self) -> float:
        name = self._stable.name if self._stable is not None else ""
        return next(rung.times.device_us for rung in self._rungs if rung.name == name and rung.times)

    def _roofline(self, time_us: float) -> Roofline | None:
        if self._work is None or self._ceilings is None:
            return None
        return place_under_roof(self._work, self._ceilings, time_us)

    def _count(self) -> Work:
        case = self._prepared.cases[0]
        precision = self._prepared.precision
        inputs = case.instance.make_inputs(secrets.randbits(62), self._shop.device)
        module = case.instance.build_reference(secrets.randbits(31), self._shop.device)
        with pinned_precision(precision):
            return count_work(case.instance, module, inputs, self._shop.device, precision.allow_tf32)

    def _precision(self) -> dict[str, Any]:
        return {
            "allow_tf32": self._prepared.precision.allow_tf32,
            "allow_fp16_reduced_precision_reduction": False,
            "allow_bf16_reduced_precision_reduction": False,
        }

    def _check_idle(self) -> None:
        """A device that others use gives times that mean nothing."""
        state = read_gpu_state(self._shop.device, own_pids())
        if state is None or not state.other_processes or self._shop.policy.force_busy:
            return
        raise UserError(
            f"{self._shop.device} is busy: {state.other_processes} other processes use it; "
            "wait, or time anyway with --force-busy"
        )

    def _conditions(self) -> Conditions:
        state = read_gpu_state(self._shop.device, own_pids())
        return Conditions(
            sm_clock_mhz=state.sm_clock_mhz if state is not None else None,
            memory_clock_mhz=state.memory_clock_mhz if state is not None else None,
            temperature_c=state.temperature_c if state is not None else None,
            power_w=state.power_w if state is not None else None,
            throttle_reasons=(state.throttle_reasons or ()) if state is not None else (),
            other_processes=(state.other_processes or 0) if state is not None else 0,
            flush_bytes=self._shop.watch.flush_bytes,
            dropped_blocks=0,
            forced=self._shop.policy.force_busy,
        )

    def _calibration(self) -> dict[str, Any] | None:
        path = calibration_path(self._shop.cache, self._shop.device)
        if not path.exists():
            return None
        try:
            return from_plain(SelfTest, json.loads(path.read_text()), "calibration").summary()
        except (ValueError, UserError):
            return None  # another version's: it has to be done again

    def _place(self) -> Path:
        case = self._prepared.cases[0].instance.case
        environment = to_json(read_environment(self._shop.device))
        key = digest(
            self._problem.digest,
            repr(sorted(case.sizes.items())),
            f"{case.dtype} {case.layout} {case.mode}",
            repr(self._precision()),
            repr(rung_names(self._shop)),
            environment,
        )
        return self._shop.cache / "ladders" / key

    def compile_ahead(self, names: tuple[str, ...]) -> None:
        """Compile baselines now, so that the ladder need not; several judges may do so at once."""
        caches: dict[str, bytes] = {}
        course = Course(self._shop, self._prepared)
        try:
            compile_rungs(self._shop, course, self._problem, names, caches)
        finally:
            course.close()
        self._keep_caches(caches)

    def _kept_caches(self) -> dict[str, bytes]:
        return {path.stem: path.read_bytes() for path in self._place().glob("*" + CACHES)}

    def _keep_caches(self, caches: dict[str, bytes]) -> None:
        for name, data in caches.items():
            self._write(name + CACHES, data)

    def _remember(self) -> None:
        opponent = self._stable.name if self._stable is not None else ""
        kept = _Kept(opponent, self._seconds, self._measured_at, self._rungs)
        self._write(RECORD, to_json(kept).encode())

    def _write(self, name: str, data: bytes) -> None:
        """Whole or not at all."""
        place = self._place()
        place.mkdir(parents=True, exist_ok=True)
        temporary = place / f"{name}.{secrets.token_hex(4)}"
        temporary.write_bytes(data)
        os.replace(temporary, place / name)

    def _recall(self) -> bool:
        """Take over what an earlier judge found; a file that cannot be read is as good as none."""
        try:
            kept = from_plain(_Kept, json.loads((self._place() / RECORD).read_text()), "ladder")
        except (FileNotFoundError, ValueError, UserError):
            return False
        self._rungs, self._seconds, self._measured_at = kept.rungs, kept.seconds, kept.measured_at
        if kept.opponent:
            opponent = make_opponent(self._problem, kept.opponent)
            caches = self._kept_caches().get(opponent.name, b"")
            self._stable = Stable(self._shop, self._problem, opponent, caches)
        return True


def calibration_path(cache: Path, device: torch.device) -> Path:
    return cache / "calibration" / (digest(to_json(read_environment(device))) + ".json")
