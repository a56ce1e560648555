"""All kernels: for users, for tables, for whoever looks for a kernel that fits."""

from __future__ import annotations

from collections.abc import Mapping

from assay.tiles.kernel import Kernel
from assay.tiles.kernels import (
    attention,
    conv2d,
    conv2d_relu_maxpool,
    cross_entropy,
    decode_attention,
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
        *topk_route.ENTRIES,
        conv2d.ENTRY,
        conv2d_relu_maxpool.ENTRY,
        long_convolution.ENTRY,
        *linear_attention.ENTRIES,
        mamba2.ENTRY,
    )
}
