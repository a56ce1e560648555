"""Calibration: ordinary cases tell every mutant from a right answer, and cases that cannot are recognised."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from specifications import Function

from assay.correctness import Calibration, Reference, Yardstick, calibrate, tensors_of
from assay.correctness.mutants import PRECISION, REQUIRED, lower_dtype, mutate
from assay.problems import Case, Precision

CPU = torch.device("cpu")
SEEDS = (1, 2, 3)
Draw = Callable[[torch.Generator], list[Any]]


pytestmark = pytest.mark.usefixtures("one_thread")


class Drawn:
    """An instance made of a module's constructor and a way to draw inputs."""

    case = Case("drawn")
    init_args: tuple[Any, ...] = ()

    def __init__(
        self,
        module: Callable[[], torch.nn.Module],
        draw: Draw,
        check: Callable[..., str | None] | None = None,
    ) -> None:
        self._module, self._draw, self._check = module, draw, check

    def build_reference(self, seed: int, device: torch.device) -> torch.nn.Module:
        torch.manual_seed(seed)
        return self._module()

    def make_inputs(self, seed: int, device: torch.device) -> list[Any]:
        return self._draw(torch.Generator().manual_seed(seed))

    def task_check(self) -> Callable[..., str | None] | None:
        return self._check


def normal(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32, scale: float = 1.0) -> Draw:
    return lambda g: [(torch.randn(*shape, generator=g) * scale).to(dtype) for shape in shapes]


def of(function: Callable[..., Any], draw: Draw, seeds: tuple[int, int, int] = SEEDS) -> Calibration:
    return calibrate(Drawn(lambda: Function(function), draw), Precision(), CPU, seeds)  # type: ignore[arg-type]


ORDINARY: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "softmax": (lambda x: x.softmax(-1), ((40, 100),)),
    "long_softmax": (lambda x: x.softmax(-1), ((4, 3000),)),
    "product": (torch.mm, ((40, 90), (90, 50))),
    "scalar": (lambda x: x.sum(), ((40, 90),)),
    "row_sum": (lambda x: x.sum(-1), ((70, 90),)),
    "gelu": (F.gelu, ((500,),)),
    "norm": (lambda x: F.layer_norm(x, x.shape[-1:]), ((40, 90),)),
    "two_outputs": (lambda x: (x * 2, x.sum(-1)), ((40, 90),)),
    "argmax": (lambda x: x.argmax(-1), ((40, 90),)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ORDINARY)
def test_ordinary_cases_discriminate_in_every_dtype(name: str, dtype: torch.dtype) -> None:
    function, shapes = ORDINARY[name]
    for seed in range(3):
        found = of(function, normal(*shapes, dtype=dtype), (seed, seed + 10, seed + 30))
        assert found.discriminates and found.survivors == () and not found.random
        assert found.dead_inputs == () and found.written == () and found.oracle == "float64"
        assert "downgraded" not in found.unseen or name in ("argmax", "scalar")


@pytest.mark.parametrize("mutant", REQUIRED)
def test_each_required_mutant_fails(mutant: str) -> None:
    instance = Drawn(lambda: torch.nn.Linear(80, 60), normal((50, 80)))
    for seed in range(4):
        reference = Reference(instance, Precision(), CPU, seed)  # type: ignore[arg-type]
        inputs = instance.make_inputs(seed, CPU)
        yardstick = Yardstick(reference, inputs, Precision(), seed)
        right = [o.to(n.dtype) for o, n in zip(yardstick.oracle, yardstick.native, strict=True)]
        assert yardstick.check(right, levels=(1,)).ok
        wrong = mutate(mutant, right, tensors_of(reference.native(instance.make_inputs(seed + 100, CPU))))
        assert wrong is not None and not yardstick.check(wrong, levels=(1,)).ok


def test_precision_mutants_are_seen_on_ordinary_data() -> None:
    found = of(lambda x: torch.sigmoid(x) * 3, normal((40, 100)))
    assert found.unseen == () and set(PRECISION) == {"downgraded", "linearised"}


def test_shapes_and_dtypes_are_those_of_the_native_outputs() -> None:
    found = of(lambda x: (x.sum(-1), x > 0, x.half()), normal((4, 30)))
    assert found.shapes == ((4,), (4, 30), (4, 30)) and found.dtypes == ("float32", "bool", "float16")


# ---- cases that cannot tell


def test_a_mean_over_many_says_nothing_in_bfloat16() -> None:
    """Two losses over thousands of elements agree to two digits: only float32 tells them apart."""
    shapes = ((90, 200), (90, 200))
    assert "other_input" in of(F.mse_loss, normal(*shapes, dtype=torch.bfloat16)).survivors
    assert of(F.mse_loss, normal(*shapes)).discriminates


