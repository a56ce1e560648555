"""Lifting: inductor's own code for a problem, as a standalone file that typed actions change."""

from __future__ import annotations

from assay.lift import cpp_actions
from assay.lift.capture import Capture, capture
from assay.lift.reading import read
from assay.lift.record import CannotLift, Kernel, Launch, Lifted, Line
from assay.lift.standalone import write
from assay.lift.variants import Variant, variants

__all__ = [
    "CannotLift",
    "Capture",
    "Kernel",
    "Launch",
    "Lifted",
    "Line",
    "Variant",
    "apply",
    "available",
    "capture",
    "read",
    "usual",
    "variants",
    "write",
]


def available(lifted: Lifted) -> tuple[str, ...]:
    """The actions that change something about the lifted problem, in the order of their usual effect."""
    if lifted.language != "cpp":
        raise CannotLift(f"no actions for {lifted.language}")
    return cpp_actions.available(lifted)


def usual(lifted: Lifted) -> tuple[str, ...]:
    """The actions that nearly always pay, in the order in which they are to be carried out."""
    if lifted.language != "cpp":
        return ()
    return cpp_actions.usual(lifted)


def apply(lifted: Lifted, action: str) -> Lifted:
    """The lifted problem changed by one action; CannotLift where it does not apply."""
    if lifted.language != "cpp":
        raise CannotLift(f"no actions for {lifted.language}")
    return cpp_actions.apply(lifted, action)
