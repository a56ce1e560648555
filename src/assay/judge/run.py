"""One case under way: the bound problem and its reference, weights in step with the child's."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import torch

from assay.correctness import Calibration, Reference, Report, check_outputs, tensors_of
from assay.judge.desk import Desk
from assay.judge.prepare import PreparedCase
from assay.problems import Instance, Precision
from assay.problems.values import NotCarried, flatten, skeleton, tensor_order, unflatten
from assay.records import CandidateFailure, Finding, JudgeFault, UserError
from assay.speed.samples import Timed
from assay.worker.messages import OutputFact


class Run:
    """What stays the same from call to call, and the weights, which do not."""

    def __init__(self, case: PreparedCase, seed: int, device: torch.device, precision: Precision) -> None:
        self.instance = case.instance
        self.calibration = case.calibration
        self.precision = precision
        self.free_contents = case.free_contents and not case.calibration.written
        self.kept = frozenset(case.kept)
        self.first_inputs: list[Any] = []
        self.renewals = 0
        self.seed = seed
        self.reference = Reference(case.instance, precision, device, seed)
        self.by_seed = False
        self.unmatched: set[str] = set()
        """Parameters that start as constants and found no place by name: nobody can tell if they are used."""


@dataclass(slots=True)
class Answer:
    """What a child gave back for one call, off the desk."""

    got: list[torch.Tensor]
    facts: list[OutputFact]
    tree: Any
    complaint: str
    """What is wrong with its form; then nothing was looked at."""
    timed: Timed | None = None
    findings: list[Finding] = field(default_factory=list)

    def time(self) -> Timed:
        if self.timed is None:
            raise JudgeFault("a call without a time")
        return self.timed


@dataclass(frozen=True, slots=True)
class Burst:
    """Many calls in one exchange."""

    answers: list[Answer]
    each_us: float | None
    """Per call, by the judge's clock; None where its calls wait for a device that waits for them."""


def compare(run: Run, inputs: list[Any], answer: Answer, share: float = 1.0) -> Report:
    """Elements against the oracle, whose values do not exist before this: all, or a share drawn now of a case
    that falls into parts."""
    if answer.complaint:
        return Report(False, float("inf"), 0, 0, answer.complaint, ())
    return check_outputs(
        run.reference,
        run.instance,
        inputs,
        run.precision,
        secrets.randbits(61),
        tensors_of(unflatten(answer.tree, answer.got)),
        run.calibration.split,
        share,
    )


def carried(value: Any, tensors: list[torch.Tensor], what: str) -> Any:
    """The plain form of a value, its tensors set apart."""
    try:
        return flatten(value, tensors)
    except NotCarried as refused:
        raise UserError(f"{what} returns {refused}, which cannot be handed to a candidate") from refused


def construction(
    instance: Instance, precision: Precision, seed: int, tensors: list[torch.Tensor]
) -> dict[str, Any]:
    """How a candidate is constructed as the specification is; tensors of the arguments are set apart."""
    return {
        "args": carried(instance.init_args, tensors, "get_init_inputs()"),
        "kwargs": carried(instance.init_kwargs, tensors, "get_init_inputs()"),
        "seed": seed,
        "dtype": instance.case.dtype,
        "mode": instance.case.mode,
        "allow_tf32": precision.allow_tf32,
    }


def laid_side_by_side(
    desk: Desk, many: list[list[Any]], layout: str, written: Collection[int] = ()
) -> list[dict[str, Any]]:
    """The inputs of many calls on the desk at once; where each call's lie."""
    tensors: list[torch.Tensor] = []
    calls: list[dict[str, Any]] = []
    for inputs in many:
        first = len(tensors)
        tree = carried(inputs, own := [], "get_inputs()")
        tensors += own
        calls.append({"inputs": tree, "tensors": slice(first, len(tensors))})
    places = desk.lay(tensors, layout, calls=len(many), written=written)
    return [{**call, "tensors": places[call["tensors"]]} for call in calls]


def checked_tree(tree: Any, tensor_count: int) -> Any:
    """The answer's structure, made sure that it can be put together again."""
    try:
        unflatten(tree, [torch.empty(0)] * tensor_count)
    except NotCarried as refused:
        raise CandidateFailure("rejected", "forged_message", f"the answer holds {refused}") from refused
    if tensor_order(tree) != list(range(tensor_count)):
        raise CandidateFailure("rejected", "forged_message", "the answer's tensors are out of order")
    return tree


def form_complaint(calibration: Calibration, facts: list[OutputFact], tree: Any, device: torch.device) -> str:
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
        if fact.lazy and not (calibration.lazy and calibration.lazy[k]):
            return f"output {k} is a view whose elements are not all there: return memory that holds each"
    if skeleton(tree) != calibration.structure:
        return "the outputs nest differently from the specification's"
    return "" if all(fact.delivered for fact in facts) else "the outputs were not delivered"