def test_constant_output_is_recognised() -> None:
    found = of(lambda x: torch.full_like(x, 3.0), normal((40, 100)))
    assert {"constant", "other_input"} <= set(found.survivors) and not found.discriminates
    assert found.dead_inputs == (0,)


def test_mean_after_softmax_is_recognised() -> None:
    found = of(lambda x: x.softmax(-1).mean(-1), normal((40, 100)))
    assert {"constant", "other_input"} <= set(found.survivors) and found.dead_inputs == (0,)
    to_scalar = of(lambda x: x.softmax(-1).mean(), normal((40, 100)))
    assert "other_input" in to_scalar.survivors


def test_saturated_chain_is_recognised() -> None:
    found = of(lambda x: torch.tanh(x * 0.01 + 30), normal((40, 100)))
    assert {"constant", "other_input"} <= set(found.survivors)


def test_zeros_within_tolerance_are_recognised() -> None:
    assert "zeros" in of(lambda x: torch.relu(x - 100), normal((40, 100))).survivors
    assert "zeros" in of(lambda x: x - (x + 1) + 1, normal((40, 100))).survivors


def test_an_ignored_input_is_dead_and_a_used_one_is_not() -> None:
    found = of(lambda x, y, z: x * 2 + 0 * y + z.sum() * 1e-3, normal((40, 100), (40, 100), (9,)))
    assert found.dead_inputs == (1,) and found.discriminates
    # An input that never changes proves nothing either way.
    fixed = of(lambda x, y: x + y, lambda g: [torch.randn(40, 100, generator=g), torch.ones(40, 100)])
    assert fixed.dead_inputs == ()


def test_randomness_is_recognised() -> None:
    assert of(lambda x: F.dropout(x, 0.5, training=True), normal((40, 100))).random
    assert of(lambda x: x + torch.rand_like(x), normal((40, 100))).random
    trained = Drawn(lambda: torch.nn.Dropout(0.5).train(), normal((40, 100)))
    assert not calibrate(trained, Precision(), CPU, SEEDS).discriminates  # type: ignore[arg-type]
    evaluated = Drawn(lambda: torch.nn.Dropout(0.5).eval(), normal((40, 100)))
    assert not calibrate(evaluated, Precision(), CPU, SEEDS).random  # type: ignore[arg-type]


def test_sums_in_another_order_every_time_are_not_randomness() -> None:
    """What atomic additions do: where terms cancel, little is left to agree on."""

    def mean(x: torch.Tensor) -> torch.Tensor:
        return x[torch.randperm(x.shape[0])].sum(0).reshape(-1, 96) / x.shape[0]

    assert not any(of(mean, normal((24, 32 * 96)), (seed, seed, seed + 1)).random for seed in range(4))


def test_lower_precision_is_unseen_on_data_it_can_hold() -> None:
    def small_integers(g: torch.Generator) -> list[torch.Tensor]:
        return [torch.randint(-60, 60, (40, 100), generator=g).float()]

    found = of(torch.relu, small_integers)
    assert found.unseen == ("downgraded",) and found.survivors == ()


def test_a_linearised_activation_is_unseen_where_it_saturates() -> None:
    def far_out(g: torch.Generator) -> list[torch.Tensor]:
        return [torch.randn(40, 100, generator=g), 50.0 * torch.randn(40, 100, generator=g).sign()]

    found = of(lambda x, y: x + torch.sigmoid(y), far_out)
    assert found.unseen == ("linearised",)
    assert of(lambda x, y: x + torch.sigmoid(y), normal((40, 100), (40, 100))).unseen == ()


def test_no_elements_at_all_are_no_complaint() -> None:
    found = of(lambda x: x * 2, normal((0, 100)))
    assert found.survivors == () and found.shapes == ((0, 100),) and not found.random


# ---- the specification's own ways


@pytest.mark.parametrize("error", [RuntimeError, TypeError, AssertionError, KeyError])
@pytest.mark.parametrize("text", ["only float32\nsecond line", ""])
def test_without_float64_the_oracle_says_why(error: type[Exception], text: str) -> None:
    def picky(x: torch.Tensor) -> torch.Tensor:
        if x.dtype != torch.float32:
            raise error(text) if text else error()
        return x * 2

    found = of(picky, normal((40, 100)))
    assert found.oracle.startswith(f"native precision: {error.__name__}") and "\n" not in found.oracle
    assert found.discriminates


