"""An answer on its way out: copied into the mailbox, and described. Not covered: waiting for the copy."""

from __future__ import annotations

from typing import Any

import torch

from assay.problems.values import dtype_name
from assay.worker.placement import is_lazy, place_densely


def copy_out(leaves: list[torch.Tensor], mailbox: torch.Tensor) -> list[dict[str, Any]]:
    """Queue copies of an answer's tensors into flat bytes, right behind whatever made them."""
    forms = [(tuple(t.shape) if is_plain(t) else (0,), t.dtype) for t in leaves]
    placements, end = place_densely(forms)
    facts = []
    for leaf, placement in zip(leaves, placements, strict=True):
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
            }
        )
    return facts


def shared_with(leaf: torch.Tensor, inputs: torch.Tensor, held: list[list[torch.Tensor]]) -> str | None:
    """What an output shares its memory with, if it may not."""
    if not is_plain(leaf) or 0 in leaf.shape:
        return None
    address, start = torch.Tensor.data_ptr(leaf), _storage_address(leaf)
    if inputs.data_ptr() <= address < inputs.data_ptr() + inputs.numel():
        return "an input"
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
