"""Mamba 2 with weights made a step later than they are: what a GPU has not timed yet.

    python benchmarks/mamba2_weights.py [--out JSON]

What ships makes a chunk's exponentials while products run, as its PTX has them; but ptxas moves all of them
behind the wait for these products, as nothing needs them before. Here a chunk's weights are made and stored
in the next step, while the products with the state run: a store to shared memory and the barrier behind it
stay where they stand, and so what is stored does. The product that they are made of waits in registers.
Each answer is compared with that of the kernel that ships.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from assay.tiles.hopper import gl, jit, warpgroup_mma, warpgroup_mma_wait
from assay.tiles.kernels import mamba2_hopper as shipped
from assay.tiles.kernels.mamba2 import ENTRY
from tiles import times

ROUNDED = 4e-3


@dataclass(frozen=True)
class Later(shipped.Outputs):
    @jit
    def first(w: gl.constexpr, g, at, part: gl.constexpr, room, slot, begun):
        """While one end is added, the next is on its way."""
        state, ended, decay, skip = begun
        alike = w.alike(w, room, slot)
        for before in range(1, at[3]):
            soon, later = w.ended(w, g, at, part, before + 1)
            state = state * gl.exp2(decay) + ended
            ended, decay = soon, later
        return state, skip, warpgroup_mma_wait(0, (alike,))

    @jit
    def step(w: gl.constexpr, g, at, part: gl.constexpr, k, state, room, slot, is_head: gl.constexpr):
        """Of the chunk before: its weights are made while the products with the state run. Those of the next
        chunk's b and c run while y is written."""
        state, skip, alike = state
        before = (slot + w.stages - 1) % w.stages
        kept = room[3].index(w.consumers * before + part)
        y = w.seen(w, g, state, room, before)
        gl.thread_barrier()  # else ptxas begins it behind all that follows
        x = w.own(w, g, part, room, before)
        left, state = w.decayed(w, g, x, state, kept)
        state = warpgroup_mma(left, room[1].index(before).reshape([64, w.N]), state, is_async=True)
        w.keep(w, g, part, alike * w.between(w, g, kept), room)
        y = w.grown(w, g, part, x, warpgroup_mma_wait(1, (y,)), kept, room)
        alike = w.alike(w, room, slot)
        y, state = warpgroup_mma_wait(1, (y, state))
        w.write(w, g, at, part, k - 1, y, x, skip, room)
        return state, skip, warpgroup_mma_wait(0, (alike,))

    @jit
    def last(w: gl.constexpr, g, at, part: gl.constexpr, state, room, slot):
        """Nobody asks for the state after the last chunk."""
        state, skip, alike = state
        y = w.seen(w, g, state, room, slot)
        x = w.own(w, g, part, room, slot)
        kept = room[3].index(w.consumers * slot + part)
        w.keep(w, g, part, alike * w.between(w, g, kept), room)
        y = w.grown(w, g, part, x, warpgroup_mma_wait(0, (y,)), kept, room)
        w.write(w, g, at, part, w.steps(w, g, at) - 1, warpgroup_mma_wait(0, (y,)), x, skip, room)
        return state


def later(*given: Any) -> torch.Tensor:
    with mock.patch.object(shipped, "Outputs", Later):
        return shipped.mamba2_on_hopper(*given)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("there is no GPU here")
    told: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    for sizes in ENTRY.sizes:
        label = " ".join(f"{name} {n}" for name, n in sizes.items())
        given = ENTRY.inputs(**sizes)
        wanted, got = shipped.mamba2_on_hopper(*given).float(), later(*given).float()
        off = float((got - wanted).norm() / wanted.norm())
        if not off < ROUNDED:
            raise SystemExit(f"{label}: off by {off:.2g} of what the shipped kernel answers")
        ships_us, later_us = times(lambda g=given: shipped.mamba2_on_hopper(*g), lambda g=given: later(*g))
        told[label] = {"ships": ships_us, "later": later_us}
        print(f"{label}: ships {ships_us:.1f} us, later {later_us:.1f} us", flush=True)
        if options.out:
            options.out.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
