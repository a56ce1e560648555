"""The coarse look at every timed answer, inputs that are almost the last ones, and who shares memory."""

from __future__ import annotations

import math
import time
from typing import Any

import pytest
import torch

from assay.correctness import screen, touched
from assay.correctness.screen import distance, rounding, suspicious
from assay.correctness.touching import TOUCHED_ELEMENTS
from assay.worker import tripwires
from assay.worker.delivery import copy_out, is_plain, shared_with
from assay.worker.placement import is_lazy


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# ---- distances


def test_distance_is_relative_to_the_opponent() -> None:
    x = normal(50, 20)
    assert distance([x], [x]) == 0.0
    assert distance([x * 1.5], [x]) == pytest.approx(0.5) == distance([1e-6 * x * 1.5], [1e-6 * x])
    assert distance([torch.zeros_like(x)], [x]) == pytest.approx(1.0)
    assert distance([torch.ones(4)], [torch.zeros(4)]) == pytest.approx(2.0), "nothing to be relative to"
    assert distance([], []) == 0.0 == distance([torch.empty(0)], [torch.empty(0)])


@pytest.mark.parametrize("scale", [1e-30, 1e-15, 1e-9, 1e9, 1e15, 1e30])
def test_distance_does_not_depend_on_the_scale(scale: float) -> None:
    """Squares of these are beyond single precision, or of the sum's last digits."""
    x = normal(50, 20) * scale
    assert distance([x * 1.5], [x]) == pytest.approx(0.5)
    got = x.clone()
    got[3, 4] += 30 * scale
    assert distance([got], [x]) == pytest.approx(30 / float(x.double().norm() / scale), rel=1e-4)


@pytest.mark.parametrize("output", [0, 1, 2])
def test_the_output_that_is_furthest_away_counts(output: int) -> None:
    right = [normal(30, seed=1), normal(4, 5, seed=2), torch.arange(8)]
    got = [t.clone() for t in right]
    got[output] = got[output] + 1
    assert distance(got, right) > 0.1


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_infinitely_far(bad: float) -> None:
    x = normal(100)
    got = x.clone()
    got[99] = bad
    assert distance([got], [x]) == math.inf
    assert distance([got], [got.clone()]) == 0.0, "the same on both sides is no difference"
    nearby = got.clone()
    nearby[3] += 1
    assert 0.01 < distance([nearby], [got]) < 10


def test_infinities_of_other_signs_are_apart() -> None:
    assert distance([torch.tensor([math.inf, 1.0])], [torch.tensor([-math.inf, 1.0])]) == math.inf


def test_every_chunk_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screen, "_CHUNK", 16)
    x = normal(100)
    for at in (0, 15, 16, 50, 99):
        got = x.clone()
        got[at] += 3
        assert distance([got], [x]) == pytest.approx(3 / float(x.norm()), rel=1e-5)


def test_integers_are_apart_by_the_share_that_differs() -> None:
    x = torch.arange(10)
    assert distance([torch.where(x < 3, 99, x)], [x]) == pytest.approx(0.3)
    assert distance([x > 2], [x > 3]) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("apart", "known", "expected"),
    [
        (0.0, [], False),
        (1e-7, [], False),
        (1e-5, [], True),
        (15e-3, [1e-3], False),
        (17e-3, [1e-3], True),
        (15e-3, [1e-9, 1e-3, 0.0], False),
        (math.inf, [1e-3], True),
    ],
)
def test_only_checked_answers_excuse_a_distance(apart: float, known: list[float], expected: bool) -> None:
    assert suspicious(apart, known) is expected


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_one_element_in_many_that_is_rounded_otherwise_is_excused(dtype: torch.dtype) -> None:
    """Sums of rows came out equal in the calls that were checked, and one of 8192 otherwise in another."""
    sums = (normal(8192) * 128).to(dtype)
    otherwise = sums.clone()
    otherwise[:8] *= 1 + torch.finfo(dtype).eps
    apart = distance([otherwise], [sums])
    assert suspicious(apart, [0.0]) and not suspicious(apart, [0.0], rounding([sums]))
    assert suspicious(distance([sums * 1.01], [sums]), [0.0], rounding([sums]))


def test_what_is_excused_depends_on_the_coarsest_output() -> None:
    assert rounding([normal(3)]) == screen.FLOOR == rounding([])
    assert rounding([normal(3), normal(3).bfloat16()]) == pytest.approx(0.1 / 128)
    assert rounding([torch.arange(3)]) == pytest.approx(1e-3)


# ---- nearly the last input


def test_a_touched_input_differs_in_a_few_elements() -> None:
    old = [normal(40, 50, seed=1), torch.arange(9), [normal(7, seed=2)]]
    fresh = [normal(40, 50, seed=3), torch.arange(9) + 5, [normal(7, seed=4)]]
    before = old[0].clone()
    for seed in range(20):
        mixed: list[Any] = touched(old, fresh, seed)
        changed = mixed[0] != old[0]
        assert 1 <= int(changed.sum()) <= TOUCHED_ELEMENTS
        assert torch.equal(mixed[0][changed], fresh[0][changed]), "ordinary values, in their own place"
        assert torch.equal(mixed[1], old[1]), "integers may have to agree with each other"
        assert 1 <= int((mixed[2][0] != old[2][0]).sum()) <= TOUCHED_ELEMENTS
    assert torch.equal(old[0], before)


