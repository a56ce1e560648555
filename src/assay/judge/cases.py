"""One case: construct, give weights, release inputs one at a time, compare what comes back.

The order is the defence. An input is drawn from the operating system's randomness only after the output of
the one before has been taken. The expected value of a call does not exist anywhere until its answer has
been copied off the desk. Kept outputs are read a second time at the end, which catches late writes and
shared return buffers.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any

import torch

from assay.correctness import (
    Calibration,
    Fingerprinter,
    Reference,
    Report,
    make_yardstick,
    perturbed,
    tensors_of,
    touched,
)
from assay.judge.desk import Desk, capacity_bytes
from assay.judge.devices import leave_room
from assay.judge.policy import Policy
from assay.judge.prepare import PreparedCase
from assay.problems import Instance, Precision
from assay.problems.values import NotCarried, flatten, skeleton, tensor_order, unflatten
from assay.records import CandidateFailure, CaseResult, Finding, JudgeFault, UserError
from assay.worker import Child
from assay.worker.messages import OutputFact, decode_list, decode_names
from assay.worker.protocol import Message

# Inference mode comes last: a tensor cached under it may not be used under autograd afterwards.
GRAD_MODES = ("grad", "no_grad", "inference")
HELD_BYTES = 1 << 33
REPEAT_BYTES = 1 << 31


@dataclass(slots=True)
class CaseEvidence:
    """What one case showed."""

    result: CaseResult
    findings: list[Finding] = field(default_factory=list)
    state: str = "none"


@dataclass(slots=True)
class _Kept:
    """An output the child still holds, and what it was when it was first read."""

    fingerprints: list[int]
    facts: list[OutputFact]


class CaseRunner:
    """Runs cases of one candidate in one child."""

    def __init__(
        self, child: Child, device: torch.device, policy: Policy, precision: Precision, *, is_module: bool
    ) -> None:
        self._child = child
        self._is_module = is_module
        self._device = device
        self._policy = policy
        self._precision = precision
        self._desk = Desk(child, device, Fingerprinter(device))

    def close(self) -> None:
        self._desk.close()

    def run(self, case: PreparedCase, calls: int) -> CaseEvidence:
        """All calls of one case; candidate failures propagate."""
        # A case that ended early may have left outputs behind.
        self._child.ask("release", timeout_s=self._policy.call_timeout_s)
        run = _Run(case, secrets.randbits(31), self._device, self._precision)
        state = self._construct(run)
        findings: list[Finding] = []
        reports: list[Report] = []
        kept: list[_Kept] = []
        for k in range(calls):
            if k:
                state = self._renew_weights(run, state)
            grad = GRAD_MODES[k * len(GRAD_MODES) // calls]
            report, notes, hold = self._call(run, grad, k, held=len(kept))
            findings += notes
            reports.append(report)
            kept += hold
            if not report.ok:
                break
        findings += self._read_again(kept, case.instance.case.name)
        if run.unmatched and not case.instance.case.derived:  # odd sizes may make constants of anything
            text = f"has no parameters called {', '.join(sorted(run.unmatched))}, which start as constants"
            hint = "Name parameters as the specification does, so that they can be given other values."
            findings.append(Finding("unmatched_state", text, True, hint=hint))
        return CaseEvidence(_result(case.instance, reports, findings), findings, state)

    def _construct(self, run: _Run) -> str:
        tensors: list[torch.Tensor] = []
        instance = run.instance
        head = {
            "args": _carried(instance.init_args, tensors, "get_init_inputs()"),
            "kwargs": _carried(instance.init_kwargs, tensors, "get_init_inputs()"),
            "tensors": self._desk.lay(tensors, "given") if tensors else [],
            "seed": run.seed,
            "dtype": instance.case.dtype,
            "mode": instance.case.mode,
        }
        self._child.ask("construct", head, timeout_s=self._policy.load_timeout_s)
        ours = run.reference.state()
        if not ours or run.by_seed:
            return "by seed" if ours else "none"
        loaded = self._send_state(run, ours)
        needed = {name for name, tensor in ours.items() if tensor.is_floating_point()}
        if self._is_module and not needed <= loaded:
            # Other names than the specification's: only the constructor's own randomness can match them.
            run.by_seed = True
            run.unmatched = run.reference.constant_parameters() & (needed - loaded)
            return self._construct(run)
        return "by name"

    def _send_state(self, run: _Run, state: dict[str, torch.Tensor]) -> set[str]:
        places = self._desk.lay(list(state.values()), "given")
        head = {"tensors": dict(zip(state, places, strict=True))}
        reply = self._child.ask("state", head, timeout_s=self._policy.call_timeout_s)
        run.reference.load_state(state)
        return set(decode_names(reply.head.get("loaded")))

    def _renew_weights(self, run: _Run, state: str) -> str:
        if state == "by name":
            names = run.reference.parameter_names()
            self._send_state(run, perturbed(run.reference.state(), names, secrets.randbits(62)))
        elif state == "by seed":
            run.seed = secrets.randbits(31)
            run.reference.rebuild(run.seed)
            return self._construct(run)
        return state

    def _call(self, run: _Run, grad: str, k: int, *, held: int) -> tuple[Report, list[Finding], list[_Kept]]:
        room = capacity_bytes(run.calibration.shapes, run.calibration.dtypes)
        inputs = self._draw(run, k, room)
        tensors: list[torch.Tensor] = []
        tree = _carried(inputs, tensors, "get_inputs()")
        # Call 1 finds new contents under the very tensors of call 0; later ones come from elsewhere.
        places = self._desk.lay(tensors, run.instance.case.layout, moved=k > 1)
        # What shares memory with an input changes when the next one is laid out.
        hold = (held + 1) * room <= HELD_BYTES and not run.lends_inputs
        head = {"inputs": tree, "tensors": places, "grad": grad, "hold": hold}
        got, facts, findings = self._answer(run, head, room)
        prints = self._desk.fingerprints(got) if hold else []
        report = self._compare(run, inputs, got)
        if report.ok and k == 0 and room <= REPEAT_BYTES:
            findings += self._repeat(run, head, room, got)
        return report, findings, [_Kept(prints, facts)] if hold and got else []

    def _draw(self, run: _Run, k: int, room: int) -> list[Any]:
        """Fresh contents; on call 1, where nothing forbids it, the last ones with a few elements changed."""
        inputs = run.instance.make_inputs(secrets.randbits(62), self._device)
        if room > REPEAT_BYTES or not run.free_contents:
            return inputs
        if k == 1:
            return touched(run.first_inputs, inputs, secrets.randbits(62))
        if k == 0:
            run.first_inputs = inputs
        return inputs

    def _answer(
        self, run: _Run, head: dict[str, Any], room: int
    ) -> tuple[list[torch.Tensor], list[OutputFact], list[Finding]]:
        """Release the input, take the answer off the desk, look at what was done to the input."""
        self._desk.clear_mailbox(room)
        leave_room(self._device)
        poison = {
            "poison_bytes": [room // max(len(run.calibration.shapes), 1)] * 2,
            "pattern": secrets.randbits(32),
        }
        reply = self._child.ask("call", {**head, **poison}, timeout_s=self._policy.call_timeout_s)
        facts = decode_list(OutputFact, reply.head.get("tensors"))
        run.tree = _checked_tree(reply, len(facts))
        run.complaint = _form_complaint(run.calibration, facts, run.tree, self._device)
        # Only outputs of the specified form are ever looked at.
        got = [] if run.complaint else self._desk.pick_up(facts)
        findings = []
        case = run.instance.case.name
        if not self._desk.inputs_untouched() and not run.calibration.writes_inputs:
            findings.append(Finding("input_modified", "the candidate wrote into its inputs", True, case))
        for fact in facts:
            if fact.aliases and not run.lends_inputs:
                findings.append(
                    Finding("aliased_output", f"an output shares memory with {fact.aliases}", True, case)
                )
        return got, facts, findings

    def _compare(self, run: _Run, inputs: list[Any], got: list[torch.Tensor]) -> Report:
        if run.complaint:
            return Report(False, float("inf"), 0, 0, run.complaint, ())
        yardstick = make_yardstick(run.reference, run.instance, inputs, self._precision, secrets.randbits(61))
        return yardstick.check(tensors_of(unflatten(run.tree, got)))

    def _repeat(self, run: _Run, head: dict[str, Any], room: int, first: list[torch.Tensor]) -> list[Finding]:
        """The same input over differently poisoned memory: leftovers show, and so does nondeterminism."""
        again, _facts, findings = self._answer(run, {**head, "hold": False}, room)
        same = len(again) == len(first) and all(_same_bits(a, b) for a, b in zip(again, first, strict=True))
        if not same:
            fatal = self._precision.deterministic
            text = "two calls on one input differ in bits"
            findings.append(Finding("nondeterministic", text, fatal, run.instance.case.name))
        return findings

    def _read_again(self, kept: list[_Kept], case: str) -> list[Finding]:
        """Everything has ended by now: kept outputs must still be what they were."""
        for index, before in enumerate(kept):
            self._desk.clear_mailbox(0)
            self._child.ask("held", {"index": index}, timeout_s=self._policy.call_timeout_s)
            now = self._desk.fingerprints(self._desk.pick_up(before.facts))
            if now != before.fingerprints:
                text = "an output changed after it was returned: a late write or a shared buffer"
                return [Finding("late_write", text, True, case)]
        return []


class _Run:
    """One case under way: the bound problem and its reference, weights in step with the child's."""

    def __init__(
        self,
        case: PreparedCase,
        seed: int,
        device: torch.device,
        precision: Precision,
    ) -> None:
        self.instance = case.instance
        self.calibration = case.calibration
        self.free_contents = case.free_contents and not case.calibration.writes_inputs
        self.lends_inputs = case.calibration.writes_inputs or case.calibration.shares_inputs
        self.first_inputs: list[Any] = []
        self.seed = seed
        self.reference = Reference(case.instance, precision, device, seed)
        self.by_seed = False
        self.unmatched: set[str] = set()
        """Parameters that start as constants and found no place by name: nobody can tell if they are used."""
        self.tree: Any = None
        """How the latest answer nests, and what is wrong with its form."""
        self.complaint = ""


