"""Runs an unmodified Gluon kernel on a CPU, under a seeded schedule.

    emulate(kernel, (grid,), Descriptor(a, [64, 64]), ..., seed=3)

A kernel's Python is run as it stands; only what the names of `assay.tiles.hopper` mean is another. Seeds
differ in who goes first and when copies land; a kernel is right if it is right under all of them.

Not covered: whatever the device module does not cover, and kernels that take pointers apart.
"""

from __future__ import annotations

import itertools
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from triton.experimental.gluon import language as gl
from triton.runtime.jit import JITFunction

from assay.tiles.emulated_device import EmulationError, World
from assay.tiles.emulated_language import WORDS, Descriptor, Pointer
from assay.tiles.work import Constant

__all__ = ["Descriptor", "EmulationError", "emulate"]


def emulate(
    kernel: Any,
    grid: tuple[int, ...],
    *args: Any,
    seed: int = 0,
    late: Sequence[torch.Tensor] = (),
    at_once: bool = False,
) -> None:
    """Every program of a launch, one after the other.

    Args:
        late: tensors that the kernel before this one may still be writing when it begins.
        at_once: the programs take turns instead, as those do that share a counter.
    """
    scopes: dict[str, dict[str, Any]] = {}
    body = _plain(kernel, scopes)
    given = [_given(arg, scopes) for arg in args]
    programs = list(_programs(grid))
    for number, those in enumerate([programs] if at_once else [[one] for one in programs]):
        world = World(those, (*grid, 1, 1)[:3], seed + number, late)
        world.run(lambda: body(*given))


def _programs(grid: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for program in itertools.product(*map(range, grid)):
        yield (*program, 0, 0)[:3]


def _given(arg: Any, scopes: dict[str, dict[str, Any]]) -> Any:
    if isinstance(arg, torch.Tensor):
        return Pointer(arg.view(-1))
    return _meaning(arg, scopes)


def _plain(kernel: Any, scopes: dict[str, dict[str, Any]]) -> Callable[..., Any]:
    """The Python below a kernel, with other meanings for its words."""
    code = kernel.fn
    scope = _scope(code.__module__, scopes)
    made = types.FunctionType(code.__code__, scope, code.__name__, code.__defaults__, code.__closure__)
    made.__kwdefaults__ = code.__kwdefaults__
    return made


def _scope(module: str, scopes: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The names of a module, each as it is here."""
    if module not in scopes:
        scopes[module] = scope = {}
        for name, value in vars(sys.modules[module]).items():
            scope[name] = WORDS.get(name, value) if name in WORDS else _meaning(value, scopes)
    return scopes[module]


def _meaning(value: Any, scopes: dict[str, dict[str, Any]]) -> Any:
    if isinstance(value, JITFunction):
        return _plain(value, scopes)
    if isinstance(value, gl.constexpr):
        return value.value
    if isinstance(value, Constant):
        return _Work(value.work, scopes)
    return value


class _Work:
    """A template's filling: its functions are plain ones here."""

    def __init__(self, work: Any, scopes: dict[str, dict[str, Any]]) -> None:
        self._work, self._scopes = work, scopes

    def __getattr__(self, name: str) -> Any:
        return _meaning(getattr(self._work, name), self._scopes)
