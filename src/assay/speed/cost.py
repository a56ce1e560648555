"""The work one call needs: bytes moved and operations done, as the problem declares them or as counted.

A declared cost is the author's word for the least any implementation needs. A counted one is what the
reference does: every input, parameter and buffer read once, every output written once, and the operations
of matrix products, convolutions and attention. Better implementations may get by with less (a table read in
part, a sum computed cleverly), so the two are told apart by `Work.source`.

The arithmetic kind of counted operations is the dtype of the first operand of each operation; that of
declared ones the commonest floating-point dtype of the inputs. Float32 counts as TF32 where TF32 is allowed.

Not covered: operations torch's flop counter has no formula for (elementwise work, sorting, fused
recurrent layers), tensors a module keeps as plain attributes, and inputs written in place: they count as
read only. Each makes the count too small, never too large.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from assay.problems import Instance
from assay.problems.devices import seeded
from assay.problems.nests import tensors_in
from assay.problems.source import PROBLEM_CODE_ERRORS
from assay.records.errors import UserError

DECLARED, COUNTED = "declared", "counted"
_PART_OF_COMPLEX = {torch.complex64: torch.float32, torch.complex128: torch.float64}


@dataclass(frozen=True, slots=True)
class Work:
    """What one call moves and computes."""

    bytes_read: int
    bytes_written: int
    flops: Mapping[str, int]
    """By arithmetic kind, named as in `assay.speed.ceilings.KINDS`."""
    source: str
    """"declared" or "counted"."""


def count_work(
    instance: Instance,
    reference_module: torch.nn.Module,
    inputs: list[Any],
    device: torch.device,
    allow_tf32: bool,
) -> Work:
    """The declared cost if there is one, else a count over one run of the reference.

    Runs the reference once on `inputs`, which are used up if it writes into them. The module stays as it is.
    """
    module = _scratch_copy(reference_module)
    # TF32 exists on GPUs alone; the flag says nothing about a CPU.
    tf32 = allow_tf32 and device.type == "cuda"
    buffers = {name: buffer.detach().clone() for name, buffer in module.named_buffers()}
    parameters = list(module.parameters())
    read = [*tensors_in(inputs), *parameters, *module.buffers()]
    kept = [value for part in module.modules() for value in tensors_in([*vars(part).values()])]
    given = [*read, *kept, *buffers.values()]

    def run() -> Any:
        with seeded(0, device), torch.no_grad():
            return torch.func.functional_call(module, buffers, tuple(inputs))

    declared = instance.cost()
    if declared is not None:
        outputs = run()
        bytes_written = min(_bytes_made(outputs, given), declared.bytes)
        kind = arithmetic_kind(_main_dtype(inputs, parameters, outputs), tf32=tf32)
        return Work(declared.bytes - bytes_written, bytes_written, {kind: declared.flops}, DECLARED)
    outputs, flops = _run_counting(run)
    kinds: Counter[str] = Counter()
    for dtype, count in flops.items():
        kinds[arithmetic_kind(dtype, tf32=tf32)] += count
    return Work(distinct_bytes(read), _bytes_made(outputs, given), dict(kinds), COUNTED)


def distinct_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """The bytes of memory behind the tensors: equal views once, expanded dimensions once."""
    views: dict[int, dict[object, int]] = {}
    sizes: dict[int, int] = {}
    for tensor in tensors:
        if tensor.numel() == 0:
            continue
        storage = tensor.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        elements = 1
        for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
            elements *= length if stride != 0 else 1
        view = (tensor.storage_offset(), tensor.shape, tensor.stride(), tensor.dtype)
        views.setdefault(storage.data_ptr(), {})[view] = elements * tensor.element_size()
    # Views that overlap cannot be more than the memory they share.
    return sum(min(sizes[place], sum(parts.values())) for place, parts in views.items())


def arithmetic_kind(dtype: torch.dtype, *, tf32: bool) -> str:
    """The key under which operations on this dtype are counted."""
    dtype = _PART_OF_COMPLEX.get(dtype, dtype)
    if dtype == torch.float32 and tf32:
        return "tf32"
    if dtype.is_floating_point and dtype.itemsize == 1:
        return "float8_e4m3fn"  # all eight-bit floats run at one rate
    return str(dtype).removeprefix("torch.")


class _FlopsByDtype(TorchDispatchMode):
    """Splits what a flop counter below it counts by the dtype of each operation's first operand."""

    supports_higher_order_operators = True

    def __init__(self, counter: FlopCounterMode) -> None:
        super().__init__()
        self._counter = counter
        self.flops: Counter[torch.dtype] = Counter()

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        before = self._counter.get_total_flops()
        result = func(*args, **(kwargs or {}))
        done = self._counter.get_total_flops() - before
        operand = next(tensors_in([*args]), None) if done else None
        if operand is not None:
            self.flops[operand.dtype] += done
        return result


def _run_counting(run: Callable[[], Any]) -> tuple[Any, Counter[torch.dtype]]:
    counter = FlopCounterMode(display=False)
    split = _FlopsByDtype(counter)
    try:
        with counter, split:
            return run(), split.flops
    except torch.OutOfMemoryError:
        raise
    except (*PROBLEM_CODE_ERRORS, UserError):
        # The counter may know an operation and not the operands it is given (torch 2.11: attention with fewer
        # key heads), or not an operator of higher order. A fault of the module shows again without it.
        return run(), Counter()


def _scratch_copy(module: torch.nn.Module) -> torch.nn.Module:
    """A module whose attributes may change; parameters and buffers, which may be gigabytes, are shared."""
    shared: dict[int, Any] = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    try:
        return copy.deepcopy(module, shared)
    except (TypeError, RuntimeError):
        # It holds what cannot be copied: the source modules of a task, tensors made by an operation.
        return module


def _bytes_made(outputs: Any, given: list[torch.Tensor]) -> int:
    """Bytes of the outputs that are new memory, not views of what was given."""
    places = {tensor.untyped_storage().data_ptr() for tensor in given}
    return distinct_bytes(t for t in tensors_in(outputs) if t.untyped_storage().data_ptr() not in places)


def _main_dtype(*values: Any) -> torch.dtype:
    """The floating-point dtype with the most elements in the first value that has any."""
    for value in values:
        elements: Counter[torch.dtype] = Counter()
        for tensor in _floats(value):
            elements[tensor.dtype] += tensor.numel()
        if elements:
            return elements.most_common(1)[0][0]
    return torch.float32


def _floats(value: Any) -> Iterator[torch.Tensor]:
    return (t for t in tensors_in(value) if t.is_floating_point() or t.is_complex())
