"""A lifted problem: what inductor generated, as data that actions change and writers print.

A reader makes a `Lifted` of inductor's file, actions give a changed one, a writer prints a candidate. Nothing
here runs a kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


class CannotLift(Exception):
    """The generated code holds something that has no standalone form here; the message says what."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One generated kernel."""

    name: str
    text: str
    """A Triton function with its decorator, or a C++ function."""
    parameters: tuple[str, ...]
    """Of the function, in order: names for Triton, types for C++. Knobs are not among them."""
    knobs: Mapping[str, int] = field(default_factory=dict)
    """Compile-time constants and launch options by name (XBLOCK, num_warps); empty for C++."""
    grid: tuple[str, ...] = ()
    """Triton: an expression for each axis, over arguments and knobs by name."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What inductor said of it: "kind" (pointwise, reduction, persistent_reduction, template), "sizes"."""


@dataclass(frozen=True, slots=True)
class Line:
    """A line of Python of the wrapper: an allocation, a view, a call of torch."""

    text: str


@dataclass(frozen=True, slots=True)
class Launch:
    """A call of one of the kernels."""

    kernel: str
    arguments: tuple[str, ...]
    """Python expressions, in the order of the kernel's parameters."""


@dataclass(frozen=True, slots=True)
class Lifted:
    """One problem as inductor compiles it, standalone."""

    language: str
    """"triton" or "cpp"."""
    variant: str
    """Which of inductor's choices it was made with: see variants.py."""
    inputs: tuple[str, ...]
    """Arguments of forward(), in order."""
    state: Mapping[str, str]
    """Parameters and buffers: the name in the lines below, and the attribute it is ("layer.weight")."""
    guards: tuple[str, ...]
    """Python expressions over inputs and state; where one is false, the module's own forward() answers."""
    kernels: tuple[Kernel, ...]
    steps: tuple[Line | Launch, ...]
    returns: str
    """A Python expression."""
    pragmas: Mapping[str, str] = field(default_factory=dict)
    """What actions ask of the writer; each writer documents its own."""
