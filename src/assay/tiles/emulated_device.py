"""The parts of a GPU that a tile kernel can get wrong, on a CPU: partitions, barriers, copies in flight.

One program at a time, or all of a launch. Partitions are threads of which one runs; wherever they touch a
barrier, a counter, shared memory or a tensor core, a seeded draw says who goes on: another partition, or a
copy that lands. A copy poisons its place until it lands, a tensor core reads its operands when it is waited
for, a store reads when it is waited for. Whatever two of them do to one place at the same time is an error
in words.

Not covered: layouts, registers, the order in which numbers are rounded. The compile gate sees the first
two.
"""

from __future__ import annotations

import math
import random
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import torch

EAGER, LATE, ANY_ORDER = range(3)
"""When copies land: at once, not before everybody waits for them, or whenever it is their turn."""


MOST_PARTITIONS = 16


class EmulationError(RuntimeError):
    """What a kernel does that a device would not forgive, or would forgive at times."""


@dataclass(frozen=True, slots=True)
class Place:
    """Bytes of a buffer."""

    buffer: int
    first: int
    end: int

    def meets(self, other: Place) -> bool:
        return self.buffer == other.buffer and self.first < other.end and other.first < self.end


@dataclass(slots=True)
class Copy:
    """A copy into shared memory that has not landed."""

    place: Place
    land: Callable[[], None]


@dataclass(eq=False, slots=True)
class Partition:
    """One group of warps."""

    number: int
    program: tuple[int, ...]
    turn: threading.Event = field(default_factory=threading.Event)
    waits_for: Callable[[], bool] | None = None
    what: str = ""
    is_done: bool = False
    products: list[Any] = field(default_factory=list)
    """Tensor core operations in flight, oldest first."""
    stores: list[Any] = field(default_factory=list)
    """Copies to global memory in flight, oldest first."""
    unfenced: list[Place] = field(default_factory=list)
    """Written by threads, and not yet to be seen by what copies and multiplies."""
    has_waited: bool = False
    """For the kernel launched before this one."""


class World:
    """Programs while they run."""

    def __init__(
        self,
        programs: Sequence[tuple[int, ...]],
        grid: tuple[int, ...],
        seed: int,
        late: Sequence[torch.Tensor] = (),
    ) -> None:
        self._programs, self.grid = programs, grid
        self._late = {tensor.data_ptr() for tensor in late}
        self._random = random.Random(seed)
        self._landing = seed % 3
        self.copies: list[Copy] = []
        self.partitions: list[Partition] = []
        self._pool = ThreadPoolExecutor(MOST_PARTITIONS * len(programs))
        self._ended = threading.Event()
        self.error: BaseException | None = None
        self.buffers = 0

    def run(self, body: Callable[[], None]) -> None:
        """Each program as a whole."""
        with self._pool:
            for program in self._programs:
                self._spawn(body, program)
            self._pass_on()
            self._ended.wait()
        if self.error is not None:
            raise self.error
        if self.copies:
            raise EmulationError("the program ends while a copy into shared memory is in flight")

    def fork(self, bodies: Sequence[Callable[[], None]]) -> None:
        """More partitions; whoever asks for them goes on when they are done."""
        made = [self._spawn(body, HERE.partition.program) for body in bodies]
        self.wait(HERE.partition, lambda: all(one.is_done for one in made), "its partitions")

    def _spawn(self, body: Callable[[], None], program: tuple[int, ...]) -> Partition:
        partition = Partition(len(self.partitions), program)
        self.partitions.append(partition)
        self._pool.submit(self._live, partition, body)
        return partition

    def _live(self, partition: Partition, body: Callable[[], None]) -> None:
        partition.turn.wait()
        HERE.world, HERE.partition = self, partition
        try:
            if self.error is None:
                body()
                if partition.stores:
                    raise EmulationError("the program ends while a copy out of shared memory is in flight")
        finally:
            self.error = self.error or sys.exception()
            partition.is_done = True
            self._pass_on()

    def switch(self, partition: Partition) -> None:
        """Others may go on here."""
        partition.turn.clear()
        self._pass_on()
        partition.turn.wait()
        if self.error is not None:
            raise EmulationError("another partition failed")

    def wait(self, partition: Partition, until: Callable[[], bool], what: str) -> None:
        partition.waits_for, partition.what = until, what
        self.switch(partition)
        partition.waits_for = None

    def _pass_on(self) -> None:
        """Give the turn to somebody who can use it; copies land in between."""
        while True:
            alive = [one for one in self.partitions if not one.is_done]
            ready = [one for one in alive if self.error or one.waits_for is None or one.waits_for()]
            if self.copies and self._lands(bool(ready)):
                self.copies.pop(self._random.randrange(len(self.copies))).land()
                continue
            if ready:
                self._random.choice(ready).turn.set()
                return
            if not alive:
                self._ended.set()
                return
            waits = "; ".join(f"partition {one.number} waits for {one.what}" for one in alive)
            self.error = EmulationError(f"nobody can go on: {waits}")

    def _lands(self, somebody_is_ready: bool) -> bool:
        if not somebody_is_ready or self._landing == EAGER:
            return True
        return self._landing == ANY_ORDER and self._random.random() < 0.5

    def check_there(self, tensor: torch.Tensor) -> None:
        if tensor.data_ptr() in self._late and not HERE.partition.has_waited:
            raise EmulationError("a tensor is used before the kernel that writes it has ended")

    def check_readable(self, place: Place, who: str) -> None:
        if any(copy.place.meets(place) for copy in self.copies):
            raise EmulationError(f"{who} reads a place while a copy into it is in flight")

    def check_writable(self, place: Place, who: str) -> None:
        self.check_readable(place, who)
        for partition in self.partitions:
            for product in partition.products:
                if any(read.meets(place) for read in product.places):
                    raise EmulationError(f"{who} writes a place that a tensor core still reads")
            if any(store.place.meets(place) for store in partition.stores):
                raise EmulationError(f"{who} writes a place that a copy to global memory still reads")


