"""The operators of all kernels by name, for generated code: `operators.gemm(a, b, None, None, "gelu")`.

They take what torch.ops.assay's take, and check less than the functions of `assay.tiles`. Whoever writes them
down wants the kernel: torch does not answer in its place where it is faster.
"""

from __future__ import annotations

import functools
from typing import Any

from torch.compiler import is_compiling

from assay.tiles.choice import by_kernels
from assay.tiles.op import OPERATORS, Op


class Tiles:
    """An operator whose tile kernel answers; compiled, it is torch.ops.assay's."""

    def __init__(self, op: Op) -> None:
        self.name = op.name
        self._op = op

    def __call__(self, *args: Any) -> Any:
        if is_compiling():
            return self._op(*args)
        return by_kernels(self._op, *args)


@functools.cache
def _tiles(op: Op) -> Tiles:
    return Tiles(op)


def __getattr__(name: str) -> Tiles:
    import assay.tiles.catalog  # which makes them

    if name not in OPERATORS:
        raise AttributeError(f"module {assay.tiles.__name__}.operators has no attribute {name!r}")
    return _tiles(OPERATORS[name])
