"""Gluon's Hopper vocabulary over the emulated device: tiles are torch tensors, layouts mean nothing."""

from __future__ import annotations

import functools
import itertools
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from assay.tiles.emulated_device import (
    HERE,
    Barrier,
    Barriers,
    Copy,
    EmulationError,
    Place,
    Shared,
)


class Descriptor:
    """A tensor that is copied block by block; what lies beyond its edges is zero and is not written."""

    def __init__(self, tensor: torch.Tensor, block: Sequence[int]) -> None:
        if any(n & (n - 1) for n in block):
            raise EmulationError(f"a block of {list(block)} has a side that is no power of two")
        self.tensor, self.dtype, self.layout = tensor, tensor.dtype, None
        self.shape, self.strides = tuple(tensor.shape), tensor.stride()
        size_bytes = tensor.element_size()
        for n in block:
            size_bytes *= n
        self.block_shape = list(block)
        self.block_type = types.SimpleNamespace(shape=list(block), nbytes=size_bytes)

    def part(self, at: Sequence[int]) -> tuple[torch.Tensor, tuple[slice, ...]]:
        """What of the tensor a block takes, and where in the block it lies."""
        ends = [
            (max(a, 0), max(a, 0, min(a + b, n)))
            for a, b, n in zip(at, self.block_shape, self.shape, strict=True)
        ]
        inside = tuple(slice(first - a, end - a) for a, (first, end) in zip(at, ends, strict=True))
        return self.tensor[tuple(slice(*pair) for pair in ends)], inside


class Pointer:
    """A tensor's memory, or many addresses in it."""

    def __init__(self, memory: torch.Tensor, offsets: Any = 0) -> None:
        self.memory, self.offsets = memory, offsets

    def __add__(self, offsets: Any) -> Pointer:
        return Pointer(self.memory, self.offsets + offsets)

    @property
    def dtype(self) -> Any:
        return types.SimpleNamespace(element_ty=self.memory.dtype)

    def read(self, mask: Any = None, other: float = 0.0) -> Any:
        offsets = torch.as_tensor(self.offsets)
        inside = torch.ones_like(offsets, dtype=torch.bool) if mask is None else torch.as_tensor(mask)
        offsets, inside = torch.broadcast_tensors(offsets, inside)
        HERE.world.check_there(self.memory)
        self._check(offsets[inside])
        got = self.memory[torch.where(inside, offsets, 0)]
        return torch.where(inside, got, torch.as_tensor(other, dtype=got.dtype))

    def write(self, value: Any, mask: Any = None) -> None:
        offsets = torch.as_tensor(self.offsets)
        value = torch.as_tensor(value, dtype=self.memory.dtype)
        inside = torch.ones_like(offsets, dtype=torch.bool) if mask is None else torch.as_tensor(mask)
        offsets, inside, value = torch.broadcast_tensors(offsets, inside, value)
        self._check(offsets[inside])
        self.memory[offsets[inside]] = value[inside]

    def add(self, value: torch.Tensor) -> None:
        """Nobody reads it meanwhile: what it was before is not told."""
        offsets = torch.as_tensor(self.offsets)
        self._check(offsets)
        self.memory.index_put_((offsets,), value.to(self.memory.dtype), accumulate=True)

    def take(self) -> int:
        """What it was before it is one more."""
        HERE.world.switch(HERE.partition)
        HERE.world.check_there(self.memory)
        self.memory[self.offsets] += 1
        return int(self.memory[self.offsets]) - 1

    def fetch(self, size_bytes: int) -> None:
        """Nothing comes of it, but what is not there cannot be asked for."""
        first, count = int(self.offsets), size_bytes // self.memory.element_size()
        self._check(torch.tensor([first, first + count - 1]))
        if first * self.memory.element_size() % 16 or size_bytes % 16:
            raise EmulationError("what is fetched does not begin and end at multiples of 16 bytes")

    def _check(self, offsets: torch.Tensor) -> None:
        if offsets.numel() and not 0 <= int(offsets.min()) <= int(offsets.max()) < self.memory.numel():
            raise EmulationError("a pointer leaves its tensor")


IN_FLIGHT = "an accumulator is used before it is waited for"


class Product:
    """A tensor core operation in flight: it reads its operands when it is waited for."""

    def __init__(self, a: Any, b: Any, acc: Any, use_acc: bool) -> None:
        self._operands, self._acc, self._use_acc = (a, b), acc, use_acc
        self.places: list[Place] = [x.place for x in (a, b) if isinstance(x, Shared)]
        self.value: torch.Tensor | None = None

    def finish(self) -> None:
        for place in self.places:
            HERE.world.check_readable(place, "a tensor core")
        a, b = ((x.data if isinstance(x, Shared) else x).float() for x in self._operands)
        product = a @ b
        self.value = product + settled(self._acc) if self._use_acc else product

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise EmulationError(IN_FLIGHT)

    __getattr__ = __add__ = __radd__ = __mul__ = __rmul__ = __sub__ = __truediv__ = __lt__ = __gt__ = _refuse

    @classmethod
    def __torch_function__(cls, *_: Any, **__: Any) -> Any:
        raise EmulationError(IN_FLIGHT)


