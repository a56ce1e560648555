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
    difference = scale = torch.zeros((), dtype=torch.float64, device=got.device)
    for a, b in zip(got.reshape(-1).split(_CHUNK), other.reshape(-1).split(_CHUNK), strict=True):
        same = (a == b) | (a.isnan() & b.isnan())
        apart = torch.where(same, torch.zeros_like(a), a - b).abs()
        difference = difference + apart.double().square().sum()
        scale = scale + torch.nan_to_num(b, 0.0, 0.0, 0.0).abs().double().square().sum()
    far, size = float(difference), float(scale)
    if not math.isfinite(far):
        return math.inf
    return math.sqrt(far / size) if size else math.sqrt(far)
