"""All kernels: for users, for tables, for whoever looks for a kernel that fits."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from assay.tiles.kernel import Kernel
from assay.tiles.kernels import (
    attention,
    conv2d,
    conv2d_relu_maxpool,
    cross_entropy,
    decode_attention,
    dispatch,
    fp8_gemm,
    gated,
    gemm,
    int4_gemm,
    layer_norm,
    linear_attention,
    long_convolution,
    mamba2,
    rms_norm,
    rotary,
    softmax,
    topk_route,
    varlen_attention,
)

KERNELS: Mapping[str, Kernel] = {
    entry.name: entry
    for entry in (
        gemm.ENTRY,
        fp8_gemm.ENTRY,
        int4_gemm.ENTRY,
        attention.ENTRY,
        varlen_attention.ENTRY,
        decode_attention.ENTRY,
        rms_norm.ENTRY,
        layer_norm.ENTRY,
        softmax.ENTRY,
        cross_entropy.ENTRY,
        rotary.ENTRY,
        *gated.ENTRIES,
        topk_route.ENTRY,
        *dispatch.ENTRIES,
        conv2d.ENTRY,
        conv2d_relu_maxpool.ENTRY,
        long_convolution.ENTRY,
        *linear_attention.ENTRIES,
        mamba2.ENTRY,
    )
}


def told() -> str:
    """For whoever writes a kernel for Hopper: what there is, a line for each."""
    lines = [
        f"- {name}({', '.join(_arguments(kernel))}): {kernel.formula}" for name, kernel in KERNELS.items()
    ]
    return (
        "Kernels for this device that the file may import (`from assay.tiles import gemm`):\n\n"
        + "\n".join(lines)
    )


def _arguments(kernel: Kernel) -> list[str]:
    found = inspect.signature(kernel.run).parameters.values()
    return [each.name if each.default is each.empty else f"{each.name}={each.default!r}" for each in found]
