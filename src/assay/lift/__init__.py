"""Lifting: inductor's own code for a problem, as a standalone file that typed actions change."""

from __future__ import annotations

from types import ModuleType

from assay.lift import cpp_actions, triton_actions
from assay.lift.capture import Capture, Capturer
from assay.lift.reading import read
from assay.lift.record import CannotLift, Kernel, Launch, Lifted, Line
from assay.lift.standalone import write
from assay.lift.variants import Variant, variants

__all__ = [
    "CannotLift",
    "Capture",
    "Capturer",
    "Kernel",
    "Launch",
    "Lifted",
    "Line",
    "Variant",
    "apply",
    "available",
    "read",
    "usual",
    "variants",
    "write",
]


def available(lifted: Lifted) -> tuple[str, ...]:
    """The actions that change something about the lifted problem, in the order of their usual effect."""
    return _actions(lifted).available(lifted)


def usual(lifted: Lifted) -> tuple[tuple[str, ...], ...]:
    """Lists of actions that nearly always pay, each in the order in which they are to be carried out."""
    return _actions(lifted).usual(lifted)


def apply(lifted: Lifted, action: str) -> Lifted:
    """The lifted problem changed by one action; CannotLift where it does not apply."""
    return _actions(lifted).apply(lifted, action)


def _actions(lifted: Lifted) -> ModuleType:
    return triton_actions if lifted.language == "triton" else cpp_actions
