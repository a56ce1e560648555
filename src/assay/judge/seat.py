"""One loaded child at the desk: constructed, given weights, asked, its answers taken off the desk."""

from __future__ import annotations

import secrets
import statistics
import time
from dataclasses import dataclass
from typing import Any

import torch

from assay.correctness import nudged, perturbed
from assay.judge.desk import SETUP_TIMEOUT_S, Desk, capacity_bytes, unpacked
from assay.judge.devices import leave_room
from assay.judge.policy import Policy
from assay.judge.run import Answer, Burst, Run, checked_tree, construction, form_complaint
from assay.records import CandidateFailure, Finding, JudgeFault
from assay.sandbox import rest
from assay.speed.samples import Timed
from assay.worker import Child, Nudge, protocol
from assay.worker.messages import (
    AN_INPUT,
    OutputFact,
    Sample,
    decode_burst,
    decode_list,
    decode_names,
    decode_sample,
)

LEAST_COVER_US, MOST_COVER_US = 50, 2000
COVER_FACTOR = 2.0
RECENT_CALLS = 8
GATE_PATIENCE_S = 0.5
"""Whoever has not queued its calls by then waits for the device within them."""
LARGE_ROOM_BYTES = 1 << 28
FLUSHED_CACHES = 4
"""A flush walks over so many times the L2 cache."""


@dataclass(frozen=True, slots=True)
class Watch:
    """What a child needs to time its own calls."""

    cover: bytes
    """The kernel that spins while the host launches, as a cubin; empty on a CPU."""
    flush_bytes: int

    def hand_to(self, child: Child, desk: Desk) -> None:
        desk.need_flush(self.flush_bytes)
        child.ask("stopwatch", payload=self.cover, timeout_s=SETUP_TIMEOUT_S)


