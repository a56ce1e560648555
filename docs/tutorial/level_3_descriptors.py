"""Level 3: copies by descriptor.

In level 2 every thread computes addresses. Hopper has a unit for copies, the TMA: the host writes down once
where a matrix is, how it is strided and how large a block is (a descriptor), and from then on one thread
says "the block at this corner", and the unit moves all of it, swizzled as the tensor cores like it. The
threads keep their registers, and the copy needs no masks: beyond the edge it reads zeros and writes nothing.

The kernel gets shorter: no pointers, no aranges, a corner for each block. With no addresses to hold there is
room for a fourth stage.

What limits it now: who issues what, and when it is waited for, is the compiler's choice. The next levels make
these choices themselves.

What to look for: the same wgmma as in level 2. Sizes may be anything whose rows begin at multiples of 16
bytes.
"""
# ruff: noqa: N803

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

SIZES = {"BM": 128, "BN": 256, "BK": 64, "GROUP": 8}


@triton.jit
def matmul_kernel(
    a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr
):
    width = GROUP * tl.cdiv(n, BN)
    first = tl.program_id(0) // width * GROUP
    high = min(tl.cdiv(m, BM) - first, GROUP)
    within = tl.program_id(0) % width
    row, column = (first + within % high) * BM, within // high * BN
    acc = tl.zeros([BM, BN], tl.float32)
    for step in range(0, k, BK):
        acc = tl.dot(a.load([row, step]), b.load([step, column]), acc)
    c.store([row, column], acc.to(c.dtype))


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    c = a.new_empty(m, n)
    described = (
        TensorDescriptor.from_tensor(a, [SIZES["BM"], SIZES["BK"]]),
        TensorDescriptor.from_tensor(b, [SIZES["BK"], SIZES["BN"]]),
        TensorDescriptor.from_tensor(c, [SIZES["BM"], SIZES["BN"]]),
    )
    programs = triton.cdiv(m, SIZES["BM"]) * triton.cdiv(n, SIZES["BN"])
    matmul_kernel[(programs,)](*described, m, n, k, **SIZES, num_warps=8, num_stages=4)
    return c
