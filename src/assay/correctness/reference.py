"""The specification, run in every way the judge needs: natively, exactly, disturbed, and wrongly on purpose.

Runs in the judge's process on the judge's own copies. Side effects of the module (batch-norm statistics,
recurrent state kept as buffers) are undone after each run, so that runs are independent.

Not covered: modules that keep state outside parameters and buffers.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch

from assay.correctness.honest import KeptWide, Reordered, RoundingNoise, Roundings
from assay.correctness.mutants import Linearised, lower_dtype
from assay.correctness.ties import Ranking, Rankings
from assay.problems import Instance, Precision
from assay.problems.nests import map_tensors
from assay.problems.values import canonical, flatten, unflatten

# What trusted reference code may raise when it is asked to run in a precision it was not written for.
UNSUPPORTED = (RuntimeError, TypeError, ValueError, AssertionError, AttributeError, LookupError)
OTHER_SEED = 20_011


class Reference:
    """One bound specification on one device."""

    def __init__(self, instance: Instance, precision: Precision, device: torch.device, seed: int) -> None:
        self._instance = instance
        self._precision = precision
        self.device = device
        self._module = instance.build_reference(seed, device)
        self._wide: torch.nn.Module | None = None
        self.oracle = "float64"
        self.can_be_fused = False
        """A disturbed run met what fused kernels make another way."""
        self._earlier: list[Any] | None = None
        self._roundings: list[tuple[str, float]] | None = None

    def state(self) -> dict[str, torch.Tensor]:
        return {name: tensor.detach() for name, tensor in self._module.state_dict().items()}

    def parameter_names(self) -> frozenset[str]:
        return frozenset(name for name, _ in self._module.named_parameters())

    def buffer_names(self) -> list[str]:
        return [name for name in self._module.state_dict() if name not in self.parameter_names()]

    def of_state(self, earlier: list[Any]) -> Reference:
        """The same specification, whose answer is what an earlier call and another leave in its buffers."""
        twin = copy.copy(self)
        twin._earlier = earlier
        twin._roundings = None
        return twin

    def constant_parameters(self) -> set[str]:
        """Names of parameters that the constructor makes without randomness, such as gains of one."""
        other = dict(self._instance.build_reference(OTHER_SEED, self.device).named_parameters())
        mine = dict(self._instance.build_reference(OTHER_SEED + 1, self.device).named_parameters())
        return {name for name, tensor in mine.items() if name in other and torch.equal(tensor, other[name])}

    def load_state(self, state: dict[str, torch.Tensor]) -> None:
        self._module.load_state_dict(state)
        self._wide = None

    def rebuild(self, seed: int) -> None:
        """Weights as a constructor run with another seed makes them."""
        self._module = self._instance.build_reference(seed, self.device)
        self._wide = None

    def native(self, inputs: list[Any], *, in_place: bool = False) -> Any:
        """As a user would run it; `in_place` lets a module that writes into its inputs do so."""
        return self._run(self._module, inputs, in_place=in_place)

    def takes_gradients(self, inputs: list[Any]) -> bool:
        """Whether it can be called while gradients are recorded: torch refuses some arguments then."""
        inputs = map_tensors(inputs, torch.clone)
        with _undone(self._module), pinned_precision(self._precision), torch.enable_grad():
            try:
                self._module(*inputs)
            except torch.OutOfMemoryError:
                raise
            except UNSUPPORTED:
                return False
        return True

    def reordered(self, inputs: list[Any]) -> list[torch.Tensor]:
        with Reordered():
            return tensors_of(self._run(self._module, inputs))

    def exact(self, inputs: list[Any]) -> list[torch.Tensor]:
        """In float64; where the module cannot, natively, and `oracle` says why."""
        if self.oracle == "float64":
            try:
                return self.wide(inputs)
            except torch.OutOfMemoryError:
                raise
            except UNSUPPORTED as error:
                text = (str(error).splitlines() or [""])[0][:160]
                self.oracle = f"native precision: {type(error).__name__}: {text}"
        return [_widened(t) for t in tensors_of(self.native(inputs))]

    def wide(self, inputs: list[Any]) -> list[torch.Tensor]:
        """In float64, or whatever the module raises there."""
        return self._run_wide(inputs)

    def noisy(
        self,
        inputs: list[Any],
        amplitude: float,
        seed: int,
        *,
        amplitude_of: Callable[[float], float] | None = None,
        input_amplitude: float,
        chain_amplitude: float = 0.0,
        full_size: bool = False,
        stored_amplitude: float = 0.0,
        alike: bool = False,
    ) -> list[torch.Tensor]:
        """Exact but for relative errors of `amplitude` at every rounding; inputs are disturbed as well.

        Args:
            amplitude_of: by the unit that the specification itself rounds to at each operator, if given.
            chain_amplitude: what each addition of a sum is off by.
        """
        if self.oracle != "float64":
            return [_widened(t) for t in tensors_of(self.native(inputs))]
        native = [(name, amplitude_of(unit)) for name, unit in self.roundings(inputs)] if amplitude_of else []
        noise = RoundingNoise(
            amplitude,
            seed,
            self.device,
            native=native,
            chain_amplitude=chain_amplitude,
            full_size=full_size,
            stored_amplitude=stored_amplitude,
            alike=alike,
        )
        outputs = self._run_wide(inputs, noise, input_amplitude)
        self.can_be_fused |= noise.can_be_fused
        return outputs

    def roundings(self, inputs: list[Any]) -> list[tuple[str, float]]:
        """The operators that round, in their order, with the unit each rounds to; contents do not matter."""
        if self._roundings is None:
            with Roundings() as mode:
                self._run(self._module, inputs)
            self._roundings = mode.seen
        return self._roundings

    def rankings(self, inputs: list[Any]) -> list[Ranking]:
        """What it ranks on its way."""
        with Rankings() as mode:
            self._run(self._module, inputs)
        return mode.seen

    def downgraded(self, inputs: list[Any]) -> list[torch.Tensor] | None:
        """The same function with operands rounded to the next lower precision; None if there is none."""
        tensors: list[torch.Tensor] = []
        tree = flatten(inputs, tensors)
        rounded = [lower_dtype(t) for t in tensors]
        if all(r is t for r, t in zip(rounded, tensors, strict=True)):
            return None
        module = copy.deepcopy(self._module)
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_(lower_dtype(parameter))
        return tensors_of(self._run(module, unflatten(tree, rounded)))

    def linearised(self, inputs: list[Any]) -> list[torch.Tensor] | None:
        """Smooth activations replaced by straight lines; None if the module has none."""
        mode = Linearised()
        with mode:
            outputs = tensors_of(self._run(self._module, inputs))
        return outputs if mode.hits else None

    def _run_wide(
        self, inputs: list[Any], noise: RoundingNoise | None = None, input_amplitude: float = 0.0
    ) -> list[torch.Tensor]:
        if self._wide is None:
            self._wide = copy.deepcopy(self._module).double()
        tensors: list[torch.Tensor] = []
        tree = flatten(inputs, tensors)
        wide = [w.clone() if w is t else w for w, t in zip(map(_widened, tensors), tensors, strict=True)]
        if noise is not None:
            for tensor in wide:
                noise.disturb(tensor, input_amplitude)
        torch.set_default_dtype(torch.float64)
        try:
            with KeptWide(self._lowest(tensors)), noise or contextlib.nullcontext():
                return tensors_of(self._run(self._wide, unflatten(tree, wide), in_place=True))
        finally:
            torch.set_default_dtype(torch.float32)

    def _lowest(self, tensors: list[torch.Tensor]) -> torch.dtype:
        """The least floating precision that anything is computed in; eight bits are only stored."""
        everything = (*tensors, *self._module.parameters())
        floats = [t.dtype for t in everything if t.is_floating_point() and t.dtype.itemsize > 1]
        return max(floats, key=lambda dtype: torch.finfo(dtype).eps, default=torch.float32)

    def _run(self, module: torch.nn.Module, inputs: list[Any], *, in_place: bool = False) -> Any:
        if not in_place:
            # A module that writes into its inputs would make every later run answer another question.
            inputs = map_tensors(inputs, torch.clone)
        with _undone(module), pinned_precision(self._precision), torch.no_grad():
            if self._earlier is None:
                return module(*inputs)
            module(*map_tensors(self._earlier, _widened if module is self._wide else torch.clone))
            module(*inputs)
            state = module.state_dict()
            return [state[name].clone() for name in self.buffer_names()]


def tensors_of(value: Any) -> list[torch.Tensor]:
    """The tensors of a nested value, scalars of Python included as zero-dimensional ones."""
    if isinstance(value, torch.Tensor):
        return [value.detach()]
    if isinstance(value, (bool, int, float)):
        return [torch.tensor(value, dtype=torch.float64 if isinstance(value, float) else None)]
    if isinstance(value, complex):
        return [torch.tensor(value, dtype=torch.complex128)]
    if isinstance(value, dict):
        value = list(canonical(value).values())
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in tensors_of(item)]
    return []


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_floating_point():
        return tensor.double()
    return tensor.to(torch.complex128) if tensor.is_complex() else tensor


@contextlib.contextmanager
def _undone(module: torch.nn.Module) -> Iterator[None]:
    """Put buffers back after the run."""
    before = {name: b.detach().clone() for name, b in module.named_buffers()}
    try:
        yield
    finally:
        with torch.no_grad():
            for name, buffer in module.named_buffers():
                if name in before and buffer.shape == before[name].shape:
                    buffer.copy_(before[name])


@contextlib.contextmanager
def pinned_precision(precision: Precision) -> Iterator[None]:
    """The same TF32 and reduced-precision settings for everyone, whatever the process had before."""
    before = pin_precision(allow_tf32=precision.allow_tf32)
    try:
        yield
    finally:
        for (owner, name), value in before.items():
            setattr(owner, name, value)


def pin_precision(*, allow_tf32: bool) -> dict[tuple[Any, str], bool]:
    """Set every switch that trades precision for speed; returns what each was before."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    wanted: dict[tuple[Any, str], bool] = {
        (matmul, "allow_tf32"): allow_tf32,
        (cudnn, "allow_tf32"): allow_tf32,
        (matmul, "allow_fp16_reduced_precision_reduction"): False,
        (matmul, "allow_bf16_reduced_precision_reduction"): False,
    }
    before = {(owner, name): getattr(owner, name) for owner, name in wanted}
    for (owner, name), value in wanted.items():
        setattr(owner, name, value)
    return before
