"""Run problem code on the device the judge wants, with a seed the judge chose.

Problem files say "cuda" or "cpu" where they please. `on_device` sends every tensor they make to one device
and makes the torch.cuda calls they use harmless where there is no CUDA; `seeded` gives them a seed and puts
the callers' random state back. Everything patched is restored on exit.

Not covered: legacy constructors such as torch.cuda.FloatTensor, names bound before entry
(`from torch import manual_seed`), and threads: the patches are process-wide while they last.
"""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

CPU = torch.device("cpu")
META = torch.device("meta")

_MOVES = (torch.Tensor.cuda, torch.Tensor.cpu)
_SCALAR_READS: dict[Any, type | None] = {
    torch.Tensor.item: None,
    torch.Tensor.__bool__: bool,
    torch.Tensor.__int__: int,
    torch.Tensor.__index__: int,
    torch.Tensor.__float__: float,
}


class _Redirect(TorchFunctionMode):
    """Rewrites every explicit device argument to one device."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        if func in _MOVES:
            return args[0].to(self._device)
        if func in _SCALAR_READS and args[0].device.type == "meta":
            # Data that is not there cannot be read. One is as good a guess as any: only shapes are asked for.
            kind = _SCALAR_READS[func] or (float if args[0].is_floating_point() else int)
            return kind(1)
        if func is torch.Tensor.pin_memory:
            return args[0]
        if named.get("device") is not None:
            named["device"] = self._device
        if named.get("pin_memory"):
            named["pin_memory"] = False
        if func is torch.Tensor.to and len(args) > 1 and isinstance(args[1], (str, int, torch.device)):
            args = (args[0], self._device, *args[2:])
        return func(*args, **named)


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    """Stands in for a call that must have no effect."""


def _generator_class(device: torch.device, mixed_with: int | None) -> type[torch.Generator]:
    """torch.Generator on the wanted device; a fixed seed is mixed with the judge's when there is one."""
    # A generator on the meta device cannot exist, and meta tensors accept a CPU one.
    where = CPU if device.type == "meta" else device

    class RedirectedGenerator(torch.Generator):
        def __new__(cls, device: Any = None) -> RedirectedGenerator:
            # torch's type stub omits Generator.__new__, which is where the device goes in.
            return super().__new__(cls, device=where)  # pyrefly: ignore

        def manual_seed(self, seed: int) -> torch.Generator:
            mixed = seed if mixed_with is None else (seed * 1_000_003 + mixed_with) % 2**63
            return super().manual_seed(mixed)

    return RedirectedGenerator


@contextmanager
def _patched(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def _seed_calls() -> list[tuple[Any, str]]:
    calls: list[tuple[Any, str]] = [
        (torch, "manual_seed"),
        (torch.random, "manual_seed"),
        (torch.cuda, "manual_seed"),
        (torch.cuda, "manual_seed_all"),
        (random, "seed"),
    ]
    if "numpy" in sys.modules:
        calls.append((sys.modules["numpy"].random, "seed"))
    return calls


@contextmanager
def on_device(device: torch.device, fixed_seeds_mixed_with: int | None = None) -> Iterator[None]:
    """Everything the block makes lands on `device`.

    With `fixed_seeds_mixed_with`, calls that set a fixed seed do nothing and generators mix that number in:
    a get_inputs() that starts with manual_seed(0) would otherwise hand every call the same input.
    """
    # Meta kernels import dynamo at first use, and dynamo keeps a table of torch's functions: it must not
    # see the stand-ins below. Costs 1.6 s once per process.
    importlib.import_module("torch._dynamo")
    with ExitStack() as stack:
        generator = _generator_class(device, fixed_seeds_mixed_with)
        stack.enter_context(_patched(torch, "Generator", generator))
        if fixed_seeds_mixed_with is not None:
            for owner, name in _seed_calls():
                stack.enter_context(_patched(owner, name, _nothing))
        if device.type != "cuda":
            for name in ("synchronize", "empty_cache", "set_device"):
                stack.enter_context(_patched(torch.cuda, name, _nothing))
            stack.enter_context(_patched(torch.cuda, "current_device", lambda: 0))
        stack.enter_context(torch.device(device))
        stack.enter_context(_Redirect(device))
        yield


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed torch, random and numpy for the block; put their states back afterwards."""
    cuda_devices: list[int] = []
    if device.type == "cuda":
        cuda_devices = [torch.cuda.current_device() if device.index is None else device.index]
    numpy = sys.modules.get("numpy")
    python_state = random.getstate()
    numpy_state = numpy.random.get_state() if numpy is not None else None
    try:
        with torch.random.fork_rng(devices=cuda_devices):
            # torch.manual_seed would queue a seed for every GPU, also in a process that must not touch CUDA.
            torch.default_generator.manual_seed(seed)
            if cuda_devices:
                torch.cuda.manual_seed(seed)
            random.seed(seed)
            if numpy is not None:
                numpy.random.seed(seed % 2**32)
            yield
    finally:
        random.setstate(python_state)
        if numpy is not None:
            numpy.random.set_state(numpy_state)
