"""Mutants: implementations that are wrong on purpose and must fail, or the case proves nothing.

`mutate` makes wrong outputs from right ones; `lower_dtype` and `Linearised` make a wrong function from the
reference. Not covered: mutants of integer-only problems beyond the output-level ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from assay.records.errors import JudgeFault

REQUIRED = ("zeros", "constant", "scaled", "other_input", "dropped_tail")
"""A case on which one of these passes cannot tell right from wrong."""
PRECISION = ("downgraded", "linearised")
"""These must fail on at least one case of the problem; where they never do, the verdict says so."""

_LOWER = {
    torch.float64: torch.float32,
    torch.float32: torch.bfloat16,
    torch.float16: torch.float8_e4m3fn,
    torch.bfloat16: torch.float8_e4m3fn,
}


def lower_dtype(tensor: torch.Tensor) -> torch.Tensor:
    """Rounded to the next lower precision and back; other dtypes unchanged."""
    lower = _LOWER.get(tensor.dtype)
    if lower is None:
        return tensor
    if lower == torch.float8_e4m3fn:
        limit = torch.finfo(lower).max
        return tensor.clamp(-limit, limit).to(lower).to(tensor.dtype)
    return tensor.to(lower).to(tensor.dtype)


def mutate(name: str, right: list[torch.Tensor], other: list[torch.Tensor]) -> list[torch.Tensor] | None:
    """Wrong outputs of one kind; None where they would equal the right ones by construction."""
    match name:
        case "zeros":
            return [torch.zeros_like(t) for t in right]
        case "constant":
            # One number is its own mean; that it does not depend on the input shows in "other_input".
            return [_constant(t) for t in right] if any(t.numel() > 1 for t in right) else None
        case "scaled":
            return _unless_integer(right, _scaled)
        case "other_input":
            return other
        case "dropped_tail":
            return _dropped(right, other)
    raise JudgeFault(f"no mutant is called {name!r}")


def scale_of(dtype: torch.dtype) -> float:
    """1.01, or more where that is one rounding unit: bfloat16 has 8 bits."""
    return 1.0 + max(0.01, 8 * torch.finfo(dtype).eps)


def _constant(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.numel() == 0:
        return tensor
    if not tensor.is_floating_point():
        return torch.full_like(tensor, tensor.flatten()[0].item())
    return torch.full_like(tensor, float(tensor.double().nanmean()))


def _scaled(tensor: torch.Tensor) -> torch.Tensor:
    wide = tensor if tensor.dtype in (torch.float32, torch.float64) else tensor.float()
    return (wide * scale_of(tensor.dtype)).to(tensor.dtype)


def _unless_integer(
    right: list[torch.Tensor], change: Callable[[torch.Tensor], torch.Tensor]
) -> list[torch.Tensor] | None:
    if not any(t.is_floating_point() for t in right):
        return None
    return [change(t) if t.is_floating_point() else t for t in right]


def _dropped(right: list[torch.Tensor], other: list[torch.Tensor]) -> list[torch.Tensor] | None:
    """The last elements stale: taken from another call's output."""
    stale, changed = [], False
    for tensor, old in zip(right, other, strict=True):
        flat = tensor.flatten().clone()
        count = max(1, min(64, flat.numel() // 8)) if flat.numel() > 1 else 0
        if count and old.shape == tensor.shape:
            tail = old.flatten()[-count:]
            changed |= not torch.equal(tail, flat[-count:])
            flat[-count:] = tail
        stale.append(flat.reshape(tensor.shape))
    return stale if changed else None


class Linearised(TorchFunctionMode):
    """Replace smooth activations by clamped lines, as a loose check would let pass."""

    def __init__(self) -> None:
        super().__init__()
        self.hits = 0
        functional = torch.nn.functional
        sigmoid, tanh, silu = (
            lambda x: torch.clamp(0.21 * x + 0.5, 0, 1),
            lambda x: torch.clamp(x, -1, 1),
            lambda x: x * torch.clamp(0.21 * x + 0.5, 0, 1),
        )
        self._lines: dict[Any, Any] = {
            torch.sigmoid: sigmoid,
            torch.Tensor.sigmoid: sigmoid,
            functional.sigmoid: sigmoid,
            torch.tanh: tanh,
            torch.Tensor.tanh: tanh,
            functional.tanh: tanh,
            functional.silu: silu,
            functional.gelu: silu,
            functional.mish: silu,
            functional.softplus: torch.relu,
            functional.elu: functional.leaky_relu,
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        line = self._lines.get(func)
        if line is None:
            return func(*args, **(kwargs or {}))
        self.hits += 1
        return line(args[0])
