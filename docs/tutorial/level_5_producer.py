"""Level 5: one warp copies, two warp groups multiply.

In level 4 the same warps issue copies and products, and a copy is issued only after a product has ended. Here
the work is split over partitions, each with a program of its own:

- The producer, one warp, walks along K and fills the ring. It needs hardly any registers and gives them up.
- Two consumers, four warps each, multiply: 64 rows of A each, and the same 256 columns of B. They get what
  the producer gave up: 240 registers a thread, of which 128 are sums.

They speak through two barriers a slot. `full`: the bytes have come. `empty`: both consumers are done with it
(a count of 2). The producer waits for `empty` with the other phase, so that its first round does not wait: a
barrier that nobody has used counts as having ended the phase before. A consumer lets go of the slot of the
step before, because the product of this step is still in flight.

What limits it: a program begins with an empty ring and ends with a store during which the tensor cores have
nothing to do. At K of 1,024 that is a good part of its life.

What to look for: 168 registers is what every thread begins with; partitions then trade them. Sizes must be
multiples of the tile.
"""
# ruff: noqa: N803

import torch

from assay.tiles.gate import layout_of
from assay.tiles.hopper import TensorDescriptor, gl, jit, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

SIZES = {"BM": 64, "BN": 256, "BK": 64, "STAGES": 4}
"""A program has twice BM rows: BM for each consumer."""


@jit
def produce(a, b, k, ring, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, STAGES: gl.constexpr):
    left, right, full, empty = ring
    row, column = gl.program_id(0) * 2 * BM, gl.program_id(1) * BN
    for step in range(k // BK):
        slot = step % STAGES
        mbarrier.wait(empty.index(slot), ((step // STAGES) & 1) ^ 1)
        bar = full.index(slot)
        mbarrier.expect(bar, 2 * a.block_type.nbytes + b.block_type.nbytes)
        for half in gl.static_range(2):
            tma.async_copy_global_to_shared(a, [row + half * BM, step * BK], bar, left.index(2 * slot + half))
        tma.async_copy_global_to_shared(b, [step * BK, column], bar, right.index(slot))


@jit
def consume(
    half: gl.constexpr, c, n, k, ring,
    BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    left, right, full, empty = ring
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BN, 16])
    acc = gl.zeros([BM, BN], gl.float32, layout)
    for step in range(k // BK):
        slot = step % STAGES
        mbarrier.wait(full.index(slot), (step // STAGES) & 1)
        rows = left.index(2 * slot + half)
        acc = warpgroup_mma(rows, right.index(slot), acc, use_acc=step > 0, is_async=True)
        acc = warpgroup_mma_wait(1, (acc,))
        mbarrier.arrive(empty.index((step + STAGES - 1) % STAGES), count=1, pred=step > 0)
    acc = warpgroup_mma_wait(0, (acc,))
    row = (gl.program_id(0) * 2 + half) * BM + gl.arange(0, BM, gl.SliceLayout(1, layout))
    column = gl.program_id(1) * BN + gl.arange(0, BN, gl.SliceLayout(0, layout))
    gl.store(c + (gl.expand_dims(row, 1) * n + gl.expand_dims(column, 0)), acc.to(c.dtype.element_ty))


@jit
def matmul_kernel(a, b, c, n, k, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, STAGES: gl.constexpr):
    left = gl.allocate_shared_memory(a.dtype, [2 * STAGES, BM, BK], a.layout)
    right = gl.allocate_shared_memory(b.dtype, [STAGES, BK, BN], b.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for s in gl.static_range(STAGES):
        mbarrier.init(full.index(s), count=1)
        mbarrier.init(empty.index(s), count=2)
    ring = (left, right, full, empty)
    gl.warp_specialize(
        [
            (consume, (0, c, n, k, ring, BM, BN, BK, STAGES)),
            (consume, (1, c, n, k, ring, BM, BN, BK, STAGES)),
            (produce, (a, b, k, ring, BM, BN, BK, STAGES)),
        ],
        [4, 1],
        [240, 24],
    )


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    if m % (2 * SIZES["BM"]) or n % SIZES["BN"] or k % SIZES["BK"]:
        raise ValueError(f"sizes must be multiples of the tile: {SIZES}")
    c = a.new_empty(m, n)
    blocks = [SIZES["BM"], SIZES["BK"]], [SIZES["BK"], SIZES["BN"]]
    described = [
        TensorDescriptor.from_tensor(x, block, layout_of(x.dtype, block))
        for x, block in zip((a, b), blocks, strict=True)
    ]
    grid = (m // (2 * SIZES["BM"]), n // SIZES["BN"])
    matmul_kernel[grid](*described, c, n, k, **SIZES, num_warps=4, maxnreg=168)
    return c
