"""Nested Python values across the process edge: trees with tensors replaced by numbers.

Carried: None, bool, int, float, complex, str, list, tuple, dict, torch.dtype, torch.device and tensors.
Anything else is refused by name. No pickle, so a value can never run code on arrival.
"""

from __future__ import annotations

import math
import re
from typing import Any

import torch

MAX_DEPTH = 32


class NotCarried(Exception):
    """A value of a type that does not cross the edge."""


def flatten(value: Any, tensors: list[torch.Tensor], depth: int = 0) -> Any:
    """A JSON tree of the value; its tensors are appended to `tensors` in order."""
    if depth > MAX_DEPTH:
        raise NotCarried("nested too deeply")
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, complex):
        return {"complex": [repr(value.real), repr(value.imag)]}
    if isinstance(value, (torch.dtype, torch.device)):
        return {"dtype" if isinstance(value, torch.dtype) else "device": str(value).removeprefix("torch.")}
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [flatten(v, tensors, depth + 1) for v in value]}
    if isinstance(value, dict):
        pairs = [[flatten(k, tensors, depth + 1), flatten(v, tensors, depth + 1)] for k, v in value.items()]
        return {"dict": pairs}
    raise NotCarried(f"a value of type {type(value).__name__}")


def unflatten(tree: Any, tensors: list[torch.Tensor], depth: int = 0) -> Any:
    """The value again; raises NotCarried on anything malformed (the tree may come from a hostile child)."""
    if depth > MAX_DEPTH:
        raise NotCarried("nested too deeply")
    if isinstance(tree, int) and not -(1 << 63) <= tree < 1 << 63:
        raise NotCarried("an integer of more than 64 bits")
    if tree is None or isinstance(tree, (bool, str, int, float)):
        return tree
    if not isinstance(tree, dict) or len(tree) != 1:
        raise NotCarried("a malformed value")
    ((kind, body),) = tree.items()
    if kind in ("list", "tuple") and isinstance(body, list):
        items = [unflatten(v, tensors, depth + 1) for v in body]
        return items if kind == "list" else tuple(items)
    if kind == "dict" and isinstance(body, list):
        pairs = [
            (unflatten(k, tensors, depth + 1), unflatten(v, tensors, depth + 1)) for k, v in _pairs(body)
        ]
        return _as_dict(pairs)
    return _leaf(kind, body, tensors)


def canonical(value: Any) -> Any:
    """The same nest with dicts in order of their keys: equal answers are then carried alike."""
    if type(value) is dict:
        ordered = sorted(value, key=lambda key: (type(key).__name__, str(key)))
        return {key: canonical(value[key]) for key in ordered}
    if type(value) in (list, tuple):
        return type(value)(canonical(item) for item in value)
    return value


def skeleton(tree: Any) -> Any:
    """The structure alone: tensors and scalars by kind, lists and tuples alike."""
    if not isinstance(tree, dict):
        return type(tree).__name__
    ((kind, body),) = tree.items()
    if kind in ("list", "tuple"):
        return [skeleton(item) for item in body]
    if kind == "dict":
        return {"dict": [[key, skeleton(value)] for key, value in body]}
    return kind


def tensor_order(tree: Any) -> list[int]:
    """The numbers of a tree's tensors in the order they stand in it."""
    if not isinstance(tree, dict):
        return [n for item in tree for n in tensor_order(item)] if isinstance(tree, list) else []
    if "tensor" in tree:
        return [tree["tensor"]]
    return [n for body in tree.values() for n in tensor_order(body)]


def _pairs(body: list[Any]) -> list[tuple[Any, Any]]:
    if not all(isinstance(pair, list) and len(pair) == 2 for pair in body):
        raise NotCarried("a malformed dict")
    return [(k, v) for k, v in body]


def _as_dict(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    try:
        return dict(pairs)
    except TypeError as error:
        raise NotCarried("an unhashable key") from error


def _leaf(kind: str, body: Any, tensors: list[torch.Tensor]) -> Any:
    if kind == "tensor" and isinstance(body, int) and 0 <= body < len(tensors):
        return tensors[body]
    if kind == "float" and body in ("nan", "inf", "-inf"):
        return float(body)
    if kind == "complex" and isinstance(body, list) and len(body) == 2:
        return complex(_number(body[0]), _number(body[1]))
    if kind == "dtype":
        return dtype_named(body)
    if kind == "device" and isinstance(body, str) and re.fullmatch(r"(cpu|cuda|meta)(:\d{1,3})?", body):
        return torch.device(body)
    raise NotCarried("a malformed value")


def _number(text: Any) -> float:
    try:
        return float(text)
    except (TypeError, ValueError, OverflowError) as error:
        raise NotCarried("a malformed number") from error


def dtype_named(name: Any) -> torch.dtype:
    dtype = getattr(torch, name, None) if isinstance(name, str) else None
    if not isinstance(dtype, torch.dtype):
        raise NotCarried(f"no dtype {name!r}")
    return dtype


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
