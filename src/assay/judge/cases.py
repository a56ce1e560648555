"""One case: construct, give weights, release inputs one at a time, compare what comes back.

The order is the defence. An input is drawn from the operating system's randomness only after the output of
the one before has been taken. The expected value of a call does not exist anywhere until its answer has
been copied off the desk. Kept outputs are read a second time at the end, which catches late writes and
shared return buffers.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from assay.correctness import Fingerprinter, Report, Yardstick, one_changed, touched
from assay.judge.desk import NEARBY_BYTES, Desk, capacity_bytes, unpacked
from assay.judge.policy import Policy
from assay.judge.prepare import PreparedCase
from assay.judge.run import Answer, Run, carried, compare, laid_side_by_side
from assay.judge.seat import Seat, Watch
from assay.problems import Instance, Precision
from assay.problems.values import dtype_name
from assay.records import CandidateFailure, CaseResult, Finding, JudgeFault
from assay.speed.samples import Timed
from assay.worker import Child
from assay.worker.messages import MODES, OutputFact, decode_list

# Inference mode comes last: a tensor cached under it may not be used under autograd afterwards.
GRAD_MODES = ("grad", "no_grad", "inference")
HELD_BYTES = 1 << 33
REPEAT_BYTES = 1 << 31
KEPT_AT_ONCE = 12


@dataclass(slots=True)
class CaseEvidence:
    """What one case showed."""

    result: CaseResult
    findings: list[Finding] = field(default_factory=list)
    state: str = "none"


_Kept = list[int]
"""What the tensors of an answer that the child still holds were when they were first read: fingerprints."""


class CaseRunner:
    """Runs cases of one candidate in one child."""

    def __init__(
        self,
        child: Child,
        device: torch.device,
        policy: Policy,
        precision: Precision,
        *,
        is_module: bool,
        keeps_state: bool = False,
    ) -> None:
        self._child = child
        self._device = device
        self._policy = policy
        self._precision = precision
        self._keeps_state = keeps_state
        self._desk = Desk(device, Fingerprinter(device))
        self._desk.join(child)
        self._seat = Seat(child, self._desk, device, policy, is_module=is_module)
        self._turn = secrets.randbelow(8)
        self.first_call: Timed | None = None
        """How long the very first call of this process took."""

    def close(self) -> None:
        self._desk.close()

    def shared_bytes(self) -> int:
        return self._desk.size_bytes()

    def start_timing(self, stopwatch: Watch) -> None:
        """Every call is timed, so that none of them shows whether it counts."""
        stopwatch.hand_to(self._child, self._desk)

    def run(self, case: PreparedCase, calls: int) -> CaseEvidence:
        """All calls of one case; candidate failures propagate."""
        # A case that ended early may have left outputs behind.
        self._child.ask("release", timeout_s=self._policy.call_timeout_s)
        run = Run(case, secrets.randbits(31), self._device, self._precision)
        state = self._seat.construct(run)
        findings: list[Finding] = []
        reports: list[Report] = []
        kept: list[_Kept] = []
        modes = GRAD_MODES if case.gradients else GRAD_MODES[1:]
        for k in range(calls):
            if k:
                state = self._seat.renew_weights(run, state)
            grad = modes[k * len(modes) // calls]
            report, notes, hold = self._call(run, grad, k, held=len(kept))
            findings += notes
            reports.append(report)
            kept += hold
            if not report.ok:
                break
        findings += self._read_again(run, kept)
        if run.unmatched and not case.instance.case.derived:  # odd sizes may make constants of anything
            text = f"has no parameters called {', '.join(sorted(run.unmatched))}, which start as constants"
            hint = "Name parameters as the specification does, so that they can be given other values."
            findings.append(Finding("unmatched_state", text, True, hint=hint))
        return CaseEvidence(_result(case.instance, reports, findings), findings, state)

    def keep_many(self, case: PreparedCase) -> list[Finding]:
        """More answers kept at once than whoever hands out the same few buffers in turn has of them."""
        run = Run(case, secrets.randbits(31), self._device, self._precision)
        self._child.ask("release", timeout_s=self._policy.call_timeout_s)
        self._seat.construct(run)
        spec = run.instance
        drawn = [spec.make_inputs(secrets.randbits(62), self._device) for _ in range(KEPT_AT_ONCE)]
        calls = laid_side_by_side(self._desk, drawn, spec.case.layout, run.calibration.written)
        burst = self._seat.burst(run, calls, hold=True)
        self._look_at_one(run, drawn, burst.answers)
        kept = [self._desk.fingerprints(answer.got) for answer in burst.answers]
        return burst.answers[0].findings[:1] + self._read_again(run, kept)

    def _look_at_one(self, run: Run, drawn: list[list[Any]], answers: list[Answer]) -> None:
        """Any of them may be the one that is compared."""
        one = secrets.randbelow(len(answers))
        wrong = [answer.complaint for answer in answers if answer.complaint]
        report = None if wrong else compare(run, drawn[one], answers[one])
        if report is None or not report.ok:
            text = wrong[0] if report is None else report.message
            raise CandidateFailure(
                "wrong", "wrong_when_kept", f"one of many calls gave wrong results: {text}"
            )

    def move_streams(self, case: PreparedCase) -> list[Finding]:
        """One call on another stream, right behind the work that writes its inputs."""
        run, inputs, head = self.set_out(case)
        if self.is_right(run, inputs, {**head, "elsewhere": True}):
            return []
        text = "a call on another stream gave wrong results: it does not wait for the current stream"
        hint = "Launch on torch.cuda.current_stream()."
        return [Finding("ignores_stream", text, True, case.instance.case.name, hint=hint)]

    def set_out(self, case: PreparedCase) -> tuple[Run, list[Any], dict[str, Any]]:
        """A case constructed anew, with a fresh input on the desk, for one call that the caller makes."""
        run = Run(case, secrets.randbits(31), self._device, self._precision)
        self._seat.construct(run)
        inputs = run.instance.make_inputs(secrets.randbits(62), self._device)
        tensors: list[torch.Tensor] = []
        tree = carried(inputs, tensors, "get_inputs()")
        places = self._lay(run, tensors)
        how = {"grad": "no_grad", "hold": False, "timing": "warm", "cover_us": self._seat.cover_us}
        return run, inputs, {"inputs": tree, "tensors": places, **how}

    def is_right(self, run: Run, inputs: list[Any], head: dict[str, Any]) -> bool:
        """Whether one call on what was set out gives the right answer."""
        return compare(run, inputs, self._seat.answer(run, head)).ok

    def _call(self, run: Run, grad: str, k: int, *, held: int) -> tuple[Report, list[Finding], list[_Kept]]:
        room = capacity_bytes(run.calibration.shapes, run.calibration.dtypes)
        inputs = self._draw(run, k, room)
        tensors: list[torch.Tensor] = []
        tree = carried(inputs, tensors, "get_inputs()")
        # Call 1 finds new contents under the very tensors of call 0; later ones come from elsewhere.
        places = self._lay(run, tensors, within_bytes=NEARBY_BYTES if k > 1 else 0)
        hold = (held + 1) * room <= HELD_BYTES
        timing = "idle" if self.first_call is None else secrets.choice(MODES)
        how = {"grad": grad, "hold": hold, "timing": timing, "cover_us": self._seat.cover_us}
        head = {"inputs": tree, "tensors": places, **how}
        answer = self._seat.answer(run, head)
        self.first_call = self.first_call or answer.timed
        prints = self._desk.fingerprints(answer.got) if hold else []
        report = compare(run, inputs, answer)
        if report.ok and self._keeps_state and any(t.numel() for t in answer.got):
            report = self._compare_state(run, inputs, report, how)
        findings = answer.findings
        if report.ok and k == 0 and room <= REPEAT_BYTES:
            if run.calibration.written:
                self._lay(run, tensors)  # as they were, in the same places
            findings += self._repeat(run, head, answer.got)
        return report, findings, [prints] if hold and answer.got else []

    def _lay(self, run: Run, tensors: list[torch.Tensor], within_bytes: int = 0) -> list[dict[str, Any]]:
        layout = run.instance.case.layout
        return self._desk.lay(tensors, layout, within_bytes=within_bytes, written=run.calibration.written)

    def _compare_state(self, run: Run, inputs: list[Any], outputs: Report, how: dict[str, Any]) -> Report:
        """What two calls have left in its buffers, which are given anew before the next; whoever brings them
        up to date only when they are read has lost the first input by then."""
        names = run.reference.buffer_names()
        if not names:
            return outputs
        second = run.instance.make_inputs(secrets.randbits(62), self._device)
        tensors: list[torch.Tensor] = []
        tree = carried(second, tensors, "get_inputs()")
        places = self._lay(run, tensors)
        self._seat.answer(run, {"inputs": tree, "tensors": places, **how, "hold": False})
        wanted = run.reference.state()
        forms = [(tuple(wanted[name].shape), dtype_name(wanted[name].dtype)) for name in names]
        room = capacity_bytes(*zip(*forms, strict=True))
        self._desk.clear_mailbox(room)
        reply = self._child.ask(
            "held", {"names": names, "strides": []}, timeout_s=self._policy.call_timeout_s
        )
        facts = decode_list(OutputFact, reply.head.get("tensors"))
        if [(fact.shape, fact.dtype) for fact in facts] != forms:
            return replace(outputs, ok=False, message=f"{', '.join(names)} have another form after a call")
        got = unpacked(self._desk.take(room), facts)
        reference = run.reference.of_state(inputs)
        kept = Yardstick(reference, second, self._precision, secrets.randbits(61)).check(got)
        return outputs if kept.ok else replace(kept, message=f"buffers after a call: {kept.message}")

    def _draw(self, run: Run, k: int, room: int) -> list[Any]:
        """Fresh contents; on call 1, where nothing forbids it, the last ones with little changed: a few
        elements of each input, or one input alone, in turns from case to case."""
        inputs = run.instance.make_inputs(secrets.randbits(62), self._device)
        if room > REPEAT_BYTES or not run.free_contents:
            return inputs
        if k == 1:
            self._turn += 1
            first, run.first_inputs = run.first_inputs, []
            changed = one_changed(first, inputs, self._turn // 2, run.kept) if self._turn % 2 else None
            return changed or touched(first, inputs, secrets.randbits(62), run.kept)
        if k == 0:
            run.first_inputs = inputs
        return inputs

    def _repeat(self, run: Run, head: dict[str, Any], first: list[torch.Tensor]) -> list[Finding]:
        """The same input over differently poisoned memory: leftovers show, and so does nondeterminism."""
        answer = self._seat.answer(run, {**head, "hold": False})
        again, findings = answer.got, answer.findings
        same = len(again) == len(first) and all(_same_bits(a, b) for a, b in zip(again, first, strict=True))
        if not same:
            fatal = self._precision.deterministic
            text = "two calls on one input differ in bits"
            findings.append(Finding("nondeterministic", text, fatal, run.instance.case.name))
        return findings

    def _read_again(self, run: Run, kept: list[_Kept]) -> list[Finding]:
        """Everything has ended by now: kept outputs must still be what they were."""
        room_bytes = capacity_bytes(run.calibration.shapes, run.calibration.dtypes)
        strides = run.calibration.strides
        for index, before in enumerate(kept):
            self._desk.clear_mailbox(0)
            request = {"index": index, "strides": strides}
            reply = self._child.ask("held", request, timeout_s=self._policy.call_timeout_s)
            facts = decode_list(OutputFact, reply.head.get("tensors"))
            now = self._desk.fingerprints(unpacked(self._desk.take(room_bytes), facts, strides))
            if now != before:
                text = "an output changed after it was returned: a late write or a shared buffer"
                return [Finding("late_write", text, True, run.instance.case.name)]
        return []


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    same_form = a.shape == b.shape and a.dtype == b.dtype
    return same_form and torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


def _result(instance: Instance, reports: list[Report], findings: list[Finding]) -> CaseResult:
    case = instance.case
    if not reports:
        raise JudgeFault("a case without calls")
    last = reports[-1]
    outcome = "wrong" if not last.ok else ("rejected" if any(f.fatal for f in findings) else "passed")
    return CaseResult(
        name=case.name,
        outcome=outcome,
        hidden=case.hidden,
        derived=case.derived,
        sizes=dict(case.sizes),
        layout=case.layout,
        distribution=case.distribution,
        dtype=case.dtype,
        calls=len(reports),
        worst_ratio=max(r.worst_ratio for r in reports),
        wrong_elements=last.wrong_elements,
        elements=last.elements,
        message=last.message,
        mismatches=last.mismatches,
    )
