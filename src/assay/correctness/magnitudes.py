"""Honest errors by the size of the element, so that large elements lend no tolerance to small ones.

Masked scores of -1e9 stand beside scores of 8, a sum beside its terms: measured over a tile, the honest error
is that of the large ones, and the small ones could be anything. Here elements are sorted into classes, each
16 times smaller against their tile than the last, and each class has the largest honest error of its members
anywhere, as a share of the member itself; zeros have a class of their own, as a share of their tile. The
largest, because what is left of large terms that cancel is rare among small elements, and its error is that
of the terms.

Not covered: elements of like size whose honest errors differ; the tiles hold those apart.
"""

from __future__ import annotations

import math

import torch

CLASSES = 40
"""Down to 2^-156 of a tile: float32 holds nothing smaller beside its largest numbers that would matter."""
CLASS_BITS = 4
ZEROS = CLASSES - 1
FEW = 32
"""A class of which fewer errors are known is a poor sample, and borrows from the next larger one, if that has
members: then it may be the end of the same crowd, whose errors do not shrink with its elements."""
LARGEST = 1 / 3
"""Of the largest honest error: what an element may differ by is a multiple of typical ones."""


class Magnitudes:
    """The honest error of each class of size, for one output.

    Of a run of elements, `classes` are given by `class_of`, `own` are their sizes, `tiles` those of their
    tiles.
    """

    def __init__(self, device: torch.device) -> None:
        self._counts = torch.zeros(CLASSES, dtype=torch.float64, device=device)
        self._largest = torch.zeros_like(self._counts)

    def learn(
        self, classes: torch.Tensor, error: torch.Tensor, own: torch.Tensor, tiles: torch.Tensor
    ) -> None:
        """Take in the errors of an honest variant on one run of elements."""
        whole = _whole(own, tiles)
        share = torch.where(whole > 0, error.abs() / whole, 0.0)
        counts = torch.histc(classes.float(), bins=CLASSES, min=0, max=CLASSES)
        for k in torch.nonzero(counts).flatten().tolist():
            largest = torch.where(classes == k, share, 0.0).amax()
            self._largest[k] = torch.maximum(self._largest[k], largest)
        self._counts += counts

    def allowance(self, classes: torch.Tensor, own: torch.Tensor, tiles: torch.Tensor) -> torch.Tensor:
        """For each element, the honest error of its class; of a tile that is zero nothing is known."""
        by_class = (LARGEST * self._largest).tolist()
        counts = self._counts.tolist()
        for k in range(1, ZEROS):
            if counts[k] < FEW and counts[k - 1]:
                by_class[k] = max(by_class[k], by_class[k - 1] * 2**CLASS_BITS)
        shares = torch.tensor(by_class, dtype=torch.float64, device=classes.device)
        return torch.where(tiles > 0, shares[classes.int()] * _whole(own, tiles), math.inf)


def _whole(own: torch.Tensor, tiles: torch.Tensor) -> torch.Tensor:
    """What errors are a share of."""
    return torch.where(own > 0, own, tiles)


def class_of(own: torch.Tensor, tiles: torch.Tensor) -> torch.Tensor:
    """0 for elements as large as their tile or larger."""
    below = ((tiles.log2() - own.log2()) / CLASS_BITS).nan_to_num_(0.0).floor_().clamp_(0, ZEROS - 1)
    return torch.where(own > 0, below, ZEROS).to(torch.int8)


def alike(smallest: torch.Tensor, largest: torch.Tensor) -> bool:
    """Whether the elements of every tile, of which these are the ends, are of one class."""
    return bool((smallest * 2**CLASS_BITS >= largest).all())
