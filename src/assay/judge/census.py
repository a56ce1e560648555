"""What a candidate ran, sorted into its own code and library code, and whether its kernels mattered.

Names decide: vendor kernels cannot be renamed by whoever calls them.

Not covered: a library's code copied into the candidate, and what the child's process hides from itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from assay.candidates import Candidate
from assay.judge.cases import CaseRunner
from assay.judge.prepare import PreparedCase
from assay.records import CandidateFailure, Census, Finding, Rules, Share
from assay.worker import Child
from assay.worker.messages import Counted, decode_counts

MOST_NAMED = 5
MUTABLE = ("triton", "gluon")
CENSUS_TIMEOUT_S = 60.0
NEVER_LAUNCHED = "never launched"
_LIBRARY_KERNEL = re.compile(
    r"at::|at_cuda|at_native|cublas|cublasLt|cutlass|cudnn|cufft|cusparse|cusolver|curand|nccl|nvjet|xmma|"
    r"thrust::|cub::|flash_fwd|flash_bwd|fmha|splitKreduce|gemm[vk]?_|gemv|dot_kernel|reduce_1Block|"
    r"(ampere|hopper|volta|turing|sm\d\d)_|"
    r"triton_(poi|red|per|tem|for)_fused"
)
_MOVES = re.compile(r"^(Memcpy|Memset)|elementwise_kernel.*(FillFunctor|copy_kernel)")
_HOUSEKEEPING = frozenset({
    "alias", "as_strided", "as_strided_", "broadcast_to", "cat", "chunk", "clone", "constant_pad_nd",
    "contiguous", "copy", "copy_", "detach", "detach_", "empty", "empty_like", "empty_strided",
    "expand", "fill", "fill_", "flatten", "full", "full_like", "item", "lift_fresh", "movedim",
    "narrow", "new_empty", "new_empty_strided", "new_full", "new_zeros", "ones", "ones_like", "permute",
    "pin_memory", "record_stream", "repeat", "reshape", "resize_", "select", "set_", "slice", "split",
    "split_with_sizes", "squeeze", "stack", "swapaxes", "t", "to", "_to_copy", "transpose", "unbind",
    "unflatten", "unfold", "unsafe_split", "unsqueeze", "view", "_reshape_alias", "_unsafe_view",
    "_local_scalar_dense", "zero_", "zeros", "zeros_like",
})  # fmt: skip


def take_census(
    child: Child,
    runner: CaseRunner,
    nominal: PreparedCase,
    small: PreparedCase,
    candidate: Candidate,
    *,
    may_choose: bool,
) -> Census:
    """Count what a call at the scored size runs, then leave the candidate's kernels out on a small one.

    The last thing a child is asked: nothing works as it should afterwards.

    Args:
        may_choose: it may have kernels for the scored size alone, and is looked at there if so.
    """
    _, _, head = runner.set_out(nominal)
    shares: tuple[Share, ...] = ()
    own_share, absent = None, ""
    try:
        shares, own_share = _count(child, head)
    except CandidateFailure as failure:
        absent = failure.message
    if not child.alive:
        return Census(shares, own_share, "not tried: it ended while it was counted", absent)
    replay = _replay(child, runner, small, candidate)
    if replay == NEVER_LAUNCHED and own_share and may_choose and child.alive:
        replay = _replay(child, runner, nominal, candidate)
    return Census(shares, own_share, replay, absent)


def _count(child: Child, head: dict[str, Any]) -> tuple[tuple[Share, ...], float | None]:
    told = child.ask("census", head, timeout_s=CENSUS_TIMEOUT_S).head
    operators = decode_counts(told.get("operators"))
    if "kernels" not in told:
        total_us = told.get("total_us")
        return sort_operators(operators, total_us if isinstance(total_us, float) else 0.0)
    kernels, own_share = sort_kernels(decode_counts(told["kernels"]))
    # On a device the host's time in an operator says nothing, that it was called does.
    named = [replace(share, time_us=0.0) for share in sort_operators(operators, 0.0)[0]]
    return (*kernels, *named), own_share


def _replay(child: Child, runner: CaseRunner, case: PreparedCase, candidate: Candidate) -> str:
    """The answer without the candidate's own kernels."""
    if candidate.entry != "launch" and candidate.language not in MUTABLE:
        return "not tried: it has no kernels that can be left out"
    try:
        run, inputs, head = runner.set_out(case)
        child.ask("mute", timeout_s=CENSUS_TIMEOUT_S)
        right = runner.is_right(run, inputs, head)
        left_out = child.ask("facts", timeout_s=CENSUS_TIMEOUT_S).head.get("left_out")
    except CandidateFailure:
        return "failed"
    if left_out == 0:
        return NEVER_LAUNCHED
    return "right" if right else "wrong"


def sort_operators(counted: Sequence[Counted], total_us: float) -> tuple[tuple[Share, ...], float | None]:
    """Torch's operators on a CPU, the candidate's own code being what is left of the time."""
    shares = [Share(c.name, c.calls, c.time_us, _operator_kind(c.name)) for c in counted]
    library_us = sum(s.time_us for s in shares if s.kind != "own")
    own = max(0.0, 1.0 - library_us / total_us) if total_us > 0 else None
    return tuple(shares), own


def sort_kernels(counted: Sequence[Counted]) -> tuple[tuple[Share, ...], float | None]:
    """Device kernels by name."""
    shares = [Share(c.name, c.calls, c.time_us, kernel_kind(c.name)) for c in counted]
    total_us = sum(share.time_us for share in shares)
    own_us = sum(share.time_us for share in shares if share.kind == "own")
    return tuple(shares), own_us / total_us if total_us > 0 else None


def _operator_kind(name: str) -> str:
    space, _, rest = name.partition("::")
    base = rest.partition(".")[0]
    if space not in ("aten", "prims", "quantized", "mkldnn", "mkl", "onednn", "torchvision"):
        return "own"  # an operator the candidate registered; what it calls in turn is counted by itself
    return "housekeeping" if base in _HOUSEKEEPING else "library"


def kernel_kind(name: str) -> str:
    """Whose kernel it is: "own", "library" or "housekeeping"."""
    if _MOVES.search(name):
        return "housekeeping"
    return "library" if _LIBRARY_KERNEL.search(name) else "own"


def findings_of(census: Census, rules: Rules) -> list[Finding]:
    """What the rules make of it: notes where library calls are allowed, reasons to reject where not."""
    forbidden = not rules.library_calls
    found = []
    if census.absent and forbidden:
        text = f"library calls are forbidden here, and what it runs cannot be counted: {census.absent}"
        found.append(Finding("census_failed", text, True))
    library = [share.name for share in census.shares if share.kind == "library"]
    if library and forbidden:
        more = f" and {len(library) - MOST_NAMED} more" if len(library) > MOST_NAMED else ""
        text = (
            f"library code does work here, which the problem forbids: {', '.join(library[:MOST_NAMED])}{more}"
        )
        found.append(Finding("library_calls", text, True))
    if census.replay in ("right", NEVER_LAUNCHED):
        how = "were never launched" if census.replay == NEVER_LAUNCHED else "can be left out"
        text = f"its own kernels do not matter: they {how}, and its answer is right"
        found.append(Finding("kernel_does_not_matter", text, forbidden))
    return found
