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
_SCALAR = {**_QUIET, "cpp.simdlen": 1, "cpp.vec_isa_ok": False}
"""Plain loops: inductor's vector types have no form outside of torch, and GCC vectorises on its own. Told of
no such types, inductor compiles nothing to find out."""
_REALIZE_MORE = {"realize_reads_threshold": 1, "realize_opcount_threshold": 4}

# Each of these gave other code for at least one of six problems of the suite; only the first was timed.
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
# By how often and how much they changed the generated code of 50 problems of the suite; nothing was timed.
_REALIZE_LESS = {
    "realize_reads_threshold": 64,
    "realize_opcount_threshold": 1000,
    "realize_acc_reads_threshold": 64,
}
_CUDA = (
    Variant("base", _QUIET),
    Variant("tiles", {**_QUIET, "assay.templates": "products"}),
    Variant("tiles_and_rows", {**_QUIET, "assay.templates": "products,rows"}),
    Variant("held_rows", {**_QUIET, "assay.persistent_threshold": 32768}),
    Variant("depthwise_as_taps", {**_QUIET, "assay.decompositions": "depthwise_as_taps"}),
    Variant(
        "tiled_taps",
        {**_QUIET, "assay.decompositions": "depthwise_as_taps", "triton.prefer_nd_tiling": True},
    ),
    Variant("thin_product_as_sums", {**_QUIET, "assay.decompositions": "thin_product_as_sums"}),
    Variant("native_matmul", {**_QUIET, "triton.native_matmul": True}),
    Variant("nd_tiling", {**_QUIET, "triton.prefer_nd_tiling": True}),
    Variant("whole_reductions", {**_QUIET, "split_reductions": False}),
    Variant("more_splits", {**_QUIET, "assay.split_factor": 4.0}),
    Variant("fewer_splits", {**_QUIET, "assay.split_factor": 0.25}),
    Variant("one_tile", {**_QUIET, "triton.max_tiles": 1}),
    Variant("held_columns", {**_QUIET, "assay.persistent_outer": 512}),
    Variant("two_pass_softmax", {**_QUIET, "online_softmax": False}),
    Variant("looped_reductions", {**_QUIET, "triton.persistent_reductions": False}),
    Variant("given_layout", {**_QUIET, "layout_optimization": False}),
    Variant("realize_less", {**_QUIET, **_REALIZE_LESS}),
    Variant("held_short_rows", {**_QUIET, "assay.persistent_threshold": 4096}),
)


def variants(device_type: str) -> tuple[Variant, ...]:
    """The variants for a kind of device, the plain one first."""
    return _CPU if device_type == "cpu" else _CUDA


def variant_named(name: str, device_type: str) -> Variant:
    for variant in variants(device_type):
        if variant.name == name:
            return variant
    raise CannotLift(f"no variant {name} for {device_type}")
