"""A problem made ready to judge with: its cases chosen, each asked whether it can tell right from wrong.

Preparation does not depend on the candidate, so a warm judge does it once per problem and keeps it. The
hidden cases it chose stay for that judge's life; their contents are drawn anew for every call.
"""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from assay.correctness import Calibration, calibrate
from assay.judge.devices import own_memory
from assay.judge.policy import Policy
from assay.problems import (
    PROBLEM_CODE_ERRORS,
    Case,
    Instance,
    Precision,
    Problem,
    input_bytes,
    reduced_nominal,
)
from assay.records import Finding, ProblemRecord, UserError

CONTENTS_BYTES = 1 << 31
LAYOUT_BYTES = 1 << 28
BEYOND_BYTES = 1 << 28
FULL_SIZE = "full-size-"
UNEVEN = ("mixture", "row_scaled")


@dataclass(frozen=True, slots=True)
class PreparedCase:
    """One case, bound and calibrated."""

    instance: Instance
    calibration: Calibration
    nominal: bool
    free_contents: bool
    """Floating inputs may hold anything: no structure ties their elements together."""
    kept: tuple[int, ...] = ()
    """But for these, in their order."""
    gradients: bool = True
    """It may be called while gradients are recorded."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A problem with everything the judge learned about it."""

    record: ProblemRecord
    precision: Precision
    cases: tuple[PreparedCase, ...]
    notes: tuple[Finding, ...]


def prepare(problem: Problem, policy: Policy, device: torch.device) -> Prepared:
    """Choose and calibrate the cases of a problem on a device."""
    precision = problem.precision
    if policy.allow_tf32:
        precision = dataclasses.replace(precision, allow_tf32=True)
    chosen, notes = _choose(problem, policy, device)
    cases = []
    redrawn = [case for case in chosen if case.derived and case.distribution != "nominal"]
    kept = redrawn[0].kept if redrawn else ()
    for k, case in enumerate(chosen):
        try:
            instance = problem.bind(case)
            seeds = (secrets.randbits(31), secrets.randbits(61), secrets.randbits(61))
            calibration = calibrate(instance, precision, device, seeds)
        except PROBLEM_CODE_ERRORS as error:
            if case.derived:
                continue  # the specification does not take this size here, so no candidate has to
            reason = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
            raise UserError(f"{problem.name} fails on its own case {case.name!r}: {reason}") from error
        cases.append(PreparedCase(instance, calibration, k == 0, bool(redrawn), kept))
    if not all(case.calibration.gradients for case in cases):
        cases = [dataclasses.replace(case, gradients=False) for case in cases]
    notes += unseen(cases)
    record = ProblemRecord(
        name=problem.name,
        kind=problem.kind,
        path=problem.path,
        digest=problem.digest,
        flaws=_flaws(problem, cases),
        oracle=cases[0].calibration.oracle,
        rules=dataclasses.replace(
            problem.rules,
            library_calls=problem.rules.library_calls and not policy.forbid_libraries,
            allow_tf32=precision.allow_tf32,
            slack=precision.slack,
            deterministic=precision.deterministic,
        ),
        about=problem.about,
    )
    return Prepared(record, precision, tuple(cases), tuple(notes))


def scored_case(problem: Problem, policy: Policy, memory_bytes: int) -> Case:
    """The size a problem is scored at: its nominal one, or a smaller one that fits or was asked for."""
    nominal = problem.nominal()
    room, asked = _room(policy, memory_bytes), bool(policy.most_input_bytes)
    if not asked and input_bytes(problem, nominal) <= room:
        return nominal
    smaller = reduced_nominal(problem, room, with_weights=asked)
    if smaller is None:
        raise UserError(f"{problem.name} has no size whose inputs take {room} bytes or less")
    return smaller


def _room(policy: Policy, memory_bytes: int) -> int:
    room = memory_bytes // 16
    return min(room, policy.most_input_bytes) if policy.most_input_bytes else room


