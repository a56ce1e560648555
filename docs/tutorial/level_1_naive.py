"""Level 1: one program for each tile of the result.

C = A @ B. A program takes a tile of 32 x 32 of C and walks along K: it loads a piece of A and a piece of B
through pointers, multiplies them, adds. Every thread knows its own addresses, nothing is asked for ahead.

What limits it. A tile of 32 x 32 reads 64 numbers for each 1,024 products of a step: 16 products for each
number that comes from memory, where a Hopper needs hundreds. A step waits for its loads before it
multiplies. And a tile of fewer than 64 rows cannot use Hopper's own tensor core instruction (wgmma): the
compiler falls back to the one of older devices (mma.sync).

What to look for: `mma.sync` in the table that run.py prints without a GPU, few registers, little shared
memory. Sizes must be multiples of the tile.
"""
# ruff: noqa: N803

import torch
import triton
import triton.language as tl

SIZES = {"BM": 32, "BN": 32, "BK": 32}


@triton.jit
def matmul_kernel(a, b, c, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row = tl.program_id(0) * BM + tl.arange(0, BM)
    column = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    acc = tl.zeros([BM, BN], tl.float32)
    for step in range(0, k, BK):
        left = tl.load(a + row[:, None] * k + step + inner[None, :])
        right = tl.load(b + (step + inner[:, None]) * n + column[None, :])
        acc = tl.dot(left, right, acc)
    tl.store(c + row[:, None] * n + column[None, :], acc.to(c.dtype.element_ty))


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    if m % SIZES["BM"] or n % SIZES["BN"] or k % SIZES["BK"]:
        raise ValueError(f"sizes must be multiples of the tile: {SIZES}")
    c = a.new_empty(m, n)
    grid = (m // SIZES["BM"], n // SIZES["BN"])
    matmul_kernel[grid](a, b, c, n, k, **SIZES, num_warps=4, num_stages=1)
    return c
