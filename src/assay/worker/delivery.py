"""An answer on its way out: copied into the mailbox, and described. Not covered: waiting for the copy."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import torch

from assay.problems.layouts import dense_strides, same_order
from assay.problems.values import dtype_name
from assay.worker.messages import AN_INPUT
from assay.worker.placement import Form, is_lazy, place_densely


def copy_out(
    leaves: list[torch.Tensor], mailbox: torch.Tensor, specified: Sequence[Sequence[int]] = ()
) -> list[dict[str, Any]]:
    """Queue copies of an answer's tensors into flat bytes, right behind whatever made them.

    Args:
        specified: the specification's own strides of each. Who lays its answer out in the same way is copied
            as it lies, everybody else in row-major order.
    """
    forms = [_form(t, strides) for t, strides in zip_longest(leaves, specified[: len(leaves)])]
    placements, end = place_densely([form for form, _ in forms])
    facts = []
    for leaf, placement, (_, as_specified) in zip(leaves, placements, forms, strict=True):
        plain = is_plain(leaf)
        if plain and end <= mailbox.numel():
            with torch.no_grad():
                placement.view(mailbox).copy_(torch.Tensor.detach(leaf))
        facts.append(
            {
                "type": type(leaf).__name__ if plain else f"{type(leaf).__module__}.{type(leaf).__name__}",
                "plain": plain,
                "device": leaf.device.type,
                "shape": list(leaf.shape),
                "dtype": dtype_name(leaf.dtype),
                "delivered": plain and end <= mailbox.numel(),
                "lazy": plain and is_lazy(leaf),
                "as_specified": as_specified,
            }
        )
    return facts


def _form(leaf: torch.Tensor, specified: Sequence[int] | None) -> tuple[Form, bool]:
    """How a tensor is to lie in the mailbox, and whether that is as specified."""
    if not is_plain(leaf):
        return Form((0,), leaf.dtype, (1,)), False
    shape = tuple(leaf.shape)
    # Unbound: an instance may carry methods of its own under these names.
    strides = torch.Tensor.stride(leaf)
    if specified is not None and len(specified) == len(shape) and same_order(shape, strides, specified):
        return Form(shape, leaf.dtype, tuple(specified)), True
    return Form(shape, leaf.dtype, dense_strides(shape)), False


def shared_with(leaf: torch.Tensor, inputs: torch.Tensor, held: list[list[torch.Tensor]]) -> str | None:
    """What an output shares its memory with, if it may not."""
    if not is_plain(leaf) or 0 in leaf.shape:
        return None
    address, start = torch.Tensor.data_ptr(leaf), _storage_address(leaf)
    if inputs.data_ptr() <= address < inputs.data_ptr() + inputs.numel():
        return AN_INPUT
    for kept in held:
        for other in kept:
            if is_plain(other) and 0 not in other.shape and _storage_address(other) == start:
                return "an earlier output"
    return None


def _storage_address(tensor: torch.Tensor) -> int:
    # Unbound: an instance may carry methods of its own under these names.
    return torch.Tensor.untyped_storage(tensor).data_ptr()


def is_plain(tensor: torch.Tensor) -> bool:
    """A dense tensor of torch's own type: anything else could compute when it is looked at."""
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout == torch.strided
