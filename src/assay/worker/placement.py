"""Where tensors lie in an arena: layouts with gaps and odd offsets, and the views over them.

A placement is plain numbers, so that judge and child make the same view from it. The bytes between the
elements of a strided layout belong to nobody; the judge fills them with noise and checks afterwards that
no candidate wrote there.

Not covered: tensors whose elements overlap each other other than by zero strides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from assay.problems.layouts import arrange, nth_layout, span
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

    @property
    def end_bytes(self) -> int:
        """The first byte behind it."""
        return self.offset_bytes + span(self.shape, self.strides) * dtype_named(self.dtype).itemsize

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
        run = arena_bytes[self.offset_bytes : self.end_bytes]
        if run.numel() != self.end_bytes - self.offset_bytes:
            raise NotCarried("a tensor outside its arena")
        return run.view(dtype_named(self.dtype)).as_strided(self.shape, self.strides)


def place(
    tensors: Sequence[torch.Tensor], layout: str, start_bytes: int = 0, calls: int = 1
) -> tuple[list[Placement], int]:
    """Placements one behind the other, and the first free byte after them.

    Args:
        calls: of how many calls these are the inputs, one call's behind the other's.
    """
    placements, cursor = [], start_bytes
    each = max(1, len(tensors) // calls)
    for k, tensor in enumerate(tensors):
        strides, lead = arrange(tensor, nth_layout(layout, k % each))
        item = tensor.dtype.itemsize
        offset = cursor + lead * item
        placements.append(Placement(offset, tuple(tensor.shape), strides, dtype_name(tensor.dtype)))
        end = offset + span(tensor.shape, strides) * item
        cursor = -(-(end + 1) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    return placements, cursor


class Form(NamedTuple):
    """A tensor without its values."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    strides: tuple[int, ...]


def place_densely(forms: Sequence[Form]) -> tuple[list[Placement], int]:
    """Places for tensors of these forms, as answers lie in the mailbox."""
    tensors = [torch.empty_strided(f.shape, f.strides, dtype=f.dtype, device="meta") for f in forms]
    return place(tensors, "given")


def is_lazy(tensor: torch.Tensor) -> bool:
    """Whether copying the tensor does work that whoever made it left undone."""
    # Unbound: an instance may carry methods of its own under these names.
    if 0 in tensor.shape:
        return False
    lengths = zip(tensor.shape, torch.Tensor.stride(tensor), strict=True)
    return any(n > 1 and s == 0 for n, s in lengths) or torch.is_conj(tensor) or torch.is_neg(tensor)