def test_modules_that_compute_in_float_have_a_float64_oracle_all_the_same() -> None:
    def spec(x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

    instance = Drawn(lambda: Function(spec), normal((8, 500)))
    reference = Reference(instance, Precision(), CPU, 0)  # type: ignore[arg-type]
    x = instance.make_inputs(0, CPU)[0]
    (exact,) = reference.exact([x])
    wide = x.double()
    expected = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
    assert exact.dtype == torch.float64 and (exact - expected).abs().max() < 1e-14
    assert of(spec, normal((8, 500), dtype=torch.bfloat16)).discriminates


@pytest.mark.parametrize(
    "function", [lambda x: x.add_(1).mul_(2), lambda x: x.relu_(), lambda x: x.mul_(3).sum(-1)]
)
def test_in_place_modules_say_so_and_are_still_judged(function: Callable[..., Any]) -> None:
    found = of(function, normal((20, 100)))
    assert found.written == (0,) and found.discriminates and found.dead_inputs == ()
    instance = Drawn(lambda: Function(function), normal((20, 100)))
    reference = Reference(instance, Precision(), CPU, 0)  # type: ignore[arg-type]
    inputs = instance.make_inputs(5, CPU)
    right = function(inputs[0].clone())
    yardstick = Yardstick(reference, inputs, Precision(), 0)
    assert not yardstick.check([right * 1.5]).ok and yardstick.check([right]).ok
    assert torch.equal(inputs[0], instance.make_inputs(5, CPU)[0])


def test_batch_norm_statistics_are_undone() -> None:
    instance = Drawn(lambda: torch.nn.BatchNorm1d(30).train(), normal((50, 30)))
    reference = Reference(instance, Precision(), CPU, 0)  # type: ignore[arg-type]
    before = {name: tensor.clone() for name, tensor in reference.state().items()}
    inputs = instance.make_inputs(0, CPU)
    first = reference.native(inputs)
    reference.exact(inputs)
    reference.noisy(inputs, 1e-6, 0, input_amplitude=1e-6)
    reference.reordered(inputs)
    reference.downgraded(inputs)
    assert all(torch.equal(tensor, before[name]) for name, tensor in reference.state().items())
    assert torch.equal(reference.native(inputs), first)
    assert calibrate(instance, Precision(), CPU, SEEDS).discriminates  # type: ignore[arg-type]


def test_buffers_are_undone_when_the_module_raises() -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            raise RuntimeError("always")

    reference = Reference(Drawn(Counting, normal((3,))), Precision(), CPU, 0)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError):
        reference.native([torch.zeros(3)])
    assert reference.state()["calls"].item() == 0


def test_large_inputs_are_calibrated_in_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    # By name the package would give the function `calibrate`, not its module.
    monkeypatch.setattr(sys.modules[calibrate.__module__], "LARGE_BYTES", 1000)
    assert of(lambda x: x.softmax(-1), normal((40, 100))).discriminates
    assert "zeros" in of(lambda x: torch.relu(x - 100), normal((40, 100))).survivors
    assert of(lambda x: x + torch.rand_like(x), normal((40, 100))).random


def test_a_task_with_its_own_check_is_asked_instead() -> None:
    def lenient(inputs: list[Any], outputs: Any) -> str | None:
        return None if torch.allclose(outputs, inputs[0] * 2, atol=0.05) else "mismatch found"

    instance = Drawn(lambda: Function(lambda x: x * 2), normal((40, 100)), lenient)
    assert calibrate(instance, Precision(), CPU, SEEDS).discriminates  # type: ignore[arg-type]
    small = Drawn(lambda: Function(lambda x: x * 2), normal((40, 100), scale=1e-3), lenient)
    assert "zeros" in calibrate(small, Precision(), CPU, SEEDS).survivors  # type: ignore[arg-type]


# ---- the mutants themselves


def test_mutants_differ_from_the_right_answer_or_are_none() -> None:
    right, other = [torch.arange(1.0, 101)], [torch.arange(1.0, 101) + 5]
    made = {name: mutate(name, right, other) for name in REQUIRED}
    assert tuple(made) == REQUIRED
    assert all(wrong is not None and not torch.equal(wrong[0], right[0]) for wrong in made.values())
    assert torch.equal(made["dropped_tail"][0][:-12], right[0][:-12])  # type: ignore[index]
    scalar = {name: mutate(name, [torch.tensor(2.0)], [torch.tensor(3.0)]) for name in REQUIRED}
    assert scalar["constant"] is None and scalar["dropped_tail"] is None and scalar["zeros"] is not None
    assert mutate("scaled", [torch.arange(5)], [torch.arange(5)]) is None
    assert mutate("dropped_tail", right, right) is None


@pytest.mark.parametrize(("dtype", "bits"), [(torch.float64, 23), (torch.float32, 7), (torch.bfloat16, 3)])
def test_lower_dtype_rounds_to_the_next_lower_precision(dtype: torch.dtype, bits: int) -> None:
    x = torch.rand(1000, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).add(1).to(dtype)
    error = (lower_dtype(x).double() - x.double()).abs().max()
    assert 0.4 * 2.0**-bits < error <= 0.5 * 2.0**-bits * 1.01
    assert lower_dtype(x).dtype == dtype
    integers = torch.arange(5)
    assert lower_dtype(integers) is integers
