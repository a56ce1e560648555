"""fp8 products with scales of blocks, in tiles of twice the area: what a GPU has not timed yet.

    python benchmarks/fp8_wide.py [--only GLOB] [--out JSON]

What ships has tiles of 128 x 128, because ptxas spilled a kilobyte with larger ones: the compiler scaled the
first half's product only behind the second half's, so that both were kept. Here the additions are words of
assembler that stay where they stand, and one product's registers are the next one's: nothing spills. For a
block of K, 24 KB come from the L2 cache per 128 x 128 of the result where 32 did, and 72 or (with A in
registers) 64 KB pass through shared memory where 80 did.

`tall`: each of two consumers has 128 rows and 128 columns; else 64 rows and 256 columns, for which A can be
read once into registers. Each answer is compared with the shipped kernel's.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton

from assay.tiles import always
from assay.tiles.hopper import fence_async_shared, gl, jit, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait
from assay.tiles.kernels import fp8_gemm as shipped
from assay.tiles.launch import describe, launch, multiprocessors
from assay.tiles.pipeline import grouped, pipeline
from assay.tiles.work import Work
from tiles import times

SUM: Any = gl.constexpr("fma.rn.f32 $0, $1, $2, $3;")
SIZES = (
    *((n, n, n) for n in (1024, 2048, 4096, 8192, 16384)),
    (8192, 4096, 16384),
    (1024, 4096, 16384),
    (4096, 7168, 2048),
)

ROUNDED = 4e-3
"""Half a unit of bfloat16, and the sums' own."""


@jit
def scaled_sum(product, scale, acc):
    """Where it stands: before what is multiplied next."""
    return gl.inline_asm_elementwise(SUM, "=f,f,f,f", [product, scale, acc], gl.float32, False, 1)


