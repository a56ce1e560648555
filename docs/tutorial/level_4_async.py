"""Level 4: the same by hand: barriers, copies, products in flight.

From here on in Gluon, where shared memory, barriers and waits are written out. Three rules are all of it:

- A ring: shared memory for STAGES steps, each with a barrier. `expect` tells the barrier how many bytes will
  come, the copy counts them down, `wait` returns when none is left. A barrier is used again and again, so it
  has phases: round 0 of the ring ends phase 0, round 1 ends phase 1, and then 0 again.
- A product runs on while the thread goes on. `warpgroup_mma_wait(1, ...)` waits until at most one product is
  in flight: the one just issued goes on, the one before it has ended.
- So the slot of the step before is free, and is where the next copy goes.

One warp group (four warps) does everything, on a tile of 128 x 128: 128 registers of sums a thread. Three
stages are 96 KB, so two programs fit on a multiprocessor, and one multiplies while the other stores.

What limits it: the warps that multiply also issue the copies, every new copy waits for the product before it,
and all four warps have to meet (bar.sync) before one of them may overwrite a slot. A tile of 128 x 128 reads
a third more for each product than one of 128 x 256.

What to look for: no "serialised" in the table. An accumulator that is touched while a product is in flight
would make the assembler wait after each product, and half of the speed is gone. Sizes must be multiples of
the tile.
"""
# ruff: noqa: N803

import torch

from assay.tiles.gate import layout_of
from assay.tiles.hopper import TensorDescriptor, gl, jit, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

SIZES = {"BM": 128, "BN": 128, "BK": 64, "STAGES": 3}


@jit
def load(a, b, row, column, step, steps, left, right, full, BK: gl.constexpr, STAGES: gl.constexpr):
    slot = step % STAGES
    bar = full.index(slot)
    inside = step < steps
    mbarrier.expect(bar, a.block_type.nbytes + b.block_type.nbytes, pred=inside)
    tma.async_copy_global_to_shared(a, [row, step * BK], bar, left.index(slot), pred=inside)
    tma.async_copy_global_to_shared(b, [step * BK, column], bar, right.index(slot), pred=inside)


@jit
def matmul_kernel(a, b, c, n, k, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, STAGES: gl.constexpr):
    left = gl.allocate_shared_memory(a.dtype, [STAGES, BM, BK], a.layout)
    right = gl.allocate_shared_memory(b.dtype, [STAGES, BK, BN], b.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(STAGES):
        mbarrier.init(full.index(s), count=1)
    row, column, steps = gl.program_id(0) * BM, gl.program_id(1) * BN, k // BK
    for s in gl.static_range(STAGES - 1):
        load(a, b, row, column, s, steps, left, right, full, BK, STAGES)

    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 16])
    acc = gl.zeros([BM, BN], gl.float32, layout)
    for step in range(steps):
        slot = step % STAGES
        mbarrier.wait(full.index(slot), (step // STAGES) & 1)
        acc = warpgroup_mma(left.index(slot), right.index(slot), acc, use_acc=step > 0, is_async=True)
        acc = warpgroup_mma_wait(1, (acc,))
        load(a, b, row, column, step + STAGES - 1, steps, left, right, full, BK, STAGES)
    acc = warpgroup_mma_wait(0, (acc,))

    down = gl.expand_dims(row + gl.arange(0, BM, gl.SliceLayout(1, layout)), 1)
    across = gl.expand_dims(column + gl.arange(0, BN, gl.SliceLayout(0, layout)), 0)
    gl.store(c + (down * n + across), acc.to(c.dtype.element_ty))


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    if m % SIZES["BM"] or n % SIZES["BN"] or k % SIZES["BK"]:
        raise ValueError(f"sizes must be multiples of the tile: {SIZES}")
    c = a.new_empty(m, n)
    blocks = [SIZES["BM"], SIZES["BK"]], [SIZES["BK"], SIZES["BN"]]
    described = [
        TensorDescriptor.from_tensor(x, block, layout_of(x.dtype, block))
        for x, block in zip((a, b), blocks, strict=True)
    ]
    grid = (m // SIZES["BM"], n // SIZES["BN"])
    matmul_kernel[grid](*described, c, n, k, **SIZES, num_warps=4)
    return c
