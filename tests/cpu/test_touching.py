"""Little changes that a memo overlooks: a few elements, one input of several, a few weights."""

from __future__ import annotations

import torch

from assay.correctness import nudged, one_changed, perturbed, touched
from assay.correctness.touching import MANY, SPIKE


def pair() -> list[torch.Tensor]:
    return [torch.randn(16, 8), torch.randn(16, 8)]


def test_a_few_elements_of_each_input_change() -> None:
    old, new = pair(), pair()
    for before, after in zip(old, touched(old, new, 1), strict=True):
        assert 0 < int((before != after).sum()) <= 4


def test_among_many_elements_a_few_are_large() -> None:
    """Whoever looks at a sample of them misses those."""
    old, new = [torch.rand(MANY)], [torch.rand(MANY) + 0.5]
    (after,) = touched(old, new, 1)
    assert 0 < int((after > SPIKE / 4).sum()) <= 4 and int((after != old[0]).sum()) <= 4


def test_one_input_changes_in_its_turn_and_the_others_stay() -> None:
    old, new = pair(), pair()
    for turn in range(4):
        changed = one_changed(old, new, turn)
        assert changed is not None
        assert torch.equal(changed[turn % 2], new[turn % 2])
        assert torch.equal(changed[1 - turn % 2], old[1 - turn % 2])


def test_one_input_alone_or_integers_are_not_taken_apart() -> None:
    assert one_changed([torch.randn(4)], [torch.randn(4)], 0) is None
    mixed = [torch.randn(4), torch.arange(4)]
    assert one_changed(mixed, [torch.randn(4), torch.arange(4)], 0) is None
    assert one_changed(pair(), [torch.randn(3, 8), torch.randn(16, 8)], 0) is None


def test_inputs_that_obey_a_rule_stay() -> None:
    old, new = pair(), pair()
    after = touched(old, new, 1, {0})
    assert torch.equal(after[0], old[0]) and not torch.equal(after[1], old[1])
    for turn in range(3):
        changed = one_changed(old, new, turn, {0})
        assert changed is not None
        assert torch.equal(changed[0], old[0]) and torch.equal(changed[1], new[1])
    assert one_changed(old, new, 0, {0, 1}) is None


def test_eight_bit_inputs_are_touched_too() -> None:
    old, new = ([torch.randn(MANY).to(torch.float8_e4m3fn)] for _ in range(2))
    (after,) = touched(old, new, 1)
    assert int((after.float() != old[0].float()).sum()) <= 4 and after.float().isfinite().all()


def test_few_weights_are_nudged_and_buffers_are_not() -> None:
    state = {"weight": torch.randn(32, 16), "mean": torch.randn(16), "steps": torch.tensor(3)}
    names = frozenset({"weight"})
    fresh = nudged(state, names, 5)
    assert 0 < int((fresh["weight"] != state["weight"]).sum()) <= 4
    assert torch.equal(fresh["mean"], state["mean"]) and torch.equal(fresh["steps"], state["steps"])
    assert int((perturbed(state, names, 5)["weight"] != state["weight"]).sum()) > 500
