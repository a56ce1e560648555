"""Honest errors by the size of the element, so that large elements lend no tolerance to small ones.

Masked scores of -1e9 stand beside scores of 8, a sum beside its terms: measured over a tile, the honest error
is that of the large ones, and the small ones could be anything. Here elements are sorted into classes, each
16 times smaller against their tile than the last, and each class has the largest honest error of its members
anywhere, as a share of their tiles. The largest, because what is left of large terms that cancel is rare
among small elements, and its error is that of the terms.

Not covered: elements of like size whose honest errors differ; the tiles hold those apart.
"""

from __future__ import annotations

import math

import torch

CLASSES = 8
CLASS_BITS = 4
FEW = 32
"""A class of which fewer errors are known is a poor sample, and borrows from the next larger one."""
LARGEST = 1 / 3
"""Of the largest honest error: what an element may differ by is a multiple of typical ones."""
SHARE = 0.5


class Magnitudes:
    """The honest error of each class of size, for one output.

    `classes` are those of elements by `class_of`, `sizes` the typical sizes of their tiles.
    """

    def __init__(self, unit: float, device: torch.device) -> None:
        self._classes = torch.arange(CLASSES, dtype=torch.int8, device=device)
        self._counts = torch.zeros(CLASSES, dtype=torch.float64, device=device)
        self._largest = torch.zeros_like(self._counts)
        steps = torch.arange(CLASSES, dtype=torch.float64, device=device)
        self._floor = SHARE * unit * torch.exp2(-CLASS_BITS * steps)

    def learn(self, classes: torch.Tensor, error: torch.Tensor, sizes: torch.Tensor) -> None:
        """Take in the errors of an honest variant on one run of elements."""
        share = torch.where(sizes > 0, error.abs() / sizes, 0.0).float()
        members = classes == self._classes[:, None]
        self._largest = torch.maximum(self._largest, torch.where(members, share, 0.0).amax(-1))
        self._counts += members.sum(-1)

    def allowance(self, classes: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
        """For each element, the honest error of its class; of a tile that is zero nothing is known."""
        by_class = (LARGEST * self._largest + self._floor).tolist()
        for k in range(1, CLASSES):
            if self._counts[k] < FEW:
                by_class[k] = max(by_class[k], by_class[k - 1])
        shares = torch.tensor(by_class, dtype=torch.float64, device=classes.device)
        return torch.where(sizes > 0, shares[classes.int()] * sizes, math.inf)


def class_of(size: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
    """0 for elements as large as their tile or larger; zeros are in the last."""
    below = (sizes.float().log2() - size.float().log2()) / CLASS_BITS
    return below.nan_to_num_(0.0).floor_().clamp_(0, CLASSES - 1).to(torch.int8)


def alike(smallest: torch.Tensor, largest: torch.Tensor) -> bool:
    """Whether the elements of every tile, of which these are the ends, are of one class."""
    return bool((smallest * 2**CLASS_BITS >= largest).all())
