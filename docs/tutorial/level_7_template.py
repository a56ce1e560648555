"""Level 7: the same kernel, of which only the compute is written.

Level 6 is mostly ring, barriers, phases, partitions and the walk over tiles: the same in every kernel of this
kind, and where the mistakes are. `assay.tiles` has it once, as a template (src/assay/tiles/pipeline.py). A
kernel is a `Work`: functions that say

    room, tiles, place, steps    what shared memory there is, how many tiles, where one lies, how long it is
    load                         how a step comes into a slot
    first, step, last            what a step computes, with one product in flight
    finish                       what becomes of the sums

Not one of them touches an `empty` barrier or a phase. `Gemm` (src/assay/tiles/kernels/gemm.py) is such a
work, of some sixty lines; attention is another on the same template. Beside level 6 it takes B as (N, K) as
well, has a bias, an activation and a residual in its last function, and chooses narrower tiles where there
are few.

What to look for: whether it keeps the speed of level 6. `Gemm` is run on a CPU under seeded
schedules (tests/tiles/test_emulator.py), and so can be yours.
"""

import torch

from assay.tiles.kernels.gemm import gemm


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return gemm(a, b)
