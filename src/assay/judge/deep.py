"""The deep level: a few small cases once more, under the four tools of compute-sanitizer.

Asked of a candidate that has passed gate 1, on a GPU. What a tool finds in the candidate's own kernels is a
reason to reject it, whatever its answers are; what it finds in a library's is a note; a tool that could not
look is a note as well (`not_inspected`). Nothing here makes a verdict better.

initcheck does not see stores by tensor maps: of kernels that have such stores its errors are notes.

Not covered: races in global memory and uninitialised shared memory, which the tools do not look for; tools
that call hand-made barriers wrong; a candidate that meddles with the log, which lies in its own folder, or
names a store by tensor map that it does not have.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from assay.build import sanitizer_paths
from assay.build.sanitizer_log import ERROR, SanitizerLog, SanitizerReport, read_sanitizer_log
from assay.candidates import Candidate
from assay.judge.census import kernel_kind
from assay.judge.desk import capacity_bytes, fill
from assay.judge.policy import Policy
from assay.judge.prepare import PreparedCase
from assay.judge.run import carried, construction
from assay.judge.workshop import Workshop
from assay.problems import Precision
from assay.problems.layouts import nth_layout
from assay.records import CandidateFailure, Finding, JudgeFault, UserError
from assay.worker import Child
from assay.worker.inspected import InspectedCase, pack_task
from assay.worker.inspection import TOOLS, Inspection, decode_inspection
from assay.worker.placement import Placement, place

CPU = torch.device("cpu")
MOST_CASES = 3
MOST_INPUT_BYTES = 8 << 20
MOST_TASK_BYTES = 256 << 20
"""Inputs and weights of all cases together: they lie in the child's scratch folder, which is memory."""
GRACE_S = 30.0
"""For the child to answer after it has stopped a tool."""
LONGEST_TEXT, LONGEST_NAME = 400, 120
_STORE_BY_MAP = re.compile(rb"cp\.(?:reduce\.)?async\.bulk\.tensor\.\dd\.global\.shared|async_bulk_tensor")
"""As PTX says it, and as functions of CUDA's headers do, which load by the same name."""
_HINTS = {
    "memcheck": "Mask loads and stores at the edges: what lies beyond a tensor belongs to somebody else.",
    "racecheck": "Put a barrier between what one thread writes to shared memory and another one reads.",
    "initcheck": "Write memory before it is read: torch.empty and fresh allocations hold anything.",
    "synccheck": "Let every thread of a block reach the same barrier.",
}


@dataclass(frozen=True, slots=True)
class Subject:
    """Whom to inspect, and what spares it compiling anything again."""

    candidate: Candidate
    load: Mapping[str, Any]
    built: bytes
    """Both as `Workshop.to_load` gives them."""
    caches: bytes
    by_seed: bool
    """Its weights have other names than the specification's."""


def require_deep(policy: Policy, device: torch.device, sanitizer: str | None) -> None:
    """Say at once what the deep level lacks here."""
    if not policy.deep:
        return
    if device.type != "cuda":
        raise UserError(f"--deep needs a GPU, whose kernels compute-sanitizer looks at; this is {device}")
    if sanitizer is None:
        raise UserError("--deep needs compute-sanitizer: install the CUDA toolkit, or set CUDA_HOME to it")
    if policy.require_full_sandbox:
        raise UserError("--deep needs CUDA to start unfiltered: leave out --require-sandbox full")


def inspect(
    shop: Workshop, subject: Subject, cases: Sequence[PreparedCase], precision: Precision
) -> list[Finding]:
    """What the tools say of the smallest of these cases."""
    if shop.toolchain.sanitizer is None:
        raise JudgeFault("nothing to inspect with")
    chosen = _contents(subject, cases, precision, shop.device)
    if not chosen:
        limit_mib = MOST_INPUT_BYTES >> 20
        text = f"no case that it passed has inputs of at most {limit_mib} MiB and weights of a modest size"
        return [Finding("not_inspected", text, False)]
    task = pack_task(str(shop.device), subject.load, subject.built, chosen)
    inspectors = _Inspectors()

    def ask(tool: str) -> list[Finding]:
        try:
            outcome = _run(shop, tool, task, subject.caches, inspectors)
        except CandidateFailure as failure:
            return [Finding("not_inspected", f"{tool}: {_clipped(failure.message)}", False)]
        return findings_of(tool, outcome, subject.candidate.source, stores_by_map=_stores_by_map(subject))

    # At once: most of a tool's time goes into starting torch under it.
    with ThreadPoolExecutor(len(TOOLS)) as threads, inspectors:
        return [finding for found in threads.map(ask, TOOLS) for finding in found]


class _Inspectors:
    """Children with a tool at work. Who leaves before they are done, being interrupted, stops them: else the
    threads that ask them would be waited for."""

    def __init__(self) -> None:
        self._running: list[Child] = []
        self._has_left = False

    def add(self, child: Child) -> None:
        self._running.append(child)
        if self._has_left:
            child.end()

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None:
        self._has_left = True
        for child in self._running:
            child.end()


def _run(shop: Workshop, tool: str, task: bytes, caches: bytes, inspectors: _Inspectors) -> Inspection:
    """One tool in a child of its own."""
    sanitizer, limit_s = str(shop.toolchain.sanitizer), shop.policy.deep_timeout_s
    child = shop.pool.take_inspector(sanitizer_paths(sanitizer))
    inspectors.add(child)
    try:
        child.ask("refill", payload=caches, timeout_s=limit_s)
        head = {"sanitizer": sanitizer, "tool": tool, "timeout_s": limit_s}
        reply = child.ask("inspect", head, payload=task, timeout_s=limit_s + GRACE_S)
        return decode_inspection(reply)
    finally:
        child.close(wait=True)  # what comes next may be timed


