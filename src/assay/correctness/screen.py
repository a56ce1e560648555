"""A coarse look at every timed answer: how far it is from what the opponent gave on the same input.

The full comparison costs several runs of the specification. It is done on a random share of the timed calls,
chosen after the answer is in; this one is done on all of them, and its measure is how far the fully checked
answers of the same candidate were. An answer that skipped its work is far away by any measure.

Not covered: small errors on calls that were not drawn; the candidate does not know which are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

FACTOR = 16.0
FLOOR = 1e-6
ROUNDED_OTHERWISE, INTEGERS_OTHERWISE = 0.1, 1e-3
"""Of a unit in the last place, over all elements; and of all integers, which are rounded at near-ties."""
_CHUNK = 1 << 26
_SAFE = 1e-12, 1e12
"""Norms between these can be squared in single precision, with room for what is much smaller or larger."""


def distance(got: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> float:
    """The largest relative distance of an output from its counterpart; infinite where only one is finite."""
    return max((_apart(a, b) for a, b in zip(got, other, strict=True)), default=0.0)


def suspicious(apart: float, known: Sequence[float], floor: float = FLOOR) -> bool:
    """Whether an answer lies further away than fully checked ones explain."""
    return apart > FACTOR * max(known, default=0.0) + floor


def rounding(outputs: Sequence[torch.Tensor]) -> float:
    """How far two right answers may be from each other on one input and equal on the next: where a few
    elements fall between two numbers of their format. Less than a tenth of what that format itself costs."""
    coarsest = max((torch.finfo(t.dtype).eps for t in outputs if t.dtype.is_floating_point), default=0.0)
    integers = any(not (t.is_floating_point() or t.is_complex()) for t in outputs)
    return max(FLOOR, ROUNDED_OTHERWISE * coarsest, INTEGERS_OTHERWISE if integers else 0.0)


def _apart(got: torch.Tensor, other: torch.Tensor) -> float:
    if not (got.is_floating_point() or got.is_complex()):
        return float((got != other).double().mean()) if got.numel() else 0.0
    pairs = list(zip(got.reshape(-1).split(_CHUNK), other.reshape(-1).split(_CHUNK), strict=True))
    far, size = _norms(pairs, torch.float32)
    if not (_SAFE[0] < size < _SAFE[1] and far < _SAFE[1]):
        far, size = _norms(pairs, torch.float64)
    if not (math.isfinite(far) and math.isfinite(size)):
        far, size = _norms([_finite_where_equal(a, b) for a, b in pairs], torch.float64)
    if not math.isfinite(far):
        return math.inf
    return far / size if size else far


def _norms(pairs: list[tuple[torch.Tensor, torch.Tensor]], dtype: torch.dtype) -> tuple[float, float]:
    """Of the difference and of the second, chunk by chunk: tensors have gigabytes."""
    if not pairs:
        return 0.0, 0.0
    apart = [_norm(a - b, dtype) for a, b in pairs]
    scale = [_norm(b, dtype) for _, b in pairs]
    return float(torch.stack(apart).norm()), float(torch.stack(scale).norm())


def _norm(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """In `dtype`, or in the tensor's own where that is wider; as a double."""
    wide = torch.promote_types(tensor.dtype, dtype)
    return torch.linalg.vector_norm(tensor, dtype=wide).double()


def _finite_where_equal(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Equal infinities and NaN on both sides are no difference."""
    same = (a == b) | (a.isnan() & b.isnan())
    zero = torch.zeros_like(b)
    kept = torch.where(torch.isfinite(b), b, zero)
    return torch.where(same, kept, a), kept
