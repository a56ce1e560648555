"""Who answers a call, the tile kernel or torch: whoever was faster at the nearest size that was measured.

`measured.json` has a row for each size that benchmarks/tiles_measured.py has timed: the kernel, its kind
(what matters and is no size, in words), the device, the sizes, and the kernel's speed in torch's. Of the rows
of a call's device, kernel and kind the nearest by the logarithms of the sizes counts. Where there is none,
the tile kernel answers.
"""

from __future__ import annotations

import functools
import json
import math
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.compiler import is_compiling

MEASURED = Path(__file__).with_name("measured.json")
TORCH_BELOW = 0.97
"""Of torch's speed; nearer to 1 a reading says little."""
ANSWERS = ("faster", "tiles", "torch")
VARIABLE = "ASSAY_TILES_ALWAYS"
MOST_FOUND = 4096

answer = "faster"
noted: list[tuple[Question, str]] | None = None
"""What was asked and what it was told, while somebody wants to know."""


class _Here(threading.local):
    is_kernels = False
    """Whether this thread is in a call that only kernels answer."""


_here = _Here()


class BadTable(ValueError):
    """The table of what was measured cannot be read; says where and why."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is known of a call when it is to be answered."""

    kernel: str
    kind: str
    device: str
    sizes: Mapping[str, int]

    def __str__(self) -> str:
        return f"{self.kernel} ({self.kind}; {_told(self.sizes)})"


@dataclass(frozen=True, slots=True)
class Measured:
    """One row of the table."""

    question: Question
    ratio: float
    """The kernel's speed in torch's: above 1, it is faster."""


@dataclass(frozen=True, slots=True)
class Found:
    is_torchs: bool
    why: str


def is_torchs(kernel: str, kind: str, device: torch.device, **sizes: int) -> bool:
    """Whether torch is to answer."""
    if is_compiling():
        from assay.tiles import traced

        return traced.is_torchs(kernel, kind, device, **sizes)
    return ask(kernel, kind, device, sizes)


_FOUND: dict[tuple[Any, ...], Found] = {}


def who() -> str:
    """Answers in this thread."""
    return "tiles" if _here.is_kernels else answer


def ask(kernel: str, kind: str, device: torch.device, sizes: Mapping[str, int]) -> bool:
    asked = who()
    if asked != "faster":
        found = Found(asked == "torch", f"{asked}: always, as was asked for")
    else:
        key = (kernel, kind, device, *sizes.values())
        found = _FOUND.get(key)
        if found is None:
            if len(_FOUND) == MOST_FOUND:
                _FOUND.clear()
            found = _FOUND[key] = find(Question(kernel, kind, device_name(device), sizes))
    if noted is not None:
        noted.append((Question(kernel, kind, device_name(device), sizes), found.why))
    return found.is_torchs


def find(question: Question) -> Found:
    """By the nearest row of the same device, kernel and kind."""
    rows = _measured().get((question.device, question.kernel, question.kind))
    if not rows:
        return Found(False, f"tiles: no such kind was measured on {question.device}")
    nearest = min(rows, key=lambda row: _distance(row.question.sizes, question.sizes))
    is_torchs = nearest.ratio < TORCH_BELOW
    where = f"at the nearest size measured ({_told(nearest.question.sizes)})"
    return Found(
        is_torchs, f"{'torch' if is_torchs else 'tiles'}: {nearest.ratio:.2f} of torch's speed {where}"
    )


def _distance(one: Mapping[str, int], other: Mapping[str, int]) -> float:
    return sum((math.log2(max(size, 1)) - math.log2(max(other[name], 1))) ** 2 for name, size in one.items())


def _told(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {size}" for name, size in sizes.items())


@functools.cache
def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


@functools.cache
def _measured() -> dict[tuple[str, str, str], list[Measured]]:
    rows: dict[tuple[str, str, str], list[Measured]] = {}
    for row in read(MEASURED):
        asked = row.question
        rows.setdefault((asked.device, asked.kernel, asked.kind), []).append(row)
    return rows


def read(path: Path) -> list[Measured]:
    """All rows of a table."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BadTable(f"{path} cannot be read as JSON: {error}") from error
    rows = found.get("rows") if isinstance(found, dict) else None
    if not isinstance(rows, list):
        raise BadTable(f'{path} has no list of rows: want {{"rows": [...]}}')
    names: dict[str, set[str]] = {}
    made = [_row(row, f"{path}, row {number}") for number, row in enumerate(rows, 1)]
    for number, one in enumerate(made, 1):
        asked = one.question
        if names.setdefault(asked.kernel, set(asked.sizes)) != set(asked.sizes):
            raise BadTable(f"{path}, row {number}: sizes of {asked.kernel} are named otherwise further up")
    return made


def _row(row: Any, where: str) -> Measured:
    if not isinstance(row, dict):
        raise BadTable(f"{where} is {row!r}: want an object")
    words = [row.get(name) for name in ("kernel", "kind", "device")]
    if not all(isinstance(word, str) and word for word in words):
        raise BadTable(f"{where}: kernel, kind and device are {words}: want words")
    sizes, ratio = row.get("sizes"), row.get("ratio")
    if not (isinstance(sizes, dict) and sizes and all(_is_size(size) for size in sizes.values())):
        raise BadTable(f"{where}: sizes are {sizes!r}: want whole numbers from 1 on, by name")
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio < math.inf:
        raise BadTable(f"{where}: the ratio is {ratio!r}: want a number above 0")
    return Measured(Question(row["kernel"], row["kind"], row["device"], sizes), float(ratio))


def _is_size(size: Any) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and size >= 1


def forget() -> None:
    """What was read and found, so that the table is read anew."""
    _FOUND.clear()
    _measured.cache_clear()


class Until:
    """Leaves things as they were before, if it is used in a `with`."""

    def __init__(self, before: str) -> None:
        self._before = before

    def __enter__(self) -> None:
        """Nothing is left to do."""

    def __exit__(self, *_: object) -> None:
        always(self._before)


def always(who: str) -> Until:
    """Who answers from now on in this process, or within a `with`: "tiles", "torch" (where it can compute the
    same), or "faster", which is what counts if nothing is said. ASSAY_TILES_ALWAYS says it from outside.
    """
    global answer
    if who not in ANSWERS:
        raise ValueError(f"{who!r} cannot answer: use one of {', '.join(ANSWERS)}")
    before, answer = answer, who
    return Until(before)


def by_kernels(function: Callable[..., Any], *arguments: Any) -> Any:
    """A call in which no torch answers; other threads go on as they are."""
    before, _here.is_kernels = _here.is_kernels, True
    try:
        return function(*arguments)
    finally:
        _here.is_kernels = before


try:
    always(os.environ.get(VARIABLE) or answer)
except ValueError as error:
    raise ValueError(f"{VARIABLE}: {error}") from None


def chosen(function: Callable[..., Any], *arguments: Any, **named: Any) -> str:
    """Calls it, and says who answered and why: a line for each time that there was something to choose."""
    lines = [f"{question}: {why}" for question, why in questions(function, *arguments, **named)]
    return "\n".join(lines) or "nothing to choose: one of the two cannot answer this"


def questions(function: Callable[..., Any], *arguments: Any, **named: Any) -> list[tuple[Question, str]]:
    """What is asked in a call, with what it is told."""
    global noted
    before, noted = noted, []
    try:
        function(*arguments, **named)
        return noted
    finally:
        noted = before


def bits(tensor: torch.Tensor) -> str:
    """Types of one size are one kind: they are as much to move, and tensor cores take as long for them."""
    return f"{8 * tensor.element_size()} bits"
