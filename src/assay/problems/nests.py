"""Walk the values a problem hands around: tensors, scalars, and lists, tuples and dicts of them.

Not covered: tensors inside other objects (dataclasses, modules). They pass through untouched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

# Narrower floats (float8, float4) are encodings that a problem made on purpose: they are never recast.
_WORKING_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def map_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same nest with every tensor replaced by `change(tensor)`."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: map_tensors(item, change) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(map_tensors(item, change) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(map_tensors(item, change) for item in value)
    return value


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor of the nest, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)


def is_working_float(tensor: torch.Tensor) -> bool:
    """Whether the tensor holds ordinary floating-point numbers, which a case may recast or redraw."""
    return tensor.dtype in _WORKING_FLOATS
