"""The operators of all kernels by name, for generated code: `operators.gemm(a, b, None, None, "gelu")`.

They take what torch.ops.assay's take, and check less than the functions of `assay.tiles`.
"""

from __future__ import annotations

from assay.tiles.op import OPERATORS, Op


def __getattr__(name: str) -> Op:
    import assay.tiles.catalog  # which makes them

    if name not in OPERATORS:
        raise AttributeError(f"module {assay.tiles.__name__}.operators has no attribute {name!r}")
    return OPERATORS[name]