def _choose(problem: Problem, policy: Policy, device: torch.device) -> tuple[list[Case], list[Finding]]:
    declared = list(problem.declared_cases())
    notes: list[Finding] = []
    memory_bytes = own_memory(device)
    room = _room(policy, memory_bytes)
    scored = scored_case(problem, policy, memory_bytes)
    if scored != declared[0]:
        larger = "is larger than was asked for" if policy.most_input_bytes else f"does not fit on {device}"
        text = f"the nominal size {larger}: judged at {dict(scored.sizes)} instead"
        notes.append(Finding("reduced_size", text, False, scored.name))
    declared[0] = scored
    derived = list(problem.derived_cases(secrets.randbits(62))) if policy.derive_hidden else []
    derived = [c for c in derived if input_bytes(problem, c) <= min(room, BEYOND_BYTES)]
    derived += _at_full_size(declared[0], derived, input_bytes(problem, declared[0]))
    fitting = [case for case in declared[1:] if input_bytes(problem, case) <= room]
    return [declared[0], *fitting, *derived], notes


def _at_full_size(nominal: Case, derived: list[Case], size_bytes: int) -> list[Case]:
    """The size that is scored, with contents and a layout that smaller cases have shown to be legal.

    Without these, one test of the shape would tell a candidate that nothing unusual can come. Above some
    gigabytes a second full-size case would cost more than all others together: there are none.
    """
    cases = []
    uneven = [case for case in derived if case.distribution in UNEVEN]
    if uneven and nominal.distribution == "nominal" and size_bytes <= CONTENTS_BYTES:
        last = uneven[-1]
        name, layout = f"{FULL_SIZE}{last.distribution}", nominal.layout
        cases.append(dataclasses.replace(last, name=name, sizes=nominal.sizes, layout=layout))
    layouts = [case.layout for case in derived if case.layout != "given"]
    if layouts and nominal.layout == "given" and size_bytes <= LAYOUT_BYTES:
        name = f"{FULL_SIZE}{layouts[0]}"
        cases.append(dataclasses.replace(nominal, name=name, layout=layouts[0], hidden=True, derived=True))
    return cases


def is_full_size(case: Case) -> bool:
    """Whether it is the size that is scored, with other contents."""
    return case.derived and case.name.startswith(FULL_SIZE) and case.distribution != "nominal"


def _flaws(problem: Problem, cases: list[PreparedCase]) -> tuple[str, ...]:
    """Why no verdict on this problem would mean anything; empty if one would."""
    calibrations = [c.calibration for c in cases if any(0 not in shape for shape in c.calibration.shapes)]
    if not calibrations:
        return ("no case has an output with elements",)
    flaws = []
    if cases[0].calibration.random:
        flaws.append("the specification does not agree with itself on one input (randomness in forward)")
    elif not any(c.discriminates for c in calibrations):
        passing = sorted(set.intersection(*(set(c.survivors) for c in calibrations)) or {"some"})
        flaws.append(f"wrong answers pass on every case: {', '.join(_MEANING.get(n, n) for n in passing)}")
    dead = set.intersection(*(set(c.dead_inputs) for c in calibrations))
    open_outputs = set.intersection(*(set(c.undecidable) for c in calibrations))
    flaws += [f"output {k} cannot be told from a wrong one" for k in sorted(open_outputs)]
    names = dict(enumerate(problem.argument_names))
    flaws += [f"the output ignores input {names.get(k, k)}" for k in sorted(dead)]
    return tuple(flaws)


_MEANING = {
    "zeros": "all zeros",
    "constant": "a constant",
    "scaled": "the answer times 1.01",
    "other_input": "the answer to another input",
    "dropped_tail": "an answer with a stale tail",
    "some": "each case lets another mutant through",
}


def unseen(cases: Sequence[PreparedCase]) -> list[Finding]:
    """Precision mutants that no case tells from an honest answer."""
    names = set.intersection(*(set(c.calibration.unseen) for c in cases)) if cases else set()
    texts = {
        "downgraded": "a lower precision cannot be told from the specified one on this problem",
        "linearised": "a linearised activation cannot be told from the specified one on this problem",
    }
    return [Finding(f"{name}_unseen", texts[name], False) for name in sorted(names)]