@dataclass(frozen=True)
class Fp8Wide(Work):
    stages: int = 4
    tall: bool = True
    group: int = 8
    places: int = 1
    """For results of a consumer on their way out."""
    from_registers: bool = False
    holds = False

    @property
    def layout(self) -> gl.NVMMADistributedLayout:
        return gl.NVMMADistributedLayout([3, 0], [4, 1], [16, 128, 32])

    @property
    def of_a(self) -> int:
        """Blocks of 64 rows of A in a step."""
        return 4 if self.tall else 2

    @property
    def of_b(self) -> int:
        """Blocks of 128 rows of B in a step."""
        return 1 if self.tall else 2

    @jit
    def room(w: gl.constexpr, g):
        a = gl.allocate_shared_memory(g[0].dtype, [w.of_a * w.stages, 64, 128], g[0].layout)
        b = gl.allocate_shared_memory(g[1].dtype, [w.of_b * w.stages, 128, 128], g[1].layout)
        c = gl.allocate_shared_memory(g[2].dtype, [2 * w.places, 64, 128], g[2].layout)
        return a, b, c

    @jit
    def tiles(w: gl.constexpr, g):
        return gl.cdiv(g[3], 64 * w.of_a) * gl.cdiv(g[4], 128 * w.of_b)

    @jit
    def place(w: gl.constexpr, g, t, n):
        return grouped(t, gl.cdiv(g[3], 64 * w.of_a), gl.cdiv(g[4], 128 * w.of_b), w.group)

    @jit
    def steps(w: gl.constexpr, g, at):
        return gl.cdiv(g[5], 128)

    @jit
    def corner(w: gl.constexpr, at, part: gl.constexpr, half: gl.constexpr):
        """Of a consumer's half: its first row and column."""
        row, column = at[0] * 64 * w.of_a, at[1] * 128 * w.of_b
        if w.tall:
            row += (2 * part + half) * 64
        else:
            row, column = row + part * 64, column + half * 128
        return row, column

    @jit
    def load(w: gl.constexpr, g, at, k, room, slot, bar):
        mbarrier.expect(bar, w.of_a * g[0].block_type.nbytes + w.of_b * g[1].block_type.nbytes)
        for q in gl.static_range(w.of_a):
            row = (at[0] * w.of_a + q) * 64
            tma.async_copy_global_to_shared(g[0], [row, k * 128], bar, room[0].index(w.of_a * slot + q))
        for q in gl.static_range(w.of_b):
            row = (at[1] * w.of_b + q) * 128
            tma.async_copy_global_to_shared(g[1], [row, k * 128], bar, room[1].index(w.of_b * slot + q))

    @jit
    def scale(w: gl.constexpr, g, at, part: gl.constexpr, half: gl.constexpr, block):
        """Of a half's rows, and of its columns."""
        block = min(block, gl.cdiv(g[5], 128) - 1)
        row, column = w.corner(w, at, part, half)
        m = row + gl.arange(0, 64, gl.SliceLayout(1, w.layout))
        for_a = gl.load(g[6] + m * g[7] + block * g[8], m < g[3], other=0.0)
        column = min(column // 128, gl.cdiv(g[4], 128) - 1)
        return for_a, gl.load(g[9] + column * g[10] + block * g[11])

    @jit
    def operands(w: gl.constexpr, part: gl.constexpr, half: gl.constexpr, room, slot):
        if w.tall:
            a, b = room[0].index(4 * slot + 2 * part + half), room[1].index(slot)
        else:
            a, b = room[0].index(2 * slot + part), room[1].index(2 * slot + half)
        return a, b.permute((1, 0))

    @jit
    def product(w: gl.constexpr, g, a, b, before):
        """In the registers of the one before, whose sums have been taken. That they are not added to is
        known when it runs: else the compiler takes others."""
        made = warpgroup_mma(a, b, before, use_acc=g[5] < 0, is_async=True)
        return warpgroup_mma_wait(0, (made,))

    @jit
    def first(w: gl.constexpr, g, at, part: gl.constexpr, room, slot):
        zeros = gl.zeros([64, 128], gl.float32, w.layout)
        a_one, b_one = w.scale(w, g, at, part, 0, 0)
        a_two, b_two = w.scale(w, g, at, part, 1, 0)
        state = zeros, zeros, zeros, a_one, b_one, a_two, b_two
        return w.step(w, g, at, part, 0, state, room, slot, True)

    @jit
    def step(w: gl.constexpr, g, at, part: gl.constexpr, k, state, room, slot, is_head: gl.constexpr):
        """While products run, the scales of the next step come."""
        one, two, made, a_one, b_one, a_two, b_two = state
        next_a_one, next_b_one = w.scale(w, g, at, part, 0, k + 1)
        next_a_two, next_b_two = w.scale(w, g, at, part, 1, k + 1)
        a, b = w.operands(w, part, 0, room, slot)
        if w.from_registers:
            a = a.load(gl.DotOperandLayout(0, w.layout, 4))
        made = w.product(w, g, a, b, made)
        one = scaled_sum(made, gl.expand_dims(a_one * b_one, 1), one)
        other, b = w.operands(w, part, 1, room, slot)
        if w.from_registers:
            other = a
        made = w.product(w, g, other, b, made)
        two = scaled_sum(made, gl.expand_dims(a_two * b_two, 1), two)
        return one, two, made, next_a_one, next_b_one, next_a_two, next_b_two

    @jit
    def last(w: gl.constexpr, g, at, part: gl.constexpr, state, room, slot):
        return state[0], state[1]

    @jit
    def finish(w: gl.constexpr, g, at, part: gl.constexpr, state, room):
        for half in gl.static_range(2):
            where = room[2].index(part * w.places + half % w.places)
            tma.store_wait(w.places - 1)
            where.store(state[half].to(g[2].dtype))
            fence_async_shared()
            row, column = w.corner(w, at, part, half)
            tma.async_copy_shared_to_global(g[2], [row, column], where)


@jit
def fp8_wide_kernel(a, b, c, M, N, K, scale_a, a_row, a_step, scale_b, b_row, b_step, w: gl.constexpr):
    pipeline(w, (a, b, c, M, N, K, scale_a, a_row, a_step, scale_b, b_row, b_step))


VARIANTS = {
    "tall": Fp8Wide(),
    "tall, 3 stages": Fp8Wide(stages=3, places=2),
    "tall, 16 together": Fp8Wide(group=16),
    "wide": Fp8Wide(tall=False),
    "wide, 3 stages": Fp8Wide(tall=False, stages=3, places=2),
    "wide, registers": Fp8Wide(tall=False, from_registers=True),
}


def call(work: Fp8Wide, a: torch.Tensor, b: torch.Tensor, *scales: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[0]
    c = a.new_empty(m, n, dtype=torch.bfloat16)
    blocks = describe(a, [64, 128]), describe(b, [128, 128]), describe(c, [64, 128])
    strides = [(scale, *scale.stride()) for scale in scales]
    tiles = triton.cdiv(m, 64 * work.of_a) * triton.cdiv(n, 128 * work.of_b)
    given = (*blocks, m, n, k, *strides[0], *strides[1])
    launch(fp8_wide_kernel, min(tiles, multiprocessors(a)), given, work, a)
    return c


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default="*", help="sizes that match, as MxNxK")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("there is no GPU here")
    told: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    for m, n, k in SIZES:
        label = f"{m}x{n}x{k}"
        if not fnmatch.fnmatch(label, options.only):
            continue
        a, b, scale_a, scale_b = shipped.inputs(m, n, k, False, "cuda")
        scale_a = scale_a.T.contiguous().T  # as torch asks for it
        with always("tiles"):
            wanted = shipped.fp8_gemm(a, b, scale_a, scale_b)
            calls = {"ships": lambda given=(a, b, scale_a, scale_b): shipped.fp8_gemm(*given)}
            for name, work in VARIANTS.items():
                off = (
                    call(work, a, b, scale_a, scale_b).float() - wanted.float()
                ).norm() / wanted.float().norm()
                if not off < ROUNDED:
                    raise SystemExit(
                        f"{label}: {name} is off by {off:.2g} of what the shipped kernel answers"
                    )
                calls[name] = lambda given=(work, a, b, scale_a, scale_b): call(*given)
            theirs, *ours = times(
                lambda given=(a, b, scale_a, scale_b): shipped._by_torch(*given), *calls.values()
            )
        told[label] = {"cuBLAS": theirs} | dict(zip(calls, ours, strict=True))
        print(
            label,
            *(f"{name} {theirs / us:.3f}" for name, us in zip(calls, ours, strict=True)),
            sep="  ",
            flush=True,
        )
        if options.out:
            options.out.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
