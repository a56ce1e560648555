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
_CHUNK = 1 << 26


def distance(got: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> float:
    """The largest relative distance of an output from its counterpart; infinite where only one is finite."""
    return max((_apart(a, b) for a, b in zip(got, other, strict=True)), default=0.0)


def suspicious(apart: float, known: Sequence[float]) -> bool:
    """Whether an answer lies further away than fully checked ones explain."""
    return apart > FACTOR * max(known, default=0.0) + FLOOR


def _apart(got: torch.Tensor, other: torch.Tensor) -> float:
    if not (got.is_floating_point() or got.is_complex()):
        return float((got != other).double().mean()) if got.numel() else 0.0
    pairs = list(zip(got.reshape(-1).split(_CHUNK), other.reshape(-1).split(_CHUNK), strict=True))
    far, size = _norms(pairs)
    if not (math.isfinite(far) and math.isfinite(size)):
        far, size = _norms([_finite_where_equal(a, b) for a, b in pairs])
    if not math.isfinite(far):
        return math.inf
    return far / size if size else far


def _norms(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[float, float]:
    """Of the difference and of the second, chunk by chunk: tensors have gigabytes."""
    apart = [torch.linalg.vector_norm(a - b, dtype=torch.float64) for a, b in pairs]
    scale = [torch.linalg.vector_norm(b, dtype=torch.float64) for _, b in pairs]
    if not pairs:
        return 0.0, 0.0
    return float(torch.stack(apart).norm()), float(torch.stack(scale).norm())


def _finite_where_equal(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Equal infinities and NaN on both sides are no difference."""
    same = (a == b) | (a.isnan() & b.isnan())
    zero = torch.zeros_like(b)
    kept = torch.where(torch.isfinite(b), b, zero)
    return torch.where(same, kept, a), kept
