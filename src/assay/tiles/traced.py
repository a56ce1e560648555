"""Who answers a call that a compiler traces. Apart, since it takes torch's compiler, a second to import."""

from __future__ import annotations

import torch
from torch.compiler import assume_constant_result
from torch.fx.experimental.symbolic_shapes import has_static_value

from assay.tiles.choice import ask


def is_torchs(kernel: str, kind: str, device: torch.device, **sizes: int) -> bool:
    """Once, for sizes that the compiler takes as fixed, or never."""
    are_fixed = all(has_static_value(size) for size in sizes.values())
    return are_fixed and _settled(kernel, kind, device, **sizes)


@assume_constant_result
def _settled(kernel: str, kind: str, device: torch.device, **sizes: int) -> bool:
    return ask(kernel, kind, device, sizes)
