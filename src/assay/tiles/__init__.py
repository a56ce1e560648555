"""Tile kernels as functions: `from assay.tiles import attention, gemm`.

Each takes whatever its reference takes, and is right or refuses. Where its kernel does not apply, or was
measured and found slower, torch answers: `chosen(gemm, a, b)` says which and why, `always("tiles")` ends it.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "always",
    "attention",
    "based",
    "chosen",
    "combine",
    "conv2d",
    "conv2d_relu_maxpool",
    "cross_entropy",
    "decode_attention",
    "dispatch",
    "fp8_gemm",
    "geglu",
    "gemm",
    "hedgehog",
    "int4_gemm",
    "layer_norm",
    "long_convolution",
    "mamba2",
    "rms_norm",
    "rotary",
    "softmax",
    "swiglu",
    "topk_route",
    "varlen_attention",
]


def __getattr__(name: str) -> Any:
    """Kernels are imported when they are asked for: whoever reads a record needs no Triton."""
    if name not in __all__:
        raise AttributeError(f"module 'assay.tiles' has no attribute {name!r}")
    if name in ("always", "chosen"):
        from assay.tiles import choice

        return getattr(choice, name)
    from assay.tiles.catalog import KERNELS

    return KERNELS[name].run