class _Store:
    def __init__(self, descriptor: Descriptor, at: Sequence[Any], source: Shared) -> None:
        self._descriptor, self._at, self._source = descriptor, [int(a) for a in at], source
        self.place = source.place

    def finish(self) -> None:
        HERE.world.check_readable(self.place, "a copy to global memory")
        part, inside = self._descriptor.part(self._at)
        part.copy_(self._source.data[inside])


def settled(value: Any) -> torch.Tensor:
    if isinstance(value, Product):
        if value.value is None:
            raise EmulationError(IN_FLIGHT)
        return value.value
    return value


def warpgroup_mma(a: Any, b: Any, acc: Any, *, use_acc: Any = True, is_async: bool = False) -> Any:
    here = HERE.partition
    HERE.world.switch(here)
    _fenced([x.place for x in (a, b) if isinstance(x, Shared)], "a tensor core")
    if isinstance(acc, Product) and acc.value is None and acc not in here.products:
        raise EmulationError("an accumulator of another partition is used")
    made = Product(a, b, acc, bool(use_acc))
    here.products.append(made)
    return made if is_async else warpgroup_mma_wait(0, (made,))


def warpgroup_mma_wait(in_flight: int, deps: Sequence[Any]) -> Any:
    here = HERE.partition
    HERE.world.switch(here)
    while len(here.products) > in_flight:
        here.products.pop(0).finish()
    out = [d.value if isinstance(d, Product) and d.value is not None else d for d in deps]
    return out[0] if len(out) == 1 else tuple(out)


def fence_async_shared() -> None:
    HERE.partition.unfenced.clear()


def _fenced(places: Sequence[Place], who: str) -> None:
    for place in HERE.partition.unfenced:
        if any(place.meets(other) for other in places):
            raise EmulationError(f"{who} reads what threads have written without a fence between")


def _copy_in(
    descriptor: Descriptor, at: Sequence[Any], barrier: Barrier, to: Shared, pred: Any = True
) -> None:
    world = HERE.world
    world.switch(HERE.partition)
    if not pred:
        return
    at = [int(a) for a in at]
    world.check_there(descriptor.tensor)
    world.check_writable(to.place, "a copy")
    to.data.fill_(float("nan") if to.data.is_floating_point() else 85)

    def land() -> None:
        part, inside = descriptor.part(at)
        to.data.zero_()
        to.data[inside] = part
        barrier.landed(descriptor.block_type.nbytes)

    world.copies.append(Copy(to.place, land))


def _copy_out(descriptor: Descriptor, at: Sequence[Any], source: Shared) -> None:
    HERE.world.switch(HERE.partition)
    _fenced([source.place], "a copy to global memory")
    HERE.partition.stores.append(_Store(descriptor, at, source))


def _store_wait(in_flight: int) -> None:
    HERE.world.switch(HERE.partition)
    stores = HERE.partition.stores
    while len(stores) > in_flight:
        stores.pop(0).finish()


def _expect(barrier: Barrier, size_bytes: int, pred: Any = True) -> None:
    HERE.world.switch(HERE.partition)
    if pred:
        barrier.arrive(1, size_bytes)


def _arrive(barrier: Barrier, *, count: int = 1, pred: Any = True) -> None:
    if pred:
        barrier.arrive(count)
    HERE.world.switch(HERE.partition)


def _allocate(dtype: torch.dtype, shape: Sequence[int], layout: Any = None) -> Any:
    world = HERE.world
    world.buffers += 1
    if layout is BARRIER:
        one = [Barrier(f"barrier {world.buffers}.{k}") for k in range(shape[0])]
        return Barriers(one) if len(shape) > 1 else one[0]
    filler = float("nan") if dtype.is_floating_point else 85
    return Shared.whole(torch.full(list(shape), filler, dtype=dtype), world.buffers)


def _specialize(parts: Sequence[tuple[Callable[..., None], Any]], warps: Any, registers: Any) -> None:
    if len(warps) != len(parts) - 1 or len(registers) != len(parts) - 1:
        raise EmulationError(f"{len(parts)} partitions, but warps {warps} and registers {registers}")
    HERE.world.fork([lambda part=part: part[0](*part[1]) for part in parts])


