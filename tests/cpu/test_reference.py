"""Honest variants, mutants of functions and new weights: they differ where they should and nowhere else."""

from __future__ import annotations

import platform
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from assay.correctness import Reference, perturbed, pinned_precision, tensors_of
from assay.correctness.honest import Reordered, RoundingNoise
from assay.correctness.mutants import Linearised
from assay.problems import Case, Precision

CPU = torch.device("cpu")


pytestmark = pytest.mark.usefixtures("one_thread")


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Built:
    """An instance around one module constructor."""

    case = Case("built")

    def __init__(self, module: Callable[[], torch.nn.Module]) -> None:
        self._module = module

    def build_reference(self, seed: int, device: torch.device) -> torch.nn.Module:
        torch.manual_seed(seed)
        return self._module()


def reference(module: Callable[[], torch.nn.Module], seed: int = 0) -> Reference:
    return Reference(Built(module), Precision(), CPU, seed)  # type: ignore[arg-type]


SUMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda x: x.sum(),
    "row_sum": lambda x: x.sum(-1),
    "column_sum": lambda x: x.sum(0, keepdim=True),
    "mean": lambda x: x.mean(),
    "row_mean": lambda x: x.mean(dim=1, keepdim=True),
    "softmax": lambda x: x.softmax(-1),
    "column_softmax": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(0),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "norm": lambda x: torch.linalg.vector_norm(x, dim=-1),
    "product": lambda x: x @ x.T,
    "batched": lambda x: torch.bmm(x[None], x.T[None]),
    "linear": lambda x: F.linear(x, x[:50], x[:50, 0]),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", SUMS)
def test_reordered_differs_in_bits_and_is_close(name: str, dtype: torch.dtype) -> None:
    function = SUMS[name]
    different = False
    for seed in range(3):
        x = normal(100, 1500, seed=seed).to(dtype)
        native = function(x)
        with Reordered():
            other = function(x)
        assert other.dtype == native.dtype and other.shape == native.shape
        different |= not torch.equal(other, native)
        exact = function(x.double())
        scale = float(exact.square().mean().sqrt())
        error = float((other.double() - exact).square().mean().sqrt())
        assert error <= max(2000 * torch.finfo(torch.float32).eps, torch.finfo(dtype).eps) * max(scale, 1)
    # Rounded to bfloat16 the orders mostly agree again; torch for aarch64 adds these up in sequence itself.
    in_sequence = platform.machine() == "aarch64" and name in ("column_softmax", "log_softmax")
    assert different or dtype == torch.bfloat16 or in_sequence


def test_reordered_leaves_other_operators_and_integers_alone() -> None:
    x = normal(30, 40)
    counts = torch.arange(1000)
    with Reordered():
        assert torch.equal(torch.relu(x) * 2, torch.relu(x) * 2)
        assert counts.sum().item() == 499500
        assert x[:0].sum().item() == 0 and x[:, :0].sum(-1).shape == (30,)
        kept = x.sum((0, 1), keepdim=True)
    assert kept.shape == (1, 1)


EXACT: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "view": lambda x: x.reshape(-1)[3:],
    "transpose": lambda x: x.T.contiguous(),
    "max": lambda x: x.amax(-1),
    "sort": lambda x: x.sort(-1).values,
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "cat": lambda x: torch.cat([x, -x]),
    "clamp": lambda x: x.clamp(-1, 1),
    "round": torch.round,
    "abs": torch.abs,
    "gather": lambda x: x.gather(1, torch.zeros(30, 1, dtype=torch.int64)),
}


@pytest.mark.parametrize("name", EXACT)
def test_noise_leaves_exact_operators_exact(name: str) -> None:
    x = normal(30, 40).double()
    before = x.clone()
    with RoundingNoise(1e-3, 0, CPU):
        noisy = EXACT[name](x)
    assert torch.equal(noisy, EXACT[name](x)) and torch.equal(x, before)


def test_noise_disturbs_what_is_rounded_by_at_most_its_amplitude() -> None:
    x = normal(30, 40).double() + 3
    with RoundingNoise(1e-3, 0, CPU):
        noisy = x * 2
    relative = (noisy / (x * 2) - 1).abs()
    assert 0.9e-3 < relative.max() <= 1e-3 and (relative > 0).double().mean() > 0.99
    with RoundingNoise(-1e-3, 0, CPU):
        mirrored = x * 2
    assert torch.allclose(noisy + mirrored, x * 4, rtol=1e-12)
    with RoundingNoise(1e-3, 1, CPU):
        assert not torch.equal(x * 2, noisy)


