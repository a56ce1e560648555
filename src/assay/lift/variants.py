"""Inductor's choices that give other code for the same problem: one named set of options each.

Options that change the numbers are left out. What an option does is inductor's to say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.lift.record import CannotLift


@dataclass(frozen=True, slots=True)
class Variant:
    """One set of options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    dynamic: bool = False
    """Sizes are left free where torch.export can; otherwise those of the case are fixed."""


_QUIET = {"force_disable_caches": True}
_SCALAR = {**_QUIET, "cpp.simdlen": 1}
_CPU = (
    Variant("base", _SCALAR, dynamic=True),
)
_CUDA = (Variant("base", _QUIET),)


def variants(device_type: str) -> tuple[Variant, ...]:
    """The variants for a kind of device, the plain one first."""
    return _CPU if device_type == "cpu" else _CUDA


def variant_named(name: str, device_type: str) -> Variant:
    for variant in variants(device_type):
        if variant.name == name:
            return variant
    raise CannotLift(f"no variant {name} for {device_type}")
