"""From tensors to a launch: descriptors, and kernels that are compiled once.

Triton's own way from a call to a launch takes tens of microseconds, as long as a product of 2,048
columns. Here it is gone once for each kernel and kind of arguments; after that a call finds the compiled
kernel and launches it directly.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from assay.tiles import choice
from assay.tiles.direct import Described, Direct, direct, encode, is_watched
from assay.tiles.gate import FIRST_REGISTERS, layout_of
from assay.tiles.kernel import INTERPRETED
from assay.tiles.work import Work

ALIGNMENT_BYTES = 16
MOST_CALLS = 4096
_CALLS: dict[tuple[int, tuple[Any, ...]], tuple[Direct, tuple[int, ...], list[Any]]] = {}
"""What was launched on a device for a call, which says where tensors lie on it; all of them are forgotten
when there are too many."""
_KNOWN: dict[tuple[Any, ...], Direct | None] = {}
"""By kernel, device, constants and kinds of arguments; None where Triton's own way is the only one."""


def runs_on_hopper(*tensors: torch.Tensor) -> bool:
    """Elsewhere there are other ways to compute it."""
    for tensor in tensors:
        if not tensor.is_cuda:
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
    is_even = _is_even(tensor.stride(), tensor.element_size())
    return is_even and tensor.data_ptr() % ALIGNMENT_BYTES == 0


@functools.lru_cache(maxsize=4096)
def _is_even(strides: tuple[int, ...], size: int) -> bool:
    dense, *others = sorted(strides)
    return dense == 1 and all(stride * size % ALIGNMENT_BYTES == 0 for stride in others)


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy of it that begins where copies may."""
    return tensor if tensor.data_ptr() % ALIGNMENT_BYTES == 0 else tensor.clone()


def describe(tensor: torch.Tensor, block: Sequence[int]) -> Described:
    """For copies of such blocks; of a dense tensor with more axes than they have, the first are one."""
    return _described(tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), tuple(block))


@functools.lru_cache(maxsize=4096)
def _described(
    pointer: int, dtype: torch.dtype, shape: tuple[int, ...], strides: tuple[int, ...], block: tuple[int, ...]
) -> Described:
    """Knows where a tensor lies and does not keep it alive: the next one in its place finds it again."""
    merged = len(shape) - len(block) + 1
    if merged > 1:
        if any(n > 1 and step != dense for n, step, dense in zip(shape, strides, _dense(shape), strict=True)):
            raise ValueError(f"{list(shape)} with strides {list(strides)} has gaps: make it contiguous")
        shape = (math.prod(shape[:merged]), *shape[merged:])
        strides = _dense(shape)
    place, rows = _Place(pointer, dtype), list(block)
    layout = layout_of(dtype, rows)
    return Described(place, list(shape), list(strides), rows, layout, kind=(dtype, block))


def _dense(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


@dataclass(frozen=True, slots=True)
class _Place:
    """What a descriptor asks of a tensor."""

    pointer: int
    dtype: torch.dtype

    def data_ptr(self) -> int:
        return self.pointer


def call_of(kernel: Any, *given: Any) -> tuple[Any, ...]:
    """What makes a call the same as another: where its tensors lie and how, all else that it is given, and
    who is to answer."""
    call = [kernel.fn, choice.who()]  # whose hashes take no time
    for one in given:
        if isinstance(one, Tensor):
            call += one.data_ptr(), one.dtype, one.shape, one.stride()
        else:
            call.append(one)
    return tuple(call)


def again(call: tuple[Any, ...], on: Tensor) -> bool:
    """Launches what was launched for the same call before; whether there was one."""
    index = on.get_device()
    known = _CALLS.get((index, call))
    if known is None or is_watched() or choice.noted is not None or torch._C._cuda_getDevice() != index:
        return False
    launched, grid, flat = known
    launched(grid, torch._C._cuda_getCurrentRawStream(index), flat)
    return True


def launch(
    kernel: Any,
    programs: int,
    arguments: Sequence[Any],
    work: Work,
    on: Tensor,
    call: tuple[Any, ...] | None = None,
    *,
    waits_itself: bool = False,
) -> None:
    """One launch of an asynchronous kernel, with its work as the last argument.

    Args:
        waits_itself: it may begin before the last kernel has ended, and says where it waits for that one.
    """
    options: dict[str, Any] = {"num_warps": 4, "maxnreg": FIRST_REGISTERS[work.consumers]}
    if waits_itself:
        options["launch_pdl"] = True
    start(kernel, (programs,), arguments, on, call, w=work.constant, **options)


def start(
    kernel: Any,
    grid: tuple[int, ...],
    arguments: Sequence[Any],
    on: Tensor,
    call: tuple[Any, ...] | None = None,
    **constants: Any,
) -> None:
    """One launch on the current stream of the device that `on` lies on.

    Args:
        arguments: all but the constants, which are a kernel's last.
        call: to be found by `again`.
        constants: these, and Triton's options.
    """
    if INTERPRETED:
        kernel[grid](*arguments, **constants)
        return
    index = on.get_device()
    if torch._C._cuda_getDevice() != index:
        with torch.cuda.device(index):
            start(kernel, grid, arguments, on, call, **constants)
        return
    kinds, flat = told_apart(arguments)
    key = (kernel.fn, index, *constants.items(), *kinds)
    known = _KNOWN.get(key)
    if known is None or is_watched():
        _KNOWN[key] = direct(kernel[grid](*arguments, **constants), arguments)
        return
    if call is not None:
        if len(_CALLS) == MOST_CALLS:
            _CALLS.clear()
        _CALLS[index, call] = known, grid, flat
    known(grid, torch._C._cuda_getCurrentRawStream(index), flat)


def told_apart(arguments: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """What a kernel is compiled for of each argument, as Triton tells them apart; and the arguments as a
    direct launch takes them.
    """
    kinds, flat = [], []
    for argument in arguments:
        kind = type(argument)
        if kind is int:
            kinds.append(argument == 1 or (argument % ALIGNMENT_BYTES == 0, argument >> 31))
            flat.append(argument)
        elif kind is Described:
            kinds.append(argument.kind)
            flat += argument.encoded or encode(argument)
        elif kind is Tensor or isinstance(argument, Tensor):
            pointer = argument.data_ptr()
            kinds.append((argument.dtype, pointer % ALIGNMENT_BYTES == 0))
            flat.append(pointer)
        elif kind is tuple:
            for told, inner in zip((kinds, flat), told_apart(argument), strict=True):
                told.append(tuple(inner))
        else:
            kinds.append(kind)
            flat.append(argument)
    return kinds, flat


@functools.lru_cache(maxsize=4096)
def tile_that_ends_first(
    tiles: tuple[tuple[int, int, float, float], ...], m: int, n: int, steps: int, processors: int
) -> tuple[int, int]:
    """Its rows and columns.

    Args:
        tiles: rows, columns, and how long a step and the rest of such a tile take, in any unit.
    """

    def duration(of: tuple[int, int, float, float]) -> float:
        rows, columns, step, rest = of
        number = -(-m // rows) * -(-n // columns)
        return -(-number // processors) * (steps * step + rest)

    return min(tiles, key=duration)[:2]
