"""What comes before and after the walk of attention's gradients, interpreted on a CPU.

Run as a program, this file is the interpreted half: it prints by how much each of them is off.
"""

from __future__ import annotations

import json
import math

import pytest
import torch
from emulated_kernels import dq_of_sums, order_of, relative
from interpreting import interpreted

from assay.tiles.kernels.attention_backward import ROWS, finish_kernel, prepare_kernel

HEADS, S, PADDED = 3, 150, 256
TILES = (1, 6, 31, 24 * 32 - 2, 2000)
"""24 programs write 32 numbers each at a time, of which one is behind the tiles and one the counter's."""


@pytest.mark.parametrize("d", ["64", "128"])
def test_rows_and_sums(d: str) -> None:
    assert interpreted(__file__)[d] == [0, 0, 0, 0]


def off(d: int) -> list[float]:
    """Row sums with the logarithms, zeros for dQ, the order of tiles, and dQ."""
    do, o = (torch.randn(HEADS, S, d).half() for _ in range(2))
    sums, kept = torch.randn(HEADS, S), torch.full((2, HEADS, PADDED), math.nan)
    sums[1, 7] = -math.inf
    room = torch.full((HEADS * PADDED * d,), math.nan)
    wrong = 0
    for tiles in TILES:
        order = torch.full((4 * (tiles + 2),), -7, dtype=torch.int32)
        arguments = (do, o, sums, kept, room, order, tiles, S, PADDED)
        prepare_kernel[PADDED // ROWS, HEADS](*arguments, D=d, ROWS=ROWS, HAS_SUMS=True)
        wrong += int((order != order_of(tiles)).sum())
    wanted = torch.full((2, HEADS, PADDED), math.inf)
    wanted[0, :, :S] = (sums / math.log(2)).where(sums > -math.inf, math.inf)
    wanted[1], wanted[1, :, :S] = 0, (do.float() * o).sum(-1)
    is_same = torch.allclose(kept, wanted, atol=1e-4)
    zeros = float(room.abs().max())
    dq = torch.full((HEADS, S, d), math.nan).half()
    room.normal_()
    finish_kernel[PADDED // 64, HEADS](room, dq, S, 0.5, D=d)
    of_dq = relative(dq, (dq_of_sums(room, HEADS, S, d) * 0.5).half().float())
    return [float(not is_same), zeros, wrong, of_dq]


if __name__ == "__main__":
    print(json.dumps({d: off(d) for d in (64, 128)}))
