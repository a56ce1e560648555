"""From tensors to a launch: descriptors, and kernels that are compiled once.

Triton's own way from a call to a launch takes tens of microseconds, as long as a product of 2,048
columns. Here it is gone once for each kernel and kind of arguments; after that a call finds the compiled
kernel and launches it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from assay.tiles.gate import CONSUMER_REGISTERS, layout_of
from assay.tiles.hopper import TensorDescriptor
from assay.tiles.work import Work

ALIGNMENT_BYTES = 16
_COMPILED: dict[tuple[Any, ...], Any] = {}


def runs_on_hopper(*tensors: torch.Tensor) -> bool:
    """Elsewhere there are other ways to compute it."""
    if not all(t.is_cuda for t in tensors):
        return False
    if torch.compiler.is_compiling():  # which warns of what is remembered
        return torch.cuda.get_device_capability(tensors[0].device)[0] == 9
    return _facts(tensors[0].device)[0] == 9


def multiprocessors(tensor: torch.Tensor) -> int:
    return _facts(tensor.device)[1]


@functools.cache
def _facts(device: torch.device) -> tuple[int, int]:
    known = torch.cuda.get_device_properties(device)
    return known.major, known.multi_processor_count


def can_be_described(tensor: torch.Tensor) -> bool:
    """Copies by descriptor begin at multiples of 16 bytes, and so does every row."""
    strides = sorted(tensor.stride())
    size = tensor.element_size()
    aligned = all(stride * size % ALIGNMENT_BYTES == 0 for stride in strides[1:])
    return strides[0] == 1 and aligned and tensor.data_ptr() % ALIGNMENT_BYTES == 0


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy of it that begins where copies may."""
    return tensor if tensor.data_ptr() % ALIGNMENT_BYTES == 0 else tensor.clone()


def describe(tensor: torch.Tensor, block: list[int]) -> TensorDescriptor:
    return _described(tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride(), tuple(block))


@functools.lru_cache(maxsize=4096)
def _described(
    pointer: int, dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...], block: tuple[int, ...]
) -> TensorDescriptor:
    """Knows where a tensor lies and does not keep it alive: the next one in its place finds it again."""
    rows = list(block)
    return TensorDescriptor(_Place(pointer, dtype), list(shape), list(strides), rows, layout_of(dtype, rows))


@dataclass(frozen=True, slots=True)
class _Place:
    """What a descriptor asks of a tensor."""

    pointer: int
    dtype: torch.dtype

    def data_ptr(self) -> int:
        return self.pointer


def launch(kernel: Any, programs: int, arguments: Sequence[Any], work: Work, on: torch.Tensor) -> None:
    """One launch on the current stream of the device that `on` lies on."""
    key = (kernel, work, on.device.index, *(_kind(argument) for argument in arguments))
    with torch.cuda.device(on.device):
        known = _COMPILED.get(key)
        if known is None:
            _COMPILED[key] = kernel[(programs,)](
                *arguments, work.constant, num_warps=4, maxnreg=CONSUMER_REGISTERS
            )
        else:
            known[(programs, 1, 1)](*arguments, work.constant)


def _kind(argument: Any) -> Any:
    """What a kernel is compiled for of an argument: as Triton tells them apart."""
    if isinstance(argument, TensorDescriptor):
        return argument.base.dtype, tuple(argument.block_shape)
    if isinstance(argument, torch.Tensor):
        return argument.dtype, argument.data_ptr() % ALIGNMENT_BYTES == 0
    if isinstance(argument, int):
        return argument == 1, argument % 16 == 0
    return type(argument)


@functools.lru_cache(maxsize=4096)
def width_that_ends_first(
    widths: tuple[tuple[int, float, float], ...], m: int, n: int, steps: int, processors: int
) -> int:
    """Of a tile of 128 rows.

    Args:
        widths: columns, and how long a step and the rest of such a tile take, in steps of the widest.
    """

    def duration(of: tuple[int, float, float]) -> float:
        width, step, rest = of
        tiles = -(-m // 128) * -(-n // width)
        return -(-tiles // processors) * (steps * step + rest)

    return min(widths, key=duration)[0]