def _scan(x: torch.Tensor, axis: int, combine: Callable[[Any, Any], Any]) -> torch.Tensor:
    return torch.stack(list(itertools.accumulate(x.unbind(axis), combine)), axis)


def _wait_for_last() -> None:
    HERE.partition.has_waited = True


def _four_bits(words: torch.Tensor, zeros: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A thread has the eight of a word side by side."""
    shifts = torch.tensor([0, 16, 4, 20, 8, 24, 12, 28])
    return ((words >> shifts) & 15).sub(zeros).to(dtype)


BARRIER = object()


def _nothing(*_: Any, **__: Any) -> None:
    """Layouts, and what only holds a compiler or the next kernel back."""


gl = types.SimpleNamespace(
    constexpr=lambda value: value,
    float32=torch.float32,
    bfloat16=torch.bfloat16,
    float16=torch.float16,
    float8e4nv=torch.float8_e4m3fn,
    int64=torch.int64,
    int32=torch.int32,
    int8=torch.int8,
    uint8=torch.uint8,
    BlockedLayout=_nothing,
    NVMMADistributedLayout=_nothing,
    SwizzledSharedLayout=_nothing,
    NVMMASharedLayout=types.SimpleNamespace(get_default_for=_nothing),
    DotOperandLayout=_nothing,
    SliceLayout=_nothing,
    program_id=lambda axis: HERE.partition.program[axis],
    num_programs=lambda axis: HERE.world.grid[axis],
    allocate_shared_memory=_allocate,
    zeros=lambda shape, dtype, layout=None: torch.zeros(list(shape), dtype=dtype),
    full=lambda shape, value, dtype, layout=None: torch.full(list(shape), value, dtype=dtype),
    arange=lambda start, end, layout=None: torch.arange(start, end),
    static_range=range,
    cdiv=lambda a, b: -(-a // b),
    max=lambda x, axis: settled(x).amax(axis),
    sum=lambda x, axis: settled(x).sum(axis),
    associative_scan=_scan,
    exp2=torch.exp2,
    exp=torch.exp,
    log2=torch.log2,
    reduce=lambda x, axis, combine: functools.reduce(combine, settled(x).unbind(axis)),
    maximum=lambda a, b: torch.fmax(torch.as_tensor(a), torch.as_tensor(b)),
    minimum=lambda a, b: torch.fmin(torch.as_tensor(a), torch.as_tensor(b)),
    where=lambda condition, a, b: torch.where(torch.as_tensor(condition), a, b),
    join=lambda a, b: torch.stack((a, b), -1),
    reshape=lambda x, shape: settled(x).reshape(shape),
    permute=lambda x, order: x.permute(order),
    split=lambda x: x.unbind(-1),
    expand_dims=lambda x, axis: settled(x).unsqueeze(axis),
    convert_layout=lambda x, layout: settled(x),
    load=lambda pointer, mask=None, other=0.0: pointer.read(mask, other),
    store=lambda pointer, value, mask=None: pointer.write(settled(value), mask),
    atomic_add=lambda pointer, value, sem=None: pointer.add(settled(value)),
    warp_specialize=_specialize,
    thread_barrier=_nothing,
)
tma = types.SimpleNamespace(
    async_copy_global_to_shared=_copy_in, async_copy_shared_to_global=_copy_out, store_wait=_store_wait
)
mbarrier = types.SimpleNamespace(
    init=lambda barrier, count: barrier.init(count),
    wait=lambda barrier, phase: barrier.wait(int(phase)),
    expect=_expect,
    arrive=_arrive,
    MBarrierLayout=lambda: BARRIER,
)
WORDS = {
    "gl": gl,
    "tma": tma,
    "mbarrier": mbarrier,
    "warpgroup_mma": warpgroup_mma,
    "warpgroup_mma_wait": warpgroup_mma_wait,
    "fence_async_shared": fence_async_shared,
    "mma_v2": lambda a, b, acc: a.float() @ b.float() + acc,
    "four_bits": _four_bits,
    "two_halves": lambda byte, zeros, dtype: ((byte >> torch.tensor([0, 4])) & 15).sub(zeros).to(dtype),
    "narrowed": lambda x, dtype: settled(x).to(dtype),
    "widened": lambda x, dtype: x.float(),
    "multiplied": lambda a, b, added: settled(a) * b + settled(added),
    "let_next_begin": _nothing,
    "wait_for_last": _wait_for_last,
    "take": lambda counter: counter.take(),
    "heard": lambda place: int(place.load().max()),
    "fetch": lambda place, size_bytes: place.fetch(size_bytes),
}
"""What the names that `assay.tiles.hopper` gives mean here, and `assay.tiles.assembler`."""
