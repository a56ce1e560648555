"""Where tensors lie in an arena: layouts with gaps and odd offsets, and the views over them.

A placement is plain numbers, so that judge and child make the same view from it. The bytes between the
elements of a strided layout belong to nobody; the judge fills them with noise and checks afterwards that
no candidate wrote there.

Not covered: tensors whose elements overlap each other other than by zero strides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from assay.problems.values import NotCarried, dtype_name, dtype_named

ALIGNMENT_BYTES = 512
"""As torch's own CUDA allocator: an honest kernel may count on it unless the layout says otherwise."""


@dataclass(frozen=True, slots=True)
class Placement:
    """One tensor's place in an arena."""

    offset_bytes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    def plain(self) -> dict[str, Any]:
        return {
            "offset_bytes": self.offset_bytes,
            "shape": list(self.shape),
            "strides": list(self.strides),
            "dtype": self.dtype,
        }

    @staticmethod
    def from_plain(plain: dict[str, Any]) -> Placement:
        return Placement(
            plain["offset_bytes"], tuple(plain["shape"]), tuple(plain["strides"]), plain["dtype"]
        )

    def view(self, arena_bytes: torch.Tensor) -> torch.Tensor:
        dtype = dtype_named(self.dtype)
        span_bytes = span(self.shape, self.strides) * dtype.itemsize
        run = arena_bytes[self.offset_bytes : self.offset_bytes + span_bytes]
        if run.numel() != span_bytes:
            raise NotCarried("a tensor outside its arena")
        return run.view(dtype).as_strided(self.shape, self.strides)


def span(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first to the last one addressed."""
    if any(n == 0 for n in shape):
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def dense_strides(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def laid_out(tensor: torch.Tensor, layout: str) -> tuple[tuple[int, ...], int]:
    """Strides and leading offset (in elements) of a tensor under a layout; "given" keeps its own strides."""
    shape = tuple(tensor.shape)
    dense = dense_strides(shape)
    if layout == "given":
        given = tuple(tensor.stride())
        return (given if all(s >= 0 for s in given) else dense), 0
    if layout == "offset":
        return dense, 3
    if layout == "strided" and shape:
        return tuple(2 * s for s in dense), 0
    if layout == "transposed" and len(shape) >= 2:
        swapped = dense_strides((*shape[:-2], shape[-1], shape[-2]))
        return (*swapped[:-2], swapped[-1], swapped[-2]), 0
    return dense, 0


def place(tensors: Sequence[torch.Tensor], layout: str, start_bytes: int = 0) -> tuple[list[Placement], int]:
    """Placements one behind the other, and the first free byte after them."""
    placements, cursor = [], start_bytes
    for tensor in tensors:
        strides, lead = laid_out(tensor, layout)
        item = tensor.dtype.itemsize
        offset = cursor + lead * item
        placements.append(Placement(offset, tuple(tensor.shape), strides, dtype_name(tensor.dtype)))
        end = offset + span(tensor.shape, strides) * item
        cursor = -(-(end + 1) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    return placements, cursor
