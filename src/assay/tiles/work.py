"""What a kernel adds to the template for asynchronous kernels (pipeline.py), and how it becomes a
constant of one.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
from dataclasses import dataclass, field
from typing import Any, ClassVar

from triton.runtime.jit import JITFunction

from assay.tiles.hopper import gl


@dataclass(frozen=True)
class Work:
    """What a kernel adds to the template, and its sizes; a constant of the compiled kernel.

    A subclass has these functions, whose first argument is the work itself and whose second is `g`, the
    kernel's arguments as a tuple:

        room(w, g)                       shared memory, as a tuple
        tiles(w, g)                      how many tiles there are
        place(w, g, t, n)                where tile t is, the n-th of this program, as a tuple
        steps(w, g, at)                  how many steps it takes, one at least
        load(w, g, at, k, room, slot, bar)     step k into a slot, its bytes announced to the barrier
        enter(w, g, at, room, bar)       what belongs to the tile, if it has `entries`
        first(w, g, at, part, room, slot)      the state after step 0; if the work is `early`, given besides
                                         what begin(w, g, at, part, room) made before its data was there
        step(w, g, at, part, k, state, room, slot, before, is_head)
                                         the state after step k; `before` is the last slot, and the first
                                         `heads` steps are told
        last(w, g, at, part, state, room, slot)     the state when all products have ended; if the work has a
                                         `tail`, with the data of the last step
        finish(w, g, at, part, state, room)    the state into global memory
    """

    stages: int
    consumers: int = 2
    holds: ClassVar[bool] = True
    """Products of a step may be in flight during the next, and its slot is held as long."""
    tail: ClassVar[bool] = False
    early: ClassVar[bool] = False
    entries: ClassVar[int] = 0
    """Places for what belongs to a tile; with one, results leave by way of it, with two they have another."""
    heads: ClassVar[int] = 1
    code: str = field(init=False, default="")
    """A digest of the files with its functions and those they call: compiled kernels are cached by constants,
    and do not see into this one."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "code", _digest(type(self)))

    @functools.cached_property
    def constant(self) -> Constant:
        """Itself as an argument of the kernel."""
        return Constant(self)


@functools.cache
def _digest(work: type[Work]) -> str:
    source = "".join(inspect.getsource(sys.modules[name]) for name in files_of(work))
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def files_of(work: type[Work]) -> list[str]:
    """The modules of its functions, and of those that they find beside them."""
    own = dict.fromkeys(kind.__module__ for kind in work.__mro__ if issubclass(kind, Work))
    beside = (value for name in own for value in vars(sys.modules[name]).values())
    called = sorted({value.fn.__module__ for value in beside if isinstance(value, JITFunction)})
    return list(dict.fromkeys((*own, *called)))


class Constant:
    """A work as kernels see it: its sizes are constants of the language."""

    def __init__(self, work: Work) -> None:
        self.work, self._hash = work, hash(work)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.work, name)
        return value if isinstance(value, JITFunction) else gl.constexpr(value)

    def __repr__(self) -> str:
        return repr(self.work)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self.work == other.work

    def __hash__(self) -> int:
        return self._hash