def _carried(value: Any, tensors: list[torch.Tensor], what: str) -> Any:
    try:
        return flatten(value, tensors)
    except NotCarried as refused:
        raise UserError(f"{what} returns {refused}, which cannot be handed to a candidate") from refused


def _checked_tree(reply: Message, tensor_count: int) -> Any:
    """The answer's structure, made sure that it can be put together again."""
    tree = reply.head.get("outputs")
    try:
        unflatten(tree, [torch.empty(0)] * tensor_count)
    except NotCarried as refused:
        raise CandidateFailure("rejected", "forged_message", f"the answer holds {refused}") from refused
    if tensor_order(tree) != list(range(tensor_count)):
        raise CandidateFailure("rejected", "forged_message", "the answer's tensors are out of order")
    return tree


def _form_complaint(
    calibration: Calibration, facts: list[OutputFact], tree: Any, device: torch.device
) -> str:
    """What is wrong with the number, type, place, shape or dtype of the outputs; empty if nothing is."""
    for fact in facts:
        if not fact.plain:
            return f"an output is a {fact.type}, not a plain tensor"
        if fact.device != device.type:
            return f"an output lies on {fact.device}, not on {device.type}"
    wanted = list(zip(calibration.shapes, calibration.dtypes, strict=True))
    if len(facts) != len(wanted):
        return f"{len(facts)} outputs where {len(wanted)} are specified"
    for k, (fact, (shape, dtype)) in enumerate(zip(facts, wanted, strict=True)):
        if (fact.shape, fact.dtype) != (shape, dtype):
            return f"output {k} is {fact.dtype} {list(fact.shape)}, specified is {dtype} {list(shape)}"
    if skeleton(tree) != calibration.structure:
        return "the outputs nest differently from the specification's"
    return "" if all(fact.delivered for fact in facts) else "the outputs were not delivered"


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