class _Here(threading.local):
    world: World
    partition: Partition


HERE = _Here()


class Barrier:
    """Counts arrivals and bytes; its phase changes when nothing is left to come."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self._pending = self._bytes = self.phase = 0

    def init(self, count: int) -> None:
        self.count = self._pending = count

    def arrive(self, count: int, size_bytes: int = 0) -> None:
        self._bytes += size_bytes
        self._pending -= count
        if self._pending < 0:
            raise EmulationError(f"{self.name} gets more arrivals in a phase than it was made for")
        self._settle()

    def landed(self, size_bytes: int) -> None:
        self._bytes -= size_bytes
        self._settle()

    def wait(self, parity: int) -> None:
        if not self.count:
            raise EmulationError(f"{self.name} was never initialised")
        HERE.world.wait(HERE.partition, lambda: self.phase != parity, f"phase {parity} of {self.name} to end")

    def _settle(self) -> None:
        if self._pending == 0 and self._bytes == 0:
            self.phase ^= 1
            self._pending = self.count


class Shared:
    """A part of shared memory, and the bytes that it lies in."""

    layout = None

    def __init__(self, data: torch.Tensor, place: Place) -> None:
        self.data, self.place = data, place

    @staticmethod
    def whole(data: torch.Tensor, buffer: int) -> Shared:
        return Shared(data, Place(buffer, 0, data.nbytes))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.data.shape)

    @property
    def dtype(self) -> torch.dtype:
        return self.data.dtype

    def index(self, k: Any) -> Shared:
        data = self.data[int(k)]
        return Shared(data, self._place_of(data) if self.data.is_contiguous() else self.place)

    def slice(self, start: int, length: int, dim: int = 0) -> Shared:
        return Shared(self.data.narrow(dim, start, length), self.place)

    def permute(self, order: Sequence[int]) -> Shared:
        return Shared(self.data.permute(*order), self.place)

    def reshape(self, shape: Sequence[int]) -> Shared:
        return Shared(self.data.view(*shape), self.place)

    def _reinterpret(self, dtype: torch.dtype, shape: Sequence[int], layout: Any) -> Shared:
        """What lies from its beginning on, which may be more than it."""
        first = int(self.data.storage_offset()) * self.data.element_size()
        memory = torch.empty(0, dtype=torch.uint8).set_(self.data.untyped_storage())
        size_bytes = math.prod(shape) * dtype.itemsize
        if not self.data.is_contiguous() or first + size_bytes > memory.numel():
            raise EmulationError(f"{list(shape)} of {dtype} do not lie there")
        data = memory[first : first + size_bytes].view(dtype).view(*shape)
        return Shared(data, self._place_of(data))

    def _place_of(self, data: torch.Tensor) -> Place:
        first = int(data.storage_offset()) * data.element_size()
        return Place(self.place.buffer, first, first + data.nbytes)

    def store(self, value: torch.Tensor) -> None:
        world, partition = HERE.world, HERE.partition
        world.switch(partition)
        world.check_writable(self.place, "a store into shared memory")
        self.data.copy_(value)
        partition.unfenced.append(self.place)

    def load(self, layout: Any = None) -> torch.Tensor:
        HERE.world.switch(HERE.partition)
        HERE.world.check_readable(self.place, "a load from shared memory")
        return self.data.clone()


class Barriers:
    """Barriers side by side."""

    def __init__(self, barriers: Sequence[Barrier]) -> None:
        self._barriers = barriers

    def index(self, k: Any) -> Barrier:
        return self._barriers[int(k)]
