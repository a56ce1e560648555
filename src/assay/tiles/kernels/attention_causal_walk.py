"""The gradients of causal attention in one walk (attention_one_walk.py), whose tiles differ in length.

Programs take the next tile from a counter, the longest first, and end together. Most heads are walked a few
at a time, whose rows the cache keeps; the last ones all at once, so that short tiles come last.

dV and then dK leave by way of a place of their own, and the next tile's keys and values are loaded meanwhile.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import triton

from assay.tiles.assembler import fetch
from assay.tiles.counted_pipeline import counted_pipeline
from assay.tiles.hopper import fence_async_shared, gl, jit, tma
from assay.tiles.kernels.attention_one_walk import STEPS, Gradients, arguments_of
from assay.tiles.launch import describe, launch, multiprocessors
from assay.tiles.pipeline import grouped

TOGETHER = 11
"""Heads of queries that are walked together. By a count of steps, programs end as evenly with 8 or 16."""


@dataclass(frozen=True)
class CausalGradients(Gradients):
    """g goes on: heads of keys that are walked in groups, numbers, order, and k and v as pointers."""

    is_causal: bool = True
    room_of_walk: ClassVar[Any] = Gradients.room

    @jit
    def room(w: gl.constexpr, g):
        return w.room_of_walk(w, g) + (gl.allocate_shared_memory(g[4].dtype, [2, 1, 64, w.D], g[4].layout),)

    @jit
    def numbers(w: gl.constexpr, g):
        return g[16]

    @jit
    def counter(w: gl.constexpr, g):
        return g[17] + 4 * (w.tiles(w, g) + 1)

    @jit
    def place(w: gl.constexpr, g, t, n):
        """A block of keys that comes first is seen by most queries. Heads beyond the groups are one."""
        columns = gl.cdiv(g[7], 128)
        first, rows, group = 0, g[15], g[14]
        if t >= g[15] * columns:
            t -= g[15] * columns
            first, rows = g[15], g[8] - g[15]
            group = rows
        head, block = grouped(t, rows, columns, group)
        return block * 128, first + head

    @jit
    def approach(w: gl.constexpr, g, at):
        """Keys and values come into the cache."""
        size_bytes = min(g[7] - at[0], 128) * (w.D * 2)
        place = (at[1] * g[7] + at[0]) * w.D
        fetch(g[18] + place, size_bytes)
        fetch(g[19] + place, size_bytes)

    @jit
    def finish(w: gl.constexpr, g, at, part: gl.constexpr, state, room):
        corner = [at[1], at[0] + part * 64, 0]
        dk, dv = (state[0] * g[11]).to(g[0].dtype), state[1].to(g[0].dtype)
        w.send(w, g[5], corner, dv, room[7].index(part))
        w.send(w, g[4], corner, dk, room[7].index(part))

    @jit
    def send(w: gl.constexpr, to, corner, value, place):
        """Once what was sent from there before is away."""
        tma.store_wait(0)
        gl.thread_barrier()
        place.reshape([64, w.D]).store(value)
        fence_async_shared()
        tma.async_copy_shared_to_global(to, corner, place)


@jit
def causal_gradients_kernel(
    q, do, k, v, dk, dv, S, T, kv_heads, group, scale2, scale, rows, sums, together,
    in_groups, numbers, order, keys, values, w: gl.constexpr,
):  # fmt: skip
    given = (
        q, do, k, v, dk, dv, S, T, kv_heads, group, scale2, scale, rows, sums, together,
        in_groups, numbers, order, keys, values,
    )  # fmt: skip
    counted_pipeline(w, given)


@functools.cache
def choose(d: int, s: int, t: int, group: int) -> CausalGradients:
    is_askew = (t - s) % STEPS[d]["BM"] != 0
    return CausalGradients(D=d, is_ragged=t % 128 != 0, is_askew=is_askew, group=group, **STEPS[d])


def causal_gradients(
    flat: Mapping[str, torch.Tensor],
    kept: torch.Tensor,
    sums_of_dq: torch.Tensor,
    order: torch.Tensor,
    scale: float,
) -> None:
    """dK, dV and the sums of dQ. The kernel launched before is the one that writes `order`: the numbers of
    tiles and of the end, each four times, and then the counter."""
    (heads, s, d), (kv_heads, t, _) = flat["q"].shape, flat["k"].shape
    group = heads // kv_heads
    work = choose(d, s, t, group)
    close = max(TOGETHER // group, 1)
    in_groups = max(kv_heads // close - 1, 0) * close
    walked = arguments_of(work, flat, kept, sums_of_dq, scale)
    arguments = (*walked, close, in_groups, describe(order, [4]), order, flat["k"], flat["v"])
    programs = min(triton.cdiv(t, 128) * kv_heads, multiprocessors(kept))
    launch(causal_gradients_kernel, programs, arguments, work, kept, waits_itself=True)