def test_noise_leaves_integers_lower_precisions_and_infinities_alone() -> None:
    x = torch.tensor([1.0, -torch.inf, torch.inf, 0.0], dtype=torch.float64)
    with RoundingNoise(0.5, 0, CPU):
        assert (torch.arange(5) * 2).tolist() == [0, 2, 4, 6, 8]
        assert torch.equal(torch.ones(5) * 3, torch.full((5,), 3.0))
        out = x * 2
    assert out[1:].tolist() == [-torch.inf, torch.inf, 0.0]


def test_runs_leave_the_given_inputs_untouched() -> None:
    class InPlace(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mul_(2)

    subject = reference(InPlace)
    for dtype in (torch.float32, torch.float64):
        x = normal(5, 6).to(dtype)
        before = x.clone()
        outputs = [
            subject.native([x]),
            *subject.exact([x]),
            *subject.reordered([x]),
            *subject.noisy([x], 1e-9, 0, input_amplitude=1e-9),
        ]
        assert torch.equal(x, before)
        assert all(torch.allclose(out.double(), before.double() * 2, rtol=1e-6) for out in outputs)


def test_exact_is_float64_and_the_default_dtype_comes_back() -> None:
    subject = reference(lambda: torch.nn.Linear(30, 20))
    x = normal(7, 30)
    (exact,) = subject.exact([x])
    weights = subject.state()
    expected = x.double() @ weights["weight"].double().T + weights["bias"].double()
    assert exact.dtype == torch.float64 and (exact - expected).abs().max() < 1e-14
    assert torch.get_default_dtype() == torch.float32
    assert subject.state()["weight"].dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "mask",
    [
        lambda x: x.masked_fill(x > 1, torch.finfo(x.dtype).min),
        lambda x: torch.where(x > 1, torch.finfo(x.dtype).max, x),
        lambda x: torch.cat([x, torch.full_like(x, torch.finfo(x.dtype).min)]),
    ],
)
def test_the_largest_number_is_that_of_the_contract(
    mask: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype
) -> None:
    class Masked(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return mask(x)

    x = normal(20, 30).to(dtype)
    (exact,) = reference(Masked).exact([x])
    assert exact.dtype == torch.float64 and torch.equal(exact, mask(x).double())


def function(of: Callable[..., torch.Tensor]) -> Callable[[], torch.nn.Module]:
    class Function(torch.nn.Module):
        def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
            return of(*inputs)

    return Function


def rounded_product(x: torch.Tensor, w: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return (x.to(dtype) @ w.to(dtype)).float() * 2


def test_dtypes_that_a_module_names_do_not_make_the_oracle_less_exact() -> None:
    x, w = normal(20, 30), normal(30, 10, seed=1)
    angles = reference(function(lambda x: x.sin() * torch.arange(30, dtype=torch.float32).div(7).exp()))
    (exact,) = angles.exact([x])
    assert torch.equal(exact, x.double().sin() * torch.arange(30, dtype=torch.float64).div(7).exp())
    for low in (torch.float16, torch.bfloat16):
        rounding = partial(rounded_product, dtype=low)
        (exact,) = reference(function(rounding)).exact([x, w])
        assert exact.dtype == torch.float64
        assert torch.equal(exact, (x.to(low).double() @ w.to(low).double()) * 2)


def test_each_operator_rounds_to_a_unit_of_its_own() -> None:
    half, single = torch.finfo(torch.bfloat16).eps, torch.finfo(torch.float32).eps
    x = normal(20, 30).bfloat16()
    seen = reference(function(lambda x: (x + 1).float().exp().bfloat16().float().sin())).roundings([x])
    assert seen == [("add", half), ("exp", half), ("sin", single)]
    units = {"add": 0.0, "exp": 0.0, "sin": 1e-3}
    with RoundingNoise(0.5, 1, CPU, native=list(units.items())):
        noisy = (x.double() + 1).exp().sin()
    exact = (x.double() + 1).exp().sin()
    assert 0 < ((noisy - exact) / exact).abs().max() <= 1.0001e-3
    with RoundingNoise(0.5, 1, CPU, native=[("mul", 0.0), ("exp", 0.0)]):
        lost = (x.double() + 1).exp()
    assert ((lost - (x.double() + 1).exp()) / lost).abs().max() > 0.1


def test_new_weights_reach_every_run() -> None:
    subject = reference(lambda: torch.nn.Linear(30, 20))
    x = normal(7, 30)
    first = subject.exact([x])[0]
    subject.load_state({"weight": torch.ones(20, 30), "bias": torch.zeros(20)})
    total = x.double().sum(-1, keepdim=True).expand(7, 20)
    assert torch.allclose(subject.exact([x])[0], total) and not torch.allclose(first, total)
    assert torch.allclose(subject.native([x]).double(), total, atol=1e-5)
    subject.rebuild(0)
    assert torch.equal(subject.exact([x])[0], first)


def test_downgraded_rounds_inputs_and_weights() -> None:
    subject = reference(lambda: torch.nn.Linear(30, 20))
    x = normal(7, 30)
    before = {name: tensor.clone() for name, tensor in subject.state().items()}
    (low,) = subject.downgraded([x])  # type: ignore[misc]
    state = {name: tensor.bfloat16().float() for name, tensor in before.items()}
    expected = F.linear(x.bfloat16().float(), state["weight"], state["bias"])
    assert torch.allclose(low, expected, atol=1e-6) and not torch.allclose(
        low, subject.native([x]), atol=1e-4
    )
    assert all(torch.equal(tensor, before[name]) for name, tensor in subject.state().items())
    assert reference(torch.nn.ReLU).downgraded([torch.arange(5)]) is None


ACTIVATIONS = [
    torch.nn.Sigmoid,
    torch.nn.Tanh,
    torch.nn.SiLU,
    torch.nn.GELU,
    torch.nn.Mish,
    torch.nn.Softplus,
    torch.nn.ELU,
]


@pytest.mark.parametrize("module", ACTIVATIONS)
def test_linearised_hits_every_smooth_activation(module: Callable[[], torch.nn.Module]) -> None:
    x = normal(400)
    lines = reference(module).linearised([x])
    assert lines is not None and not torch.allclose(lines[0], module()(x), atol=1e-2)


def test_linearised_is_none_without_activations() -> None:
    assert reference(torch.nn.ReLU).linearised([normal(4)]) is None
    mode = Linearised()
    with mode:
        normal(4).sigmoid()
        torch.tanh(normal(4))
    assert mode.hits == 2


def test_tensors_of_finds_leaves_in_order() -> None:
    a, b = torch.ones(2), torch.zeros(3)
    found = tensors_of({"x": [a, (b, 3)], "y": 2.5, "z": None})
    assert [tuple(t.shape) for t in found] == [(2,), (3,), (), ()]
    assert found[2].item() == 3 and found[3].item() == 2.5 and found[3].dtype == torch.float64


def test_pinned_precision_sets_and_restores() -> None:
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_tf32
    for wanted in (True, False):
        with pinned_precision(Precision(allow_tf32=wanted)):
            assert matmul.allow_tf32 is wanted and torch.backends.cudnn.allow_tf32 is wanted
        assert matmul.allow_tf32 == before


# ---- weights


def state_of(module: torch.nn.Module) -> tuple[dict[str, torch.Tensor], frozenset[str]]:
    return dict(module.state_dict()), frozenset(name for name, _ in module.named_parameters())


def test_perturbed_weights_are_ordinary_numbers() -> None:
    state, names = state_of(torch.nn.BatchNorm1d(500))
    fresh: dict[str, Any] = perturbed(state, names, 7)
    assert fresh.keys() == state.keys()
    assert (fresh["running_var"] > 0).all() and not torch.equal(fresh["running_var"], state["running_var"])
    assert (fresh["bias"] != 0).all() and (fresh["weight"] != 1).all()
    assert fresh["weight"].std() > 0.1 and fresh["bias"].abs().mean() > 1e-3
    assert torch.equal(fresh["num_batches_tracked"], state["num_batches_tracked"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_perturbed_keeps_scale_shape_and_dtype_and_follows_the_seed(dtype: torch.dtype) -> None:
    state, names = state_of(torch.nn.Linear(100, 50).to(dtype))
    before = {name: tensor.clone() for name, tensor in state.items()}
    one, same, two = (perturbed(state, names, seed) for seed in (1, 1, 2))
    for name, tensor in state.items():
        assert one[name].dtype == dtype and one[name].shape == tensor.shape
        assert torch.equal(one[name], same[name]) and not torch.equal(one[name], two[name])
        assert 0.5 < float(one[name].float().std() / tensor.float().std()) < 2
        assert torch.equal(tensor, before[name])