def test_touched_elements_lie_anywhere() -> None:
    old, fresh = [normal(40, 50, seed=1)], [normal(40, 50, seed=3)]
    rows, columns = set(), set()
    for seed in range(60):
        found = torch.nonzero(touched(old, fresh, seed)[0] != old[0])
        rows.update(found[:, 0].tolist())
        columns.update(found[:, 1].tolist())
    assert len(rows) > 30 and len(columns) > 30


# ---- answers on their way out


def test_what_shares_memory_is_told() -> None:
    inputs = torch.zeros(4096, dtype=torch.uint8)
    view = inputs[512:576].view(torch.float32)
    earlier = torch.zeros(10)
    held = [[torch.zeros(3)], [torch.ones(2), earlier]]
    assert shared_with(view, inputs, held) == "an input"
    assert shared_with(view[5:], inputs, []) == "an input"
    assert shared_with(earlier, inputs, held) == "an earlier output"
    assert shared_with(earlier[4:], inputs, held) == "an earlier output"
    assert shared_with(torch.zeros(10), inputs, held) is None
    assert shared_with(earlier[:0], inputs, held) is None


class Lazy(torch.Tensor):
    pass


def test_only_plain_tensors_are_copied_out() -> None:
    plain, lazy = torch.arange(6.0), torch.arange(6.0).as_subclass(Lazy)
    assert is_plain(plain) and is_plain(torch.nn.Parameter(plain))
    assert not is_plain(lazy) and not is_plain(plain.to_sparse())
    mailbox = torch.zeros(4096, dtype=torch.uint8)
    facts = copy_out([lazy], mailbox)
    assert not facts[0]["plain"] and not facts[0]["delivered"] and not mailbox.any()
    facts = copy_out([plain, plain.half()], mailbox)
    assert all(fact["plain"] and fact["delivered"] and not fact["lazy"] for fact in facts)
    assert torch.equal(mailbox[:24].view(torch.float32), plain)


def test_an_answer_that_lies_as_specified_is_copied_as_it_lies() -> None:
    across = torch.arange(12.0).view(3, 4).T
    mailbox = torch.zeros(4096, dtype=torch.uint8)
    facts = copy_out([across], mailbox, [[1, 4]])
    assert facts[0]["as_specified"] and torch.equal(mailbox[:48].view(torch.float32), torch.arange(12.0))


@pytest.mark.parametrize("specified", [[], [[3, 1]], [[1]], [[1, 4], [1, 4]]])
def test_any_other_answer_is_copied_in_row_major_order(specified: list[list[int]]) -> None:
    """As is one that leaves gaps, or lies as specified where something else is."""
    across = torch.zeros(3, 8)[:, ::2].copy_(torch.arange(12.0).view(3, 4)).T
    mailbox = torch.zeros(4096, dtype=torch.uint8)
    facts = copy_out([across], mailbox, specified)
    assert not facts[0]["as_specified"]
    assert torch.equal(mailbox[:48].view(torch.float32), across.reshape(-1))


def test_what_does_not_fit_is_not_delivered() -> None:
    mailbox = torch.full((4096,), 7, dtype=torch.uint8)
    facts = copy_out([torch.zeros(2), torch.zeros(5000)], mailbox)
    assert not any(fact["delivered"] for fact in facts) and (mailbox == 7).all()


def test_work_left_to_whoever_copies_is_lazy() -> None:
    row = torch.randn(1, 6)
    assert is_lazy(row.expand(5, 6)) and is_lazy(torch.randn(()).expand(3))
    assert is_lazy(torch.randn(3, dtype=torch.complex64).conj())
    assert is_lazy(torch.randn(3, dtype=torch.complex64).conj().imag)
    assert not is_lazy(row) and not is_lazy(row.expand(1, 6)) and not is_lazy(torch.randn(4, 5).T)


# ---- names nobody has a reason to replace


@pytest.mark.parametrize(
    ("owner", "name", "watched"),
    [
        (time, "perf_counter_ns", "time.perf_counter_ns"),
        (torch, "allclose", "torch.allclose"),
        (torch.cuda, "synchronize", "torch.cuda.synchronize"),
        (torch.cuda.Event, "elapsed_time", "torch.cuda.Event.elapsed_time"),
        (torch.testing, "assert_close", "torch.testing.assert_close"),
        (torch.Tensor, "equal", "torch.Tensor.equal"),
    ],
)
def test_a_replaced_name_is_told(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, watched: str
) -> None:
    before = tripwires.snapshot()
    assert tripwires.changed(before) == []
    monkeypatch.setattr(owner, name, lambda *args, **kwargs: 0)
    assert tripwires.changed(before) == [watched]
    monkeypatch.undo()
    assert tripwires.changed(before) == []


def test_replaced_code_under_the_same_function_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    before = tripwires.snapshot()
    original = torch.testing.assert_close.__code__
    monkeypatch.setattr(torch.testing.assert_close, "__code__", original.replace(co_name="another"))
    assert tripwires.changed(before) == ["torch.testing.assert_close"]
