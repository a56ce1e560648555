"""Lay the same values out differently in memory: strided, offset, transposed.

Problems use it to see whether the reference itself accepts a layout; workers may lay inputs out with it.
Not covered: overlapping or negative strides, and storage shared between inputs.
"""

from __future__ import annotations

import torch

from assay.problems.problem import LAYOUTS
from assay.records.errors import UserError


def lay_out(tensor: torch.Tensor, layout: str) -> torch.Tensor:
    """A tensor equal to `tensor` in the named layout; a layout that needs more dimensions changes nothing."""
    if layout not in LAYOUTS:
        raise UserError(f"unknown layout '{layout}': use one of {', '.join(LAYOUTS)}")
    if layout == "strided" and tensor.dim() >= 1:
        return _strided(tensor)
    if layout == "offset" and tensor.dim() >= 1:
        storage = torch.empty(tensor.numel() + 1, dtype=tensor.dtype, device=tensor.device)
        # One element in: the pointer loses the alignment that vector loads need.
        return storage[1:].view(tensor.shape).copy_(tensor)
    if layout == "transposed" and tensor.dim() >= 2:
        return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)
    return tensor


def _strided(tensor: torch.Tensor) -> torch.Tensor:
    """Every other element of a wider buffer; the odd padding keeps rows from merging into one long row."""
    width = tensor.shape[-1]
    buffer = torch.zeros((*tensor.shape[:-1], 2 * width + 3), dtype=tensor.dtype, device=tensor.device)
    if buffer.is_floating_point() and buffer.element_size() > 1:
        # The gaps are NaN so that a kernel which ignores strides cannot come out nearly right.
        buffer.fill_(float("nan"))
    return buffer[..., : 2 * width : 2].copy_(tensor)
