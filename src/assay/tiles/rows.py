"""Rows that lie in registers: how many a program takes, and what of them a kernel accepts."""

from __future__ import annotations

import functools
import math

import torch
import triton

from assay.tiles.kernel import MOST_ELEMENTS, Unsupported, need_dtype

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
MOST_COLUMNS = 32_768
"""Longer rows do not fit in the registers of one program."""
TILE_ELEMENTS = 1024
VECTOR_BYTES = 16
WARPS_PER_PROCESSOR = 16
"""Backward: enough to hide the reductions, few enough that the sums for the weight stay a small part."""
COPIED_BYTES = 131_072
"""Backward: what of the rows to come may lie in shared memory."""


@functools.cache
def tile(columns: int, elements_per_thread: int) -> tuple[int, int, int]:
    """Rows and columns of a program's tile, and its warps: several short rows, or one long one."""
    width = max(int(triton.next_power_of_2(columns)), 16)
    rows = max(1, TILE_ELEMENTS // width)
    warps = min(max(rows * width // (32 * elements_per_thread), 1), 32)
    return rows, width, warps


def unit_of(tensor: torch.Tensor, *sizes: int) -> int:
    """The longest vector of elements, of up to 16 bytes, that all sizes are multiples of: told so, a compiler
    reads rows in vectors whose length is no multiple of 16 elements."""
    return math.gcd(VECTOR_BYTES // tensor.element_size(), *sizes)


def in_units(tensor: torch.Tensor, *sizes: int) -> tuple[int, list[int]]:
    """That vector, and how many of it each size is."""
    unit = unit_of(tensor, *sizes)
    return unit, [size // unit for size in sizes]


def as_rows(tensor: torch.Tensor) -> torch.Tensor:
    """(rows, columns)."""
    return tensor if tensor.ndim == 2 else tensor.reshape(-1, tensor.shape[-1])


def shaped(rows: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return rows if like.ndim == 2 else rows.view(like.shape)


def dense_rows(tensor: torch.Tensor) -> torch.Tensor:
    """The same with the elements of a row side by side; rows may lie anywhere."""
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def walkers(rows: int, warps: int, device: torch.device) -> int:
    """Programs that walk over the rows backward; few where interpreted, so that each has several to walk."""
    if device.type != "cuda":
        return min(rows, 3)
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    return min(rows, processors * max(WARPS_PER_PROCESSOR // warps, 1))


def stages(row_bytes: int) -> int:
    """How many rows are on their way at once."""
    return min(max(COPIED_BYTES // row_bytes, 1), 3)


def need_rows(x: torch.Tensor, residual: torch.Tensor | None, *of_columns: torch.Tensor) -> None:
    """What the norms take: rows that fit in registers, a residual of the same shape, one value per column."""
    need_dtype(x, *of_columns, *(() if residual is None else (residual,)), of=DTYPES)
    columns = x.shape[-1] if x.ndim else MOST_COLUMNS + 1
    if columns > MOST_COLUMNS:
        raise Unsupported(
            f"x of shape {tuple(x.shape)}: use 1 axis or more, the last of up to {MOST_COLUMNS}"
        )
    if x.numel() // max(columns, 1) > MOST_ELEMENTS - TILE_ELEMENTS:
        raise Unsupported(f"x of shape {tuple(x.shape)} has too many rows: split the tensor")
    if residual is not None and residual.shape != x.shape:
        raise Unsupported(f"x is {tuple(x.shape)}, the residual {tuple(residual.shape)}: use equal shapes")
    for values in of_columns:
        if values.shape != (columns,):
            raise Unsupported(
                f"x is {tuple(x.shape)}, weight or bias {tuple(values.shape)}: use one per column"
            )
