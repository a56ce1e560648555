"""Honest kernels on contents where luck decides: heavy tails, equal elements, numbers near nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from specifications import judged, normal, product_one_by_one, sequential, tf32

from assay.problems.distributions import redraw

pytestmark = pytest.mark.usefixtures("one_thread")
SEEDS = range(8)


def heavy(*shape: int, seed: int) -> torch.Tensor:
    tensor = torch.empty(*shape)
    redraw(tensor, "mixture", torch.Generator().manual_seed(seed))
    return tensor


def largest_first(x: torch.Tensor) -> torch.Tensor:
    """A chain that loses much: everything else is added to the largest element."""
    places = torch.arange(x.shape[-1]).expand(x.shape).clone()
    largest = x.abs().argmax(-1, keepdim=True)
    return x.gather(-1, places.scatter(-1, largest, 0).scatter(-1, torch.zeros_like(largest), largest))


def layer_norm_in_float32(x: torch.Tensor) -> torch.Tensor:
    count = x.shape[-1]
    mean = sequential(largest_first(x)) / count
    centred = x - mean[:, None]
    variance = sequential(largest_first(centred * centred)) / count
    return centred / (variance[:, None] + 1e-5).sqrt()


@pytest.mark.parametrize("seed", SEEDS)
def test_sums_in_the_worst_order_are_honest(seed: int) -> None:
    x = heavy(64, 768, seed=seed)
    assert judged(lambda x: x.sum(-1), [x], sequential(largest_first(x))).ok
    assert judged(lambda x: F.layer_norm(x, x.shape[-1:]), [x], layer_norm_in_float32(x)).ok


def test_a_sample_of_a_very_long_sum_is_no_sum() -> None:
    """In float32 one chain of so many squares stands still; what it loses is nothing an honest kernel may."""
    x = normal(1 << 12, 1 << 12, seed=1)
    sampled = x[:: 1 << 4].square().mean()
    assert judged(lambda x: x.square().mean(), [x], x.square().mean()).ok
    assert not judged(lambda x: x.square().mean(), [x], sampled).ok


@pytest.mark.parametrize("seed", SEEDS)
def test_running_sums_and_log_sums_in_sequence_are_honest(seed: int) -> None:
    x = heavy(32, 1000, seed=seed)
    running = torch.from_numpy(np.cumsum(x.numpy(), axis=-1, dtype=np.float32))
    assert judged(lambda x: x.cumsum(-1), [x], running).ok
    most = x.amax(-1)
    got = most + sequential((x - most[:, None]).exp().flip(-1)).log()
    assert judged(lambda x: x.logsumexp(-1), [x], got).ok


@pytest.mark.parametrize("seed", SEEDS)
def test_products_one_by_one_are_honest_and_coarse_operands_are_not(seed: int) -> None:
    a, b = heavy(24, 512, seed=seed), normal(512, 40, seed=seed)
    assert judged(torch.mm, [a, b], product_one_by_one(a, b)).ok
    assert not judged(torch.mm, [a, b], tf32(a) @ tf32(b)).ok
    deep = [normal(12, 8192, seed=seed), normal(8192, 12, seed=seed + 50)]
    assert judged(torch.mm, deep, product_one_by_one(*deep)).ok
    assert not judged(torch.mm, deep, tf32(deep[0]) @ tf32(deep[1])).ok


@pytest.mark.parametrize("seed", SEEDS)
def test_convolutions_and_transforms_in_other_orders_are_honest(seed: int) -> None:
    x, weight = heavy(2, 16, 12, 12, seed=seed), normal(8, 16, 3, 3, seed=seed)
    columns = F.unfold(x, 3)
    by_product = torch.stack([product_one_by_one(weight.flatten(1), c) for c in columns])
    assert judged(F.conv2d, [x, weight], by_product.reshape(2, 8, 10, 10)).ok
    assert not judged(F.conv2d, [x, weight], F.conv2d(tf32(x), tf32(weight))).ok
    rows = heavy(16, 256, seed=seed)
    padded = torch.fft.fft(rows, n=1024)
    again = torch.fft.ifft(padded * padded.conj())[..., :256].real
    spec_size = 512
    assert judged(
        lambda r: torch.fft.irfft(torch.fft.rfft(r, n=spec_size).abs() ** 2, n=spec_size)[..., :256],
        [rows],
        again.contiguous(),
    ).ok


SPECIFICATIONS = {
    "complex product": lambda x: torch.view_as_real(torch.complex(x, x) @ torch.complex(x.T, -x.T)),
    "transform": lambda x: torch.fft.fft2(x).abs(),
    "back and forth": lambda x: torch.fft.irfft(torch.fft.rfft(x)),
    "group norm": lambda x: F.group_norm(x.reshape(2, 4, -1), 2),
    "log-sum-exp over nothing": lambda x: torch.cat([x.sum(-1), x[:0].logsumexp(-1)]),
    "variance of everything": lambda x: torch.stack(torch.var_mean(x)),
    "transposed convolution": lambda x: F.conv_transpose1d(x[None], x[:, None, :3].repeat(1, 2, 1)),
    "matrix and vector": lambda x: torch.cat([x @ x[0], torch.dot(x[0], x[1]).reshape(1)]),
    "norm of rows": lambda x: torch.linalg.vector_norm(x, dim=1) + torch.linalg.vector_norm(x, ord=1),
}


@pytest.mark.parametrize("name", SPECIFICATIONS)
def test_every_variant_of_a_specification_runs_and_agrees_with_it(name: str) -> None:
    """A wrong answer makes the judge run all of them; the specification itself must pass beside it."""
    spec, x = SPECIFICATIONS[name], normal(16, 24, seed=3)
    right = spec(x)
    assert judged(spec, [x], right).ok
    wrong = right.clone()
    wrong.view(-1)[0] += 1.0
    assert not judged(spec, [x], wrong).ok


def test_factors_below_the_smallest_normal_half_are_honest() -> None:
    z = normal(40, 100, seed=0, scale=7.0).half()
    assert judged(F.silu, [z], z * torch.sigmoid(z)).ok
    assert not judged(F.silu, [z], torch.where(z < -10, 0, F.silu(z))).ok


TIED = torch.tensor([[-1.0, 0.0, 0.0, -2.0, 0.0, -1.0], [5.0, 0.0, 0.0, 0.0, -1.0, -1.0]])


@pytest.mark.parametrize(
    ("places", "right"),
    [
        ([[1, 2], [0, 1]], True),
        ([[4, 1], [0, 3]], True),
        ([[4, 4], [0, 1]], False),  # one place named twice
        ([[4, 3], [0, 1]], False),  # a smaller element
        ([[1, 2], [1, 0]], False),  # both right, the wrong way round
        ([[1, 2], [0, 9]], False),  # no place at all
        ([[1, 2], [0, -1]], False),
    ],
)
def test_any_place_of_an_equal_element_is_right(places: list[list[int]], right: bool) -> None:
    indices = torch.tensor(places)
    assert judged(lambda x: x.topk(2, -1).indices, [TIED], indices).ok is right


def test_of_equal_largest_elements_the_first_is_asked_for() -> None:
    assert judged(lambda x: x.argmax(-1), [TIED], torch.tensor([1, 0])).ok
    assert not judged(lambda x: x.argmax(-1), [TIED], torch.tensor([4, 0])).ok
    assert not judged(lambda x: x.argmax(-1, keepdim=True), [TIED], torch.tensor([[4], [0]])).ok


def test_places_are_found_in_every_dimension() -> None:
    tied = TIED.T.contiguous()
    places = torch.tensor([[4, 0], [1, 3]])
    assert judged(lambda x: x.topk(2, 0).indices, [tied], places).ok
    assert not judged(lambda x: x.topk(2, 0).indices, [tied], places.flip(0)).ok


def test_integers_that_name_no_places_must_be_equal() -> None:
    x = torch.zeros(4, 6)
    x[:, 0] = 1.0
    counts = (x > 0).sum(-1)
    assert not judged(lambda x: (x > 0).sum(-1), [x], counts + 1).ok
    ranks = (x > 0).long() + torch.tensor([[1, 2, 3]]).repeat(4, 2)
    assert not judged(lambda x: (x > 0).long() + ranks - (x > 0).long(), [x], ranks.flip(1)).ok


@pytest.mark.parametrize("seed", SEEDS)
def test_weights_too_small_for_normal_numbers_may_be_lost_and_others_not(seed: int) -> None:
    """Kernels on GPUs flush what is below normal numbers; then it is multiplied by hundreds, or convolved."""
    least = torch.finfo(torch.float32).smallest_normal
    scores = -normal(64, 96, seed=seed).abs() * 3 - 83
    scores[:, 0] = 0.0
    values = heavy(96, 40, seed=seed) * 100
    values[0] = 0.0
    weights = scores.softmax(-1)

    def attend(scores: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return scores.softmax(-1) @ values

    def without(lost: float) -> torch.Tensor:
        return weights.where(weights >= lost, 0.0) @ values

    assert (without(least) != weights @ values).any()
    for lost in (least, 1.4 * least):  # where normal numbers end, and where torch's attention on a CPU does
        assert judged(attend, [scores, values], without(lost), seed).ok
    assert not judged(attend, [scores, values], without(64 * least), seed).ok
    x, taps = weights.reshape(4, 16, 96), values[:16, :24].reshape(8, 16, 3)
    assert judged(F.conv1d, [x, taps], F.conv1d(x.where(x >= least, 0.0), taps), seed).ok
    assert not judged(F.conv1d, [x, taps], F.conv1d(x.where(x >= 64 * least, 0.0), taps), seed).ok