class Seat:
    """One child and the weights it was given."""

    def __init__(
        self, child: Child, desk: Desk, device: torch.device, policy: Policy, *, is_module: bool
    ) -> None:
        self.child = child
        self._desk = desk
        self._device = device
        self._policy = policy
        self._is_module = is_module
        self.launch_us: list[float] = []
        """How long its calls took to return, by its own account."""

    @property
    def usual_launch_us(self) -> float:
        """How long its calls usually take to return, by its own account."""
        return statistics.median(self.launch_us[-RECENT_CALLS:]) if self.launch_us else 0.0

    @property
    def cover_us(self) -> int:
        """How long the device must be kept busy for its launches to go unseen."""
        return int(min(max(COVER_FACTOR * self.usual_launch_us, LEAST_COVER_US), MOST_COVER_US))

    def construct(self, run: Run) -> str:
        """As the specification is constructed; returns how weights are matched."""
        self._construct_by_seed(run)
        ours = run.reference.state()
        if not ours or run.by_seed:
            return "by seed" if ours else "none"
        loaded = self.send_state(ours)
        needed = {name for name, tensor in ours.items() if tensor.is_floating_point()}
        if self._is_module and not needed <= loaded:
            # Other names than the specification's: only the constructor's own randomness can match them.
            run.by_seed = True
            run.unmatched = run.reference.constant_parameters() & (needed - loaded)
            return self.construct(run)
        return "by name"

    def _construct_by_seed(self, run: Run) -> None:
        tensors: list[torch.Tensor] = []
        head = construction(run.instance, run.precision, run.seed, tensors)
        head["tensors"] = self._desk.lay(tensors, "given") if tensors else []
        self.child.ask("construct", head, timeout_s=self._policy.load_timeout_s)

    def send_state(self, state: dict[str, torch.Tensor]) -> set[str]:
        """Lay weights on the desk for the child to take; returns the names it found a place for."""
        places = self._desk.lay(list(state.values()), "given")
        head = {"tensors": dict(zip(state, places, strict=True))}
        reply = self.child.ask("state", head, timeout_s=self._policy.call_timeout_s)
        return set(decode_names(reply.head.get("loaded")))

    def renew_weights(self, run: Run, state: str) -> str:
        """Other weights, for the child and for the reference."""
        if state == "by name":
            names = run.reference.parameter_names()
            run.renewals += 1
            change = perturbed if run.renewals % 2 else nudged
            renewed = change(run.reference.state(), names, secrets.randbits(62))
            self.send_state(renewed)
            run.reference.load_state(renewed)
        elif state == "by seed":
            run.seed = secrets.randbits(31)
            run.reference.rebuild(run.seed)
            return self.construct(run)
        return state

    def first_call(self, run: Run, head: dict[str, Any], timeout_s: float) -> Sample:
        """A call for the sake of what it compiles; its answer is not looked at."""
        self.child.ask("call", {**head, **self._surroundings(run)}, timeout_s=timeout_s)
        sample = self._sample()
        if sample is None:
            raise JudgeFault("a call without a time")
        return sample

    def answer(self, run: Run, head: dict[str, Any]) -> Answer:
        """Release the input, take the answer off the desk, look at what was done to the input."""
        room = self._clear(run, 1)
        request = {**head, **self._surroundings(run)}
        self._begin()
        start_ns = time.monotonic_ns()
        reply = self.child.ask("call", request, timeout_s=self._policy.call_timeout_s, watch=False)
        taken = self._desk.take(room)
        # Only now is it sure that the answer was there: the copy may have had to wait for it.
        wall_us = (time.monotonic_ns() - start_ns) / 1e3
        self.child.watch()
        answer = self._read(run, reply.head, taken)
        sample = self._sample()
        if sample is not None:
            self.launch_us.append(sample.launch_us)
            answer.timed = Timed(sample.device_us, sample.host_us, sample.sm_mhz, wall_us, sample.launch_us)
        answer.findings = self._findings(run, [answer])
        return answer

    def burst(self, run: Run, calls: list[dict[str, Any]], *, hold: bool = False) -> Burst:
        """Many calls in one exchange, by the judge's clock alone; with `hold` the child keeps the answers."""
        room = self._clear(run, len(calls))
        request = {**self._calls(run, calls, room), "hold": hold, "gate": 0}
        self._begin()
        start_ns = time.monotonic_ns()
        reply = self.child.ask("burst", request, timeout_s=self._policy.call_timeout_s, watch=False)
        taken = self._desk.take(room)
        wall_us = (time.monotonic_ns() - start_ns) / 1e3
        return self._burst(run, len(calls), reply, taken, wall_us)

    def gated_burst(self, run: Run, calls: list[dict[str, Any]], inputs: list[torch.Tensor]) -> Burst:
        """The same on a device, by events of the judge's; the inputs come when all is queued."""
        room = self._clear(run, len(calls))
        lay_again = self._desk.withhold(inputs)
        gate = self._desk.gate()
        request = {**self._calls(run, calls, room), "hold": False, "gate": gate.close()}
        opened: list[bool] = []

        def open_gate() -> None:
            opened.append(True)
            gate.open(lay_again, self._desk.flush)

        limit_s = self._policy.call_timeout_s
        nudge = Nudge(GATE_PATIENCE_S, open_gate)
        reply = self.child.ask("burst", request, timeout_s=limit_s, watch=False, nudge=nudge)
        waited = bool(opened)
        if not waited:
            open_gate()
        taken = self._desk.take_later(room)
        passed_us = gate.passed_us(limit_s)
        if passed_us is None:
            self.child.kill()
            gate.give_up()
            text = f"no answer on the device within {limit_s:g} s"
            raise CandidateFailure("timed_out", "call_timeout", text)
        return self._burst(run, len(calls), reply, taken, None if waited else passed_us)

    def _begin(self) -> None:
        """The judge's clock counts from here on; its own threads would take a child's processors."""
        if self._device.type == "cpu":
            rest()
        self.child.thaw()

    def _burst(
        self, run: Run, calls: int, reply: protocol.Message, taken: torch.Tensor, spent_us: float | None
    ) -> Burst:
        self.child.watch()
        parts = zip(decode_burst(reply.head.get("answers"), calls), taken.chunk(calls), strict=True)
        answers = [self._read(run, *part) for part in parts]
        answers[0].findings = self._findings(run, answers)
        return Burst(answers, None if spent_us is None else spent_us / calls)

    def _calls(self, run: Run, calls: list[dict[str, Any]], room: int) -> dict[str, Any]:
        return {"calls": calls, "room_bytes": room // len(calls), "strides": run.calibration.strides}

    def _clear(self, run: Run, calls: int) -> int:
        """Room for the answers of so many calls, with nothing in it that could be taken for one."""
        room = calls * capacity_bytes(run.calibration.shapes, run.calibration.dtypes)
        self._desk.clear_mailbox(room)
        if room > LARGE_ROOM_BYTES:  # asking the driver takes longer than many a call
            leave_room(self._device)
        return room

    def _read(self, run: Run, told: dict[str, Any], taken: torch.Tensor) -> Answer:
        """An answer from what the child tells of it and what was taken; only the right form is looked at."""
        facts = decode_list(OutputFact, told.get("tensors"))
        tree = checked_tree(told.get("outputs"), len(facts))
        complaint = form_complaint(run.calibration, facts, tree, self._device)
        got = [] if complaint else unpacked(taken, facts, run.calibration.strides)
        return Answer(got, facts, tree, complaint)

    def _sample(self) -> Sample | None:
        reply = self.child.ask("sample", timeout_s=self._policy.call_timeout_s, watch=False)
        return decode_sample(reply.head.get("sample"))

    def _surroundings(self, run: Run) -> dict[str, Any]:
        """Noise for the memory that the next allocations get; how the answer is to lie in the mailbox."""
        room = capacity_bytes(run.calibration.shapes, run.calibration.dtypes)
        sizes = [room // max(len(run.calibration.shapes), 1)] * 2
        poison = {"poison_bytes": sizes, "pattern": secrets.randbits(32)}
        return {**poison, "strides": run.calibration.strides}

    def _findings(self, run: Run, answers: list[Answer]) -> list[Finding]:
        findings = []
        case = run.instance.case.name
        if not self._desk.inputs_untouched():
            findings.append(Finding("input_modified", "the candidate wrote into its inputs", True, case))
        for k, fact in (pair for answer in answers for pair in enumerate(answer.facts)):
            is_lent = k in run.calibration.lent and fact.aliases == AN_INPUT
            if fact.aliases and not is_lent:
                text = f"an output shares memory with {fact.aliases}"
                findings.append(Finding("aliased_output", text, True, case))
        return findings
