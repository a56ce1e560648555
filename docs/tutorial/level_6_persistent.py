"""Level 6: programs that stay, and results that leave through shared memory.

In level 5 every tile is a program: it fills its ring from nothing, and at its end the tensor cores wait for
the store. Here there is one program for each multiprocessor, and it walks over tiles:

- The producer does not stop between tiles: while the consumers store one, the ring fills for the next. The
  counter `i` goes on over tiles, and slots and phases with it.
- Tiles come in the grouped order of level 2.
- The result goes into shared memory and from there by descriptor. The consumer issues the copy and goes on
  with the next tile; before it writes there again it waits for the copy to have read. The fence makes what
  threads have written visible to the unit that copies.

The place for the result takes 64 KB, so the ring has three stages, not four.

What to look for: no spills at 168 registers. Sizes may be anything whose rows begin at multiples of 16 bytes.
What is left: clusters that share loads, and consumers that store at different times.
"""
# ruff: noqa: N803

import torch
import triton

from assay.tiles.gate import layout_of
from assay.tiles.hopper import (
    TensorDescriptor,
    fence_async_shared,
    gl,
    jit,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)  # fmt: skip

BM, BN, BK = 64, 256, 64
SIZES = {"STAGES": 3, "GROUP": 8}


@jit
def corner(t, c, rows, columns, GROUP: gl.constexpr):
    """Where tile t begins."""
    width = GROUP * columns
    first = t // width * GROUP
    high = min(rows - first, GROUP)
    row, column = first + t % width % high, t % width // high
    return row * 2 * c.block_type.shape[0], column * c.block_type.shape[1]


@jit
def produce(a, b, c, rows, columns, steps, ring, STAGES: gl.constexpr, GROUP: gl.constexpr):
    left, right, full, empty = ring
    i = 0
    for t in range(gl.program_id(0), rows * columns, gl.num_programs(0)):
        row, column = corner(t, c, rows, columns, GROUP)
        for step in range(steps):
            slot, deep = i % STAGES, step * a.block_type.shape[1]
            mbarrier.wait(empty.index(slot), ((i // STAGES) & 1) ^ 1)
            bar = full.index(slot)
            mbarrier.expect(bar, 2 * a.block_type.nbytes + b.block_type.nbytes)
            for half in gl.static_range(2):
                top = row + half * a.block_type.shape[0]
                tma.async_copy_global_to_shared(a, [top, deep], bar, left.index(2 * slot + half))
            tma.async_copy_global_to_shared(b, [deep, column], bar, right.index(slot))
            i += 1


@jit
def consume(
    half: gl.constexpr, c, out, rows, columns, steps, ring, STAGES: gl.constexpr, GROUP: gl.constexpr
):
    wide: gl.constexpr = c.block_type.shape[1]
    left, right, full, empty = ring
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, wide, 16])
    i = 0
    for t in range(gl.program_id(0), rows * columns, gl.num_programs(0)):
        row, column = corner(t, c, rows, columns, GROUP)
        acc = gl.zeros([64, wide], gl.float32, layout)
        for step in range(steps):
            slot = i % STAGES
            mbarrier.wait(full.index(slot), (i // STAGES) & 1)
            mine = left.index(2 * slot + half)
            acc = warpgroup_mma(mine, right.index(slot), acc, use_acc=step > 0, is_async=True)
            acc = warpgroup_mma_wait(1, (acc,))
            mbarrier.arrive(empty.index((i + STAGES - 1) % STAGES), count=1, pred=step > 0)
            i += 1
        acc = warpgroup_mma_wait(0, (acc,))
        mbarrier.arrive(empty.index((i + STAGES - 1) % STAGES), count=1)
        tma.store_wait(0)
        out.index(half).store(acc.to(c.dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(c, [row + half * c.block_type.shape[0], column], out.index(half))
    tma.store_wait(0)


@jit
def matmul_kernel(a, b, c, rows, columns, steps, STAGES: gl.constexpr, GROUP: gl.constexpr):
    left = gl.allocate_shared_memory(a.dtype, [2 * STAGES] + a.block_type.shape, a.layout)
    right = gl.allocate_shared_memory(b.dtype, [STAGES] + b.block_type.shape, b.layout)
    out = gl.allocate_shared_memory(c.dtype, [2] + c.block_type.shape, c.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(STAGES):
        mbarrier.init(full.index(s), count=1)
        mbarrier.init(empty.index(s), count=2)
    ring = (left, right, full, empty)
    gl.warp_specialize(
        [
            (consume, (0, c, out, rows, columns, steps, ring, STAGES, GROUP)),
            (consume, (1, c, out, rows, columns, steps, ring, STAGES, GROUP)),
            (produce, (a, b, c, rows, columns, steps, ring, STAGES, GROUP)),
        ],
        [4, 1],
        [240, 24],
    )


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    c = a.new_empty(m, n)
    tensors = (a, [BM, BK]), (b, [BK, BN]), (c, [BM, BN])
    described = [TensorDescriptor.from_tensor(x, of, layout_of(x.dtype, of)) for x, of in tensors]
    rows, columns, steps = triton.cdiv(m, 2 * BM), triton.cdiv(n, BN), triton.cdiv(k, BK)
    programs = min(rows * columns, torch.cuda.get_device_properties(a.device).multi_processor_count)
    matmul_kernel[(programs,)](*described, rows, columns, steps, **SIZES, num_warps=4, maxnreg=168)
    return c
