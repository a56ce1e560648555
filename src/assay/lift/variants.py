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
"""Plain loops: inductor's vector types have no form outside of torch, and GCC vectorises on its own."""
_REALIZE_MORE = {"realize_reads_threshold": 1, "realize_opcount_threshold": 4}

# Each of these gave other code for at least one of a sample of the suite's problems.
_CPU = (
    Variant("base", _SCALAR, dynamic=True),
    Variant("static", _SCALAR),
    Variant("pointwise_cat", {**_SCALAR, "force_pointwise_cat": True}),
    Variant("two_step_variance", {**_SCALAR, "cpp.use_two_step_variance_threshold": 1 << 40}),
    Variant("realize_more", {**_SCALAR, **_REALIZE_MORE}),
    Variant("no_fusion", {**_SCALAR, "max_fusion_size": 1}),
    Variant("no_horizontal_fusion", {**_SCALAR, "cpp.max_horizontal_fusion_size": 1}),
    Variant("no_inplace", {**_SCALAR, "inplace_buffers": False}),
)
_CUDA = (
    Variant("base", _QUIET),
    Variant("looped_reductions", {**_QUIET, "triton.persistent_reductions": False}),
    Variant("whole_reductions", {**_QUIET, "split_reductions": False}),
    Variant("nd_tiling", {**_QUIET, "triton.prefer_nd_tiling": True}),
    Variant("three_tiles", {**_QUIET, "triton.max_tiles": 3}),
    Variant("tile_reductions", {**_QUIET, "triton.tile_reductions": True, "triton.prefer_nd_tiling": True}),
    Variant("loop_order", {**_QUIET, "loop_ordering_after_fusion": True}),
    Variant("aggressive_fusion", {**_QUIET, "aggressive_fusion": True}),
    Variant("no_fusion", {**_QUIET, "max_fusion_size": 1}),
    Variant("realize_more", {**_QUIET, **_REALIZE_MORE}),
    Variant("unrolled", {**_QUIET, "unroll_reductions_threshold": 32}),
    Variant("pointwise_cat", {**_QUIET, "force_pointwise_cat": True}),
)


def variants(device_type: str) -> tuple[Variant, ...]:
    """The variants for a kind of device, the plain one first."""
    return _CPU if device_type == "cpu" else _CUDA


def variant_named(name: str, device_type: str) -> Variant:
    for variant in variants(device_type):
        if variant.name == name:
            return variant
    raise CannotLift(f"no variant {name} for {device_type}")
