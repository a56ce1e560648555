"""What the catalog knows of a kernel, and what all public functions share: when to launch, what to refuse."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import triton

Sizes = Mapping[str, Any]
INTERPRETED = bool(triton.knobs.runtime.interpret)
"""Asked once: kernels are made for the one or the other when they are imported, and compilers cannot ask."""
MOST_ELEMENTS = 2**31 - 1
"""Offsets inside kernels are 32 bits wide."""


class Unsupported(ValueError):
    """Arguments that a kernel does not take; says which it does."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What a call cannot do without."""

    size_bytes: int
    flops: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of the catalog."""

    name: str
    formula: str
    run: Callable[..., Any]
    """What a user calls: takes anything that the reference takes, and is right or refuses."""
    reference: Callable[..., Any]
    """The same in plain torch, float32 inside."""
    inputs: Callable[..., tuple[Any, ...]]
    """Arguments for `run`, from sizes and a device."""
    cases: tuple[Sizes, ...]
    """Small sizes, ragged ones among them: for tests."""
    sizes: tuple[Sizes, ...]
    """Those that the table is about."""
    cost: Callable[..., Cost]
    """From sizes."""


def launches(*tensors: torch.Tensor) -> bool:
    """Whether a Triton kernel can run on these: on a GPU, or interpreted; else the reference answers."""
    need_one_device(*tensors)
    return tensors[0].is_cuda or INTERPRETED


def need_alike(*tensors: torch.Tensor, of: tuple[torch.dtype, ...]) -> None:
    """Of one of these types, on one device, and not too many elements."""
    dtype, device = tensors[0].dtype, tensors[0].device
    is_fine = dtype in of
    for tensor in tensors:
        if tensor.dtype != dtype or tensor.device != device or tensor.numel() > MOST_ELEMENTS:
            is_fine = False
    if not is_fine:
        need_dtype(*tensors, of=of)
        need_one_device(*tensors)
        need_few(*tensors)


def needs_gradients(*tensors: torch.Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def need_one_device(*tensors: torch.Tensor) -> None:
    device = tensors[0].device
    for tensor in tensors:
        if tensor.device != device:
            raise Unsupported(f"tensors on different devices: {', '.join(str(t.device) for t in tensors)}")


def need_dtype(*tensors: torch.Tensor, of: tuple[torch.dtype, ...]) -> None:
    """All of one type, and that one of these."""
    first = tensors[0].dtype
    if first not in of:
        names = ", ".join(str(dtype).removeprefix("torch.") for dtype in of)
        raise Unsupported(f"{first} is not supported: use {names}")
    for tensor in tensors:
        if tensor.dtype != first:
            raise Unsupported(f"types differ: {first} and {tensor.dtype}")


def need_switch(is_causal: Any) -> None:
    """Not a scale in its place, which would be taken for true."""
    if not isinstance(is_causal, int | torch.SymBool):
        raise Unsupported(f"is_causal is {is_causal}: use True or False")


def need_scale(scale: float | None, d: int) -> float:
    """Of scores, for heads of d. Kernels mask before they scale, and keep the largest score."""
    if scale is None:
        if not d:
            raise Unsupported("heads of no columns have no scale: give them some")
        return d**-0.5
    if not 0 < scale < math.inf:
        raise Unsupported(f"a scale of {scale}: use a number above 0")
    return scale


def need_few(*tensors: torch.Tensor) -> None:
    for tensor in tensors:
        if tensor.numel() > MOST_ELEMENTS:
            raise Unsupported(f"{tensor.numel()} elements are more than 2^31 - 1: split the tensor")
