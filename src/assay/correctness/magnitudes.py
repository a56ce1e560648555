"""Honest errors by the size of the element, so that large elements lend no tolerance to small ones.

Masked scores of -1e9 stand beside scores of 8, a sum beside its terms: measured over a tile, the honest error
is that of the large ones, and the small ones could be anything. Here elements of one output are sorted into
classes of a factor of 16 below the largest, and each class has the honest error of its own members.

Not covered: elements of like size whose honest errors differ; the tiles hold those apart.
"""

from __future__ import annotations

import math

import torch

CLASSES = 8
CLASS_BITS = 4
FEW = 32
"""A class with fewer members is a poor sample, and borrows from the next larger one."""
SHARE = 0.5
_BLOCK_ELEMENTS = 1 << 24


def _range_of_sizes(oracle: torch.Tensor) -> tuple[float, float]:
    """Smallest and largest absolute value; what is not finite counts as zero."""
    if not oracle.numel():
        return 0.0, 0.0
    low, high = (float(end) for end in torch.aminmax(oracle))
    if math.isfinite(low) and math.isfinite(high) and low * high > 0:
        return min(abs(low), abs(high)), max(abs(low), abs(high))
    # In pieces: a copy of gigabytes would need as many again.
    ends = [
        torch.aminmax(torch.nan_to_num(piece, 0.0, 0.0, 0.0).abs_())
        for piece in oracle.split(_BLOCK_ELEMENTS)
    ]
    return float(min(low for low, _ in ends)), float(max(high for _, high in ends))


class Magnitudes:
    """Classes of size for one output, with the honest error of each."""

    def __init__(self, oracle: torch.Tensor, unit: float) -> None:
        bottom, self._top = _range_of_sizes(oracle)
        self.uniform = self._top == 0.0 or bottom * 2**CLASS_BITS >= self._top
        """All of about one size: there is nothing to keep apart."""
        self._counts = torch.zeros(CLASSES, dtype=torch.float64, device=oracle.device)
        self._rms = torch.zeros_like(self._counts)
        steps = torch.arange(CLASSES, dtype=torch.float64, device=oracle.device)
        self._floor = SHARE * unit * self._top * torch.exp2(-CLASS_BITS * steps)

    def squares(self, oracle: torch.Tensor, error: torch.Tensor) -> torch.Tensor:
        """Squared errors summed by class, and how many there are, for one run of elements."""
        place = self._place(oracle)
        sums = torch.bincount(place, weights=error.square(), minlength=CLASSES)
        return torch.stack([sums, torch.bincount(place, minlength=CLASSES).double()])

    def learn(self, squares: torch.Tensor) -> None:
        """Take in the squared errors of one honest variant."""
        sums, self._counts = squares
        self._rms = torch.maximum(self._rms, (sums / self._counts.clamp(min=1)).sqrt())

    def allowance(self, oracle: torch.Tensor) -> torch.Tensor:
        """For each element, the honest error of its class."""
        by_class = (self._rms + self._floor).tolist()
        for k in range(1, CLASSES):
            if self._counts[k] < FEW:
                by_class[k] = max(by_class[k], by_class[k - 1])
        return torch.tensor(by_class, dtype=torch.float64, device=oracle.device)[self._place(oracle)]

    def _place(self, oracle: torch.Tensor) -> torch.Tensor:
        below = (math.log2(self._top) - torch.nan_to_num(oracle, 0.0, 0.0, 0.0).abs().log2()) / CLASS_BITS
        return below.floor_().clamp_(0, CLASSES - 1).long()
