"""Dataclasses to JSON and back, strictly.

Unknown keys, missing keys and wrong types are errors that name the path. NaN and the infinities travel as
strings, because JSON has no word for them. Not covered: cycles, and anything that is not a dataclass, a
container of the standard library or a JSON scalar.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from assay.records.errors import UserError

T = TypeVar("T")
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def to_plain(value: Any) -> Any:
    """A JSON-ready copy of a record; a dataclass with a `status` class variable carries it along."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        plain = {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        status = getattr(type(value), "status", None)
        return {"status": status, **plain} if isinstance(status, str) else plain
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, Mapping):
        return {str(k): to_plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(v) for v in value]
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    raise TypeError(f"{type(value).__name__} does not belong in a record")


def to_json(value: Any, *, indent: int | None = None) -> str:
    return json.dumps(to_plain(value), indent=indent, allow_nan=False, ensure_ascii=False)


def digest(*parts: str | bytes) -> str:
    """sha256 over length-prefixed parts, so that no two different lists of parts collide."""
    h = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        h.update(len(data).to_bytes(8, "big"))
        h.update(data)
    return h.hexdigest()


@functools.cache
def _hints_of(cls: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def from_plain(cls: type[T], plain: Any, path: str = "record") -> T:
    """Decode one dataclass; raises UserError that names the offending path."""
    if not isinstance(plain, Mapping):
        raise UserError(f"{path}: expected an object, got {type(plain).__name__}")
    hints = _hints_of(cls)
    known = {f.name: f for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    status = getattr(cls, "status", None)
    given = dict(plain)
    if isinstance(status, str) and given.pop("status", None) != status:
        raise UserError(f"{path}: status is not {status!r}")
    if unknown := sorted(set(given) - set(known)):
        raise UserError(f"{path}: unknown field {unknown[0]!r}")
    values = {}
    for name, spec in known.items():
        if name in given:
            values[name] = _decode(hints[name], given[name], f"{path}.{name}")
        elif spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING:
            raise UserError(f"{path}: missing field {name!r}")
    return cls(**values)


def _decode(hint: Any, plain: Any, path: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return plain
    if origin in (typing.Union, types.UnionType):
        return _decode_union(args, plain, path)
    if origin is typing.Literal:
        if plain not in args:
            raise UserError(f"{path}: {plain!r} is not one of {', '.join(map(repr, args))}")
        return plain
    if origin is tuple:
        return tuple(_decode_items(args[0], plain, path))
    if origin is list:
        return _decode_items(args[0], plain, path)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        if not isinstance(plain, Mapping):
            raise UserError(f"{path}: expected an object")
        return {k: _decode(args[1], v, f"{path}.{k}") for k, v in plain.items()}
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        return from_plain(hint, plain, path)
    return _decode_scalar(hint, plain, path)


def _decode_items(hint: Any, plain: Any, path: str) -> list[Any]:
    if not isinstance(plain, Sequence) or isinstance(plain, str):
        raise UserError(f"{path}: expected a list")
    return [_decode(hint, v, f"{path}[{i}]") for i, v in enumerate(plain)]


def _decode_union(options: tuple[Any, ...], plain: Any, path: str) -> Any:
    if plain is None and type(None) in options:
        return None
    errors = []
    for option in options:
        if option is type(None):
            continue
        try:
            return _decode(option, plain, path)
        except UserError as error:
            errors.append(str(error))
    raise UserError(errors[0] if errors else f"{path}: expected null")


def _decode_scalar(hint: Any, plain: Any, path: str) -> Any:
    if hint is float and isinstance(plain, str) and plain in _SPECIAL:
        return _SPECIAL[plain]
    if hint is float and isinstance(plain, (int, float)) and not isinstance(plain, bool):
        try:
            return float(plain)
        except OverflowError:
            raise UserError(f"{path}: the number is too large") from None
    # bool is an int to Python, but not to a reader of the record.
    if hint in (int, str, bool) and type(plain) is hint:
        return plain
    raise UserError(f"{path}: expected {getattr(hint, '__name__', hint)}, got {type(plain).__name__}")
