"""A module problem bound to one case: it builds the reference and draws inputs.

Used for the native and the KernelBench format alike.
Not covered: tensors hidden inside other objects that get_inputs() may return.
"""

from __future__ import annotations

import inspect
import itertools
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from assay.problems.devices import CPU, META, on_device, seeded
from assay.problems.distributions import redraw
from assay.problems.nests import is_working_float, map_tensors, tensors_in
from assay.problems.problem import DISTRIBUTIONS, LAYOUTS, Case, Cost
from assay.problems.source import PROBLEM_CODE_ERRORS, explain, no_downloads
from assay.records.errors import UserError

MODES = ("constructed", "train", "eval")


class ModuleInstance:
    """The executed problem file of one case."""

    def __init__(self, module: types.ModuleType, case: Case, path: str) -> None:
        check_case(case, path)
        self.case = case
        self._module = module
        self._path = path
        self._dtype = working_dtype(case.dtype, path)
        with self._blaming("get_init_inputs()"), seeded(0, CPU), on_device(CPU):
            given = module.get_init_inputs() if hasattr(module, "get_init_inputs") else []
            self.init_args, self.init_kwargs = _split_init(given, module.Model)

    def build_reference(self, seed: int, device: torch.device) -> torch.nn.Module:
        """Seed, construct on the CPU (the RNG order candidates replay), move, cast, set the mode."""
        with self._blaming("Model()"):
            model = self.construct(seed, CPU)
            model.to(device)
            for part in model.modules():
                # Module.to leaves plain tensor attributes behind; forward() would then mix devices.
                for name, value in vars(part).items():
                    if isinstance(value, torch.Tensor) and value.device != device:
                        setattr(part, name, value.to(device))
        return model

    def construct(self, seed: int, device: torch.device) -> torch.nn.Module:
        """The reference made on `device` itself; on the meta device this costs no memory."""
        with seeded(seed, device), on_device(device), no_downloads():
            model = self._module.Model(*self.init_args, **self.init_kwargs)
        if self._dtype is not None:
            model.to(self._dtype)
        if self.case.mode != "constructed":
            model.train(self.case.mode == "train")
        return model

    def make_inputs(self, seed: int, device: torch.device) -> list[Any]:
        """The positional arguments of one call, on the device, in the case's dtype and distribution."""
        with self._blaming("get_inputs()"):
            with seeded(seed, device), on_device(device, fixed_seeds_mixed_with=seed), no_downloads():
                given = list(self._module.get_inputs())
            drawn = map_tensors(given, lambda tensor: self._placed(tensor, device))
            del given
            return self._redistributed(drawn, seed, device)

    def task_check(self) -> Callable[[list[Any], Any], str | None] | None:
        """Module problems are judged against the reference alone."""
        return None

    def cost(self) -> Cost | None:
        """The problem's own cost(), for the sizes and the dtype of this case."""
        function = getattr(self._module, "cost", None)
        if function is None:
            return None
        with self._blaming("cost()"):
            arguments: dict[str, Any] = {}
            if "element_bytes" in inspect.signature(function).parameters:
                arguments["element_bytes"] = self._element_bytes()
            elif self._dtype is not None:
                # A floor counted in the problem's own dtype would call honest half-precision runs impossible.
                return None
            given = function(**arguments)
        if not isinstance(given, Mapping) or set(given) != {"bytes", "flops"}:
            raise UserError(f"{self._path}: cost() must return a dict with the keys bytes and flops")
        return Cost(bytes=int(given["bytes"]), flops=int(given["flops"]))

    def constant(self, name: str) -> Any:
        """The value of a module-level constant under this case."""
        return getattr(self._module, name)

    def _element_bytes(self) -> int:
        if self._dtype is not None:
            return self._dtype.itemsize
        floats = [t for t in tensors_in(self.make_inputs(0, META)) if is_working_float(t)]
        return floats[0].element_size() if floats else 4

    def _placed(self, tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
        tensor = tensor.detach() if tensor.requires_grad else tensor
        dtype = self._dtype if self._dtype is not None and is_working_float(tensor) else tensor.dtype
        return tensor.to(device=device, dtype=dtype)

    def _redistributed(self, inputs: list[Any], seed: int, device: torch.device) -> list[Any]:
        if self.case.distribution == "nominal" or device.type == "meta":
            return inputs
        generator = torch.Generator(device=device)
        generator.manual_seed(seed)
        owned = {id(value) for value in vars(self._module).values() if isinstance(value, torch.Tensor)}
        turn = itertools.count()

        def change(tensor: torch.Tensor) -> torch.Tensor:
            place = next(turn)
            if place in self.case.kept or not is_working_float(tensor):
                return tensor
            is_negative = place in self.case.one_signed and bool((tensor < 0).any())
            whole = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
            if not (whole and tensor.is_contiguous()) or id(tensor) in owned:
                # A view, or a tensor the module keeps: writing in place would change something else as well.
                tensor = tensor.clone(memory_format=torch.contiguous_format)
            redraw(tensor, self.case.distribution, generator, behind_prefix=True)
            if place in self.case.one_signed:
                tensor.abs_().mul_(-1.0 if is_negative else 1.0)
            return tensor

        return map_tensors(inputs, change)

    @contextmanager
    def _blaming(self, doing: str) -> Iterator[None]:
        """Problem code that raises becomes one line for the person who wrote it."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        except torch.OutOfMemoryError:
            # The device is too small, the problem is not wrong: the judge may try `reduced_nominal`.
            raise
        except PROBLEM_CODE_ERRORS as error:
            raise UserError(explain(self._path, doing, error)) from error


def check_case(case: Case, path: str) -> None:
    """A UserError for a layout, distribution or mode that does not exist."""
    for kind, value, allowed in (
        ("layout", case.layout, LAYOUTS),
        ("distribution", case.distribution, DISTRIBUTIONS),
        ("mode", case.mode, MODES),
    ):
        if value not in allowed:
            raise UserError(
                f"{path}: case '{case.name}' has {kind} '{value}': use one of {', '.join(allowed)}"
            )


def working_dtype(name: str | None, path: str) -> torch.dtype | None:
    """The torch dtype of a case, or a UserError."""
    if name is None:
        return None
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise UserError(
            f"{path}: dtype '{name}' is no floating-point dtype: use float16, bfloat16, float32 or float64"
        )
    return dtype


def _split_init(given: Any, model: type) -> tuple[list[Any], dict[str, Any]]:
    """Positional and named constructor arguments: a list, a dict, [args..., kwargs] or [[args], kwargs]."""
    if isinstance(given, Mapping):
        return [], dict(given)
    args = list(given)
    if not args or not isinstance(args[-1], dict):
        return args, {}
    signature = inspect.signature(model)
    named = args[-1]
    options = [(args[:-1], named), (args, {})]
    if len(args) == 2 and isinstance(args[0], (list, tuple)):
        options.insert(0, (list(args[0]), named))
    for option_args, option_kwargs in options:
        try:
            signature.bind(*option_args, **option_kwargs)
        except TypeError:
            continue
        return list(option_args), dict(option_kwargs)
    return args, {}
