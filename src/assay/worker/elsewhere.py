"""A call on another stream than usual, whose inputs are still on their way.

Whoever launches on the default stream, or on one of its own, without waiting for the caller's reads noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from assay.problems.nests import map_tensors
from assay.problems.values import flatten

DELAY_CYCLES = 4_000_000
"""Some milliseconds: longer than any launch takes."""


@contextmanager
def elsewhere(inputs: list[Any], device: torch.device) -> Iterator[list[Any]]:
    """Inputs that hold noise until work queued on the current stream has written them."""
    late: list[Any] = map_tensors(inputs, _noise_like)
    torch.cuda.synchronize(device)
    with torch.cuda.stream(torch.cuda.Stream(device)):
        torch.cuda._sleep(DELAY_CYCLES)
        for there, here in zip(_tensors(late), _tensors(inputs), strict=True):
            there.copy_(here)
        yield late


def _noise_like(tensor: torch.Tensor) -> torch.Tensor:
    noise = torch.empty_like(tensor)
    return noise.normal_() if noise.is_floating_point() else noise.zero_()


def _tensors(value: list[Any]) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    flatten(value, found)
    return found
