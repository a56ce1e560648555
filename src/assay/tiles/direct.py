"""How a kernel that Triton has compiled is launched: the only file that knows, written for Triton 3.6.

Triton's own way asks for devices, hooks and scratch memory and encodes every tensor map, in each call. What
a launch needs of all that is the C function which Triton generated for the types of the arguments:

    launch(x, y, z, stream, function, is_cooperative, is_dependent, scratch, profile_scratch,
           (warps, blocks of a cluster, shared bytes), told, enter_hook, exit_hook, *arguments)

Pointers are integers there, a descriptor is its tensor map and then its shape and strides, and the place of a
constant holds anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import triton
from triton.backends.nvidia import driver

from assay.tiles.hopper import TensorDescriptor

IS_KNOWN = triton.__version__.startswith("3.6.")
_ENCODINGS: dict[Any, Any] = {}
"""How the tensor maps of a kind of descriptors are encoded, as compiled kernels say."""


@dataclass
class Described(TensorDescriptor):
    """A descriptor whose tensor map is encoded once."""

    kind: Any = None
    """What a kernel is compiled for of it."""
    encoded: Sequence[Any] = ()
    """As arguments of a launch."""


@dataclass(frozen=True, slots=True)
class Direct:
    """A compiled kernel, to be launched again for arguments of the same kinds."""

    launch: Callable[..., None]
    fixed: tuple[Any, ...]
    constants: tuple[None, ...]

    def __call__(self, grid: tuple[int, ...], stream: int, flat: Sequence[Any]) -> None:
        x, y, z = (*grid, 1, 1)[:3]
        self.launch(x, y, z, stream, *self.fixed, *flat, *self.constants)


def direct(compiled: Any, arguments: Sequence[Any]) -> Direct | None:
    """None where only Triton's own way will do: another version, another GPU, scratch memory.

    Args:
        arguments: that it was compiled for, without the constants at the end.
    """
    run = getattr(compiled, "run", None)
    if not (IS_KNOWN and isinstance(run, driver.CudaLauncher)):
        return None
    constants = tuple(compiled.src.signature.values())[len(arguments) :]
    if run.global_scratch_size or run.profile_scratch_size or any(kind != "constexpr" for kind in constants):
        return None
    if not _learns(compiled.metadata, arguments):
        return None
    # With descriptors, a function in Python stands before the one in C.
    cells = getattr(run.launch, "__closure__", None)
    launch = cells[run.launch.__code__.co_freevars.index("launcher")].cell_contents if cells else run.launch
    flags = run.launch_cooperative_grid, run.launch_pdl
    fixed = (compiled.function, *flags, None, None, compiled.packed_metadata, None, None, None)
    return Direct(launch, fixed, (None,) * len(constants))


def _learns(metadata: Any, arguments: Sequence[Any]) -> bool:
    """How its tensor maps are encoded; false if that is not as in other kernels, which does not happen."""
    kinds = [argument.kind for argument in arguments if isinstance(argument, Described)]
    encodings = getattr(metadata, "tensordesc_meta", None) or []
    if len(kinds) != len(encodings):
        return False
    return all(_ENCODINGS.setdefault(*pair) == pair[1] for pair in zip(kinds, encodings, strict=True))


def encode(descriptor: Described) -> Sequence[Any]:
    """Nothing before a kernel that takes such a descriptor is compiled."""
    if encoding := _ENCODINGS.get(descriptor.kind):
        descriptor.encoded = driver.make_tensordesc_arg(descriptor, encoding)
    return descriptor.encoded


def is_watched() -> bool:
    """Whether somebody wants to be told of launches, which only Triton's own way does."""
    runtime = triton.knobs.runtime
    enter, leave = runtime.launch_enter_hook, runtime.launch_exit_hook
    return bool(getattr(enter, "calls", enter) or getattr(leave, "calls", leave))