def _contents(
    subject: Subject, cases: Sequence[PreparedCase], precision: Precision, device: torch.device
) -> list[InspectedCase]:
    """The smallest cases with fresh contents, as many as are asked for and fit."""
    fitting = [case for case in cases if case.calibration.input_bytes <= MOST_INPUT_BYTES]
    chosen: list[InspectedCase] = []
    left_bytes = MOST_TASK_BYTES
    for case in sorted(fitting, key=_size_bytes)[:MOST_CASES]:
        inspected = inspected_case(case, precision, device, with_state=not subject.by_seed)
        tensors = [*inspected.init, *inspected.state.values(), *inspected.stored]
        left_bytes -= sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        if left_bytes >= 0:
            chosen.append(inspected)
    return chosen


def _size_bytes(case: PreparedCase) -> int:
    known = case.calibration
    return known.input_bytes + capacity_bytes(known.shapes, known.dtypes)


def inspected_case(
    case: PreparedCase, precision: Precision, device: torch.device, *, with_state: bool
) -> InspectedCase:
    """One case with fresh contents, as a program of its own can be given it."""
    instance, seed = case.instance, secrets.randbits(31)
    init: list[torch.Tensor] = []
    tensors: list[torch.Tensor] = []
    how = construction(instance, precision, seed, init)
    # Drawn where they always are: a problem need not be able to draw them elsewhere.
    inputs = carried(instance.make_inputs(secrets.randbits(62), device), tensors, "get_inputs()")
    laid = [_laid(tensor, nth_layout(instance.case.layout, k)) for k, tensor in enumerate(tensors)]
    state = instance.build_reference(seed, CPU).state_dict() if with_state else {}
    return InspectedCase(
        construction=how,
        init=[tensor.detach().cpu().clone() for tensor in init],
        state={name: tensor.detach().cpu().clone() for name, tensor in state.items()},
        inputs=inputs,
        places=[placement.plain() for placement, _ in laid],
        stored=[data for _, data in laid],
    )


def _laid(tensor: torch.Tensor, layout: str) -> tuple[Placement, torch.Tensor]:
    """A tensor's bytes in a layout, noise in the gaps, ending where it ends."""
    (placement,), _ = place([tensor], layout)
    data = torch.randint(0, 256, (placement.end_bytes,), dtype=torch.uint8)
    fill(placement, data, tensor)
    return placement, data


def _stores_by_map(subject: Subject) -> bool:
    """Whether its code, as PTX or as source, stores by tensor maps."""
    texts = subject.caches, subject.built, subject.candidate.source.encode()
    return any(_STORE_BY_MAP.search(text) for text in texts)


def findings_of(tool: str, outcome: Inspection, source: str, *, stores_by_map: bool = False) -> list[Finding]:
    """What one tool's log is worth: reasons to reject, notes, and that it could not look.

    Args:
        stores_by_map: initcheck does not see what is stored by tensor maps, and calls it never written. What
            matters of memory that nobody wrote, gate 1 has found: it fills memory with changing contents.
    """
    log = read_sanitizer_log(outcome.log)
    errors = [report for report in log.reports if report.kind == ERROR]
    own = [report for report in errors if _is_own(report.kernel, source)]
    library = [report for report in errors if report not in own]
    others = [report for report in log.reports if report.kind != ERROR]
    found = []
    if own:
        unseen = log.errors - len(errors)
        more = f", {unseen} more not shown" if unseen > 0 else ""
        text = f"{_told(own[0])}; {_counted(len(own), 'error')} in its own kernels{more}"
        is_doubtful = tool == "initcheck" and stores_by_map
        text += "; in doubt, since they store by tensor maps, which it does not see" if is_doubtful else ""
        found.append(Finding(tool, text, not is_doubtful, hint=_HINTS[tool]))
    elif why := _why_not(outcome, log):
        found.append(Finding("not_inspected", f"{tool}: {_clipped(why)}", False))
    if library:
        text = f"{_counted(len(library), 'error')} in library kernels, the first: {_told(library[0])}"
        found.append(Finding(tool, text, False))
    if others:
        text = f"{_counted(len(others), 'remark')}, the first: {_told(others[0])}"
        found.append(Finding(tool, text, False))
    return found


def _why_not(outcome: Inspection, log: SanitizerLog) -> str:
    """Why the tool's silence means nothing; empty if it means that nothing was found."""
    if outcome.status == 0 and log.complete and not log.troubles:
        return ""
    if outcome.status is None:
        return "stopped, its time was up"
    said = outcome.output.strip().splitlines()[-1:]
    if outcome.status and said:
        return f"the program under it failed: {said[0]}"
    reasons = [*log.troubles, *said, f"ended with {outcome.status} and without a summary"]
    return reasons[0]


def _is_own(kernel: str, source: str) -> bool:
    """By its name, as in the census; a name without a namespace that stands in the source is its own."""
    if kernel_kind(kernel) == "own":
        return True
    head = re.split(r"[<(]", kernel.replace("(anonymous namespace)::", ""), maxsplit=1)[0].split()
    return bool(head) and "::" not in head[-1] and bool(re.search(rf"\b{re.escape(head[-1])}\b", source))


def _told(report: SanitizerReport) -> str:
    where = f" in {_clipped(report.kernel, LONGEST_NAME)}" if report.kernel else ""
    line = f" ({report.location})" if report.location else ""
    return f"{_clipped(report.text)}{where}{line}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _clipped(text: str, longest: int = LONGEST_TEXT) -> str:
    words = " ".join(text.split())
    return words if len(words) <= longest else f"{words[:longest]}..."
