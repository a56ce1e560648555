"""Ask a module problem whether its own reference accepts a case, without ever making the nominal inputs.

Shapes are tried on the meta device, which holds no data; numbers are tried on the CPU, and only when small.
Not covered: whether a case is a *good* test (an output that ignores its input is legal here; the calibration
in `assay.correctness` finds that).
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from assay.problems.devices import CPU, META, on_device, seeded
from assay.problems.layouts import lay_out, nth_layout
from assay.problems.module_instance import ModuleInstance
from assay.problems.nests import map_tensors, tensors_in
from assay.problems.problem import Case
from assay.problems.source import PROBLEM_CODE_ERRORS, ModuleSource
from assay.records.errors import UserError

# What a legality trial takes as "no": the problem's own errors, raw or already turned into a UserError.
REFUSALS: tuple[type[Exception], ...] = (*PROBLEM_CODE_ERRORS, UserError)
REAL_LIMIT_BYTES = 16 << 20
_SMALL_VALUE = 64


@dataclass(frozen=True, slots=True)
class Shapes:
    """What one set of sizes leads to."""

    inputs: tuple[tuple[int, ...], ...]
    state: tuple[tuple[int, ...], ...]
    """Shapes of parameters and buffers; empty where the model cannot be built without data."""
    input_bytes: int
    state_bytes: int
    part_count: int


class Trials:
    """Legality trials of one problem around one case; each set of sizes is tried once."""

    def __init__(self, source: ModuleSource, around: Case) -> None:
        self._source = source
        self._around = around
        self._legal: dict[str, bool] = {}
        self._shapes: dict[str, Shapes | None] = {}
        self._models: dict[str, torch.nn.Module] = {}
        self.must_be_small: frozenset[str] = frozenset(source.literal_constants())
        """Constants that may set input sizes: real inputs are made only while all of them are small."""
        self.used = 0
        """Sizes tried so far: callers bound their search by it, since a clock would not be repeatable."""
        self.confirmations_left = 1 << 30

    @cached_property
    def works_on_meta(self) -> bool:
        """Whether the meta device can run the reference at all."""
        return any(self._legal.values()) or self._legal_on_meta({})

    def sizes(self, changed: Mapping[str, Any]) -> dict[str, Any]:
        """The case's own sizes with some changed."""
        return {**self._around.sizes, **changed}

    def shapes(self, changed: Mapping[str, Any]) -> Shapes | None:
        """Shapes under these sizes, or None where the file refuses them."""
        key = repr(sorted(changed.items()))
        if key not in self._shapes:
            self._shapes[key] = self._read_shapes(changed)
        return self._shapes[key]

    def legal(self, changed: Mapping[str, Any]) -> bool:
        """Whether the reference runs on these sizes."""
        key = repr(sorted(changed.items()))
        if key not in self._legal:
            self.used += 1
            self._legal[key] = self._legal_on_meta(changed)
            # Unrolled recurrences are slow to try at nominal size: small sizes that run spare the question.
            if not self._legal[key] and not self.works_on_meta:
                case = replace(self._around, sizes=self.sizes(changed))
                self._legal[key] = self.confirmed(case) is not None
        return self._legal[key]

    def confirmed(self, case: Case) -> list[Any] | None:
        """The inputs, if a CPU forward on them raises nothing and returns finite numbers; else None."""
        self.confirmations_left -= 1
        if self.confirmations_left < 0:
            return None
        try:
            with self._instance(case) as instance, seeded(0, CPU), on_device(CPU), torch.no_grad():
                shapes = self.shapes({k: v for k, v in case.sizes.items() if k in self._source.constants})
                if shapes is None or shapes.input_bytes > REAL_LIMIT_BYTES:
                    return None
                inputs = instance.make_inputs(0, CPU)
                model = self._model(instance, case)
                turn = itertools.count()
                outputs = model(
                    *map_tensors(inputs, lambda tensor: lay_out(tensor, nth_layout(case.layout, next(turn))))
                )
                return inputs if _finite(outputs) else None
        except REFUSALS:
            return None

    def flops(self, changed: Mapping[str, Any]) -> int:
        """Multiplications and additions in matrix products and convolutions of one call; 0 if unknown."""
        try:
            case = replace(self._around, sizes=self.sizes(changed))
            with self._instance(case) as instance, torch.no_grad():
                model, inputs = instance.construct(0, META), instance.make_inputs(0, META)
                with seeded(0, CPU), on_device(META), FlopCounterMode(display=False) as counter:
                    model(*inputs)
                return counter.get_total_flops()
        except REFUSALS:
            return 0

    def _model(self, instance: ModuleInstance, case: Case) -> torch.nn.Module:
        """One model per sizes: building the weights is the costly part of a trial."""
        key = repr((sorted(case.sizes.items()), case.dtype, case.mode))
        if key not in self._models:
            self._models = {key: instance.build_reference(0, CPU)}
        return self._models[key]

    def _legal_on_meta(self, changed: Mapping[str, Any]) -> bool:
        try:
            case = replace(self._around, sizes=self.sizes(changed))
            with self._instance(case) as instance, torch.no_grad():
                model = instance.construct(0, META)
                inputs = instance.make_inputs(0, META)
                with seeded(0, CPU), on_device(META):
                    outputs = model(*inputs)
                return next(tensors_in(outputs), None) is not None
        except REFUSALS:
            return False

    def _read_shapes(self, changed: Mapping[str, Any]) -> Shapes | None:
        case = replace(self._around, sizes=self.sizes(changed), distribution="nominal")
        try:
            with self._instance(case) as instance:
                tensors = list(tensors_in(self._cheap_inputs(instance)))
                state, part_count = _state(instance)
        except REFUSALS:
            return None
        return Shapes(
            inputs=tuple(tuple(tensor.shape) for tensor in tensors),
            state=tuple(tuple(tensor.shape) for tensor in state),
            input_bytes=sum(size_bytes(tensor) for tensor in tensors),
            state_bytes=sum(size_bytes(tensor) for tensor in state),
            part_count=part_count,
        )

    def _cheap_inputs(self, instance: ModuleInstance) -> list[Any]:
        """Inputs on the meta device, or real ones where that fails and every size is small."""
        try:
            return instance.make_inputs(0, META)
        except REFUSALS:
            if any(_largest(instance.constant(name)) > _SMALL_VALUE for name in self.must_be_small):
                raise
            return instance.make_inputs(0, CPU)

    @contextmanager
    def _instance(self, case: Case) -> Iterator[ModuleInstance]:
        with self._source.trial(case.sizes) as module, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield ModuleInstance(module, case, self._source.path)


def size_bytes(tensor: torch.Tensor) -> int:
    """Bytes of the tensor's elements, whatever its strides."""
    return tensor.numel() * tensor.element_size()


def _largest(value: Any) -> float:
    if isinstance(value, (list, tuple)):
        return max((_largest(item) for item in value), default=0)
    return value if isinstance(value, (int, float)) else 0


def _state(instance: ModuleInstance) -> tuple[list[torch.Tensor], int]:
    try:
        model = instance.construct(0, META)
    except REFUSALS:
        # Some constructors need data; shapes of the inputs alone still tell most sizes.
        return [], 1
    return [*model.parameters(), *model.buffers()], sum(1 for _ in model.modules())


def _finite(outputs: Any) -> bool:
    tensors = list(tensors_in(outputs))
    if not tensors:
        return isinstance(outputs, (int, float)) and math.isfinite(outputs)
    return all(bool(torch.isfinite(tensor).all()) for tensor in tensors if tensor.is_floating_point())
