"""Gate 1 around a child that may lie: every call counts, nothing stale is taken, every touch is noticed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from in_process import Answering, Entry, Forging, InProcessChild, codes, prepared_case, run_case

from assay.judge.cases import GRAD_MODES, CaseEvidence
from assay.problems import Case, Precision

pytestmark = pytest.mark.usefixtures("one_thread", "undisturbed_memory")
CALLS = 3
REPEATED = 1
"""The first call is made twice: the second time it is the candidate's call number 1."""
CHECKED = (0, 2, 3)
"""Calls of the candidate whose answers are compared with the oracle."""


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(24, 8)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.sigmoid(self.linear(x))
        return y, y.sum(-1)


def draw(generator: torch.Generator) -> list[Any]:
    return [torch.randn(16, 24, generator=generator)]


def honest(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
    return module(*inputs)


@pytest.fixture
def judged(tmp_path: Path) -> Callable[..., tuple[CaseEvidence, InProcessChild]]:
    def judge(
        answering: Answering,
        *,
        forging: Forging | None = None,
        layout: str = "given",
        deterministic: bool = False,
        module: Callable[[], torch.nn.Module] = Model,
        draw: Callable[[torch.Generator], list[Any]] = draw,
    ) -> tuple[CaseEvidence, InProcessChild]:
        precision = Precision(deterministic=deterministic)
        case = prepared_case(module, draw, precision, Case("nominal", layout=layout))
        child = InProcessChild(Entry(module, answering), tmp_path, forging)
        evidence = run_case(case, child, precision, CALLS)
        return evidence, child

    return judge


Judge = Callable[..., tuple[CaseEvidence, InProcessChild]]


def test_an_honest_candidate_passes_every_call(judged: Judge) -> None:
    evidence, child = judged(honest)
    assert (evidence.result.outcome, evidence.result.calls) == ("passed", CALLS)
    assert evidence.findings == [] and evidence.state == "by name"
    assert child.entry.calls == CALLS + REPEATED
    assert evidence.result.worst_ratio is not None and 0 < evidence.result.worst_ratio <= 1


@pytest.mark.parametrize("output", [0, 1])
@pytest.mark.parametrize("wrong_call", CHECKED)
def test_one_wrong_output_of_one_call_is_wrong(judged: Judge, wrong_call: int, output: int) -> None:
    def answering(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        outputs = list(module(*inputs))
        if call == wrong_call:
            outputs[output] = outputs[output] * 1.001
        return tuple(outputs)

    evidence, _ = judged(answering)
    assert evidence.result.outcome == "wrong"
    assert {mismatch.output for mismatch in evidence.result.mismatches} == {output}


def test_the_worst_of_all_calls_is_told(judged: Judge) -> None:
    """The first call is a little off, the others are exact."""

    def answering(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        first, second = (t.float() for t in module.double()(inputs[0].double()))
        module.float()
        return first * (1 + 3 * 2.0**-23) if call < 2 else first, second

    evidence, _ = judged(answering)
    last, _ = judged(lambda call, inputs, module: answering(9, inputs, module))
    assert evidence.result.outcome == last.result.outcome == "passed"
    assert evidence.result.worst_ratio > 1.5 * last.result.worst_ratio


def test_contents_weights_and_modes_change_between_calls(judged: Judge) -> None:
    _, child = judged(honest)
    entry = child.entry
    checked = [entry.seen[k][0] for k in CHECKED]
    assert not any(torch.equal(a, b) for k, a in enumerate(checked) for b in checked[:k])
    assert torch.equal(entry.seen[0][0], entry.seen[1][0]), "the same input over other memory"
    assert len({tuple(t.sum().item() for t in weights) for weights in entry.weights}) == CALLS
    assert [entry.grad_modes[k] for k in CHECKED] == list(GRAD_MODES)


def test_no_two_runs_see_the_same_inputs(judged: Judge) -> None:
    (_, one), (_, other) = judged(honest), judged(honest)
    for mine in one.entry.seen:
        assert not any(torch.equal(mine[0], theirs[0]) for theirs in other.entry.seen)


def test_the_second_input_is_almost_the_first_under_the_same_tensor(judged: Judge) -> None:
    _, child = judged(honest)
    first, second, third = (child.entry.seen[k][0] for k in CHECKED)
    assert 1 <= int((first != second).sum()) <= 4
    assert int((second != third).sum()) > first.numel() // 2
    pointers = [child.entry.pointers[k] for k in CHECKED]
    assert pointers[0] == pointers[1] != pointers[2]


def test_the_same_tensor_object_comes_back_with_new_contents(judged: Judge) -> None:
    """Identity, pointer and version say nothing: a memo keyed on any of them gives a stale answer."""
    _, child = judged(honest)
    first, second, third = (child.entry.objects[k] for k in CHECKED)
    assert first is second is not third and first._version == 0
    assert not torch.equal(child.entry.seen[0][0], child.entry.seen[2][0])


def test_memory_is_poisoned_differently_for_every_call(judged: Judge) -> None:
    _, child = judged(honest)
    patterns = [head["pattern"] for head in child.heads("call")]
    assert len(set(patterns)) == CALLS + REPEATED
    assert all(size > 0 for head in child.heads("call") for size in head["poison_bytes"])


# ---- how answers lie in memory


class Across(Model):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y, total = super().forward(x)
        return y.T, total


@pytest.mark.parametrize("lie", [torch.Tensor.contiguous, lambda t: t, lambda t: t.T.contiguous().T])
def test_an_answer_may_lie_as_specified_or_in_row_major_order(
    judged: Judge, lie: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    def answering(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        first, second = module(*inputs)
        return lie(first), second

    evidence, _ = judged(answering, module=Across)
    assert (evidence.result.outcome, evidence.findings) == ("passed", [])


@pytest.mark.parametrize("specification", [Model, Across])
def test_nobody_gains_by_lying_about_how_its_answer_lies(
    judged: Judge, specification: type[torch.nn.Module]
) -> None:
    """Only the specification's own order is another way to read the answer."""

    def forging(op: str, reply: dict[str, Any]) -> dict[str, Any]:
        for fact in reply.get("tensors", []):
            fact["as_specified"] = not fact["as_specified"]
        return reply

    evidence, _ = judged(honest, module=specification, forging=forging)
    assert evidence.result.outcome == ("passed" if specification is Model else "wrong")


# ---- what is done to inputs and outputs


@pytest.mark.parametrize("layout", ["given", "strided", "offset"])
@pytest.mark.parametrize("at", [(0, 0), (7, 11), (15, 23)])
def test_one_element_written_into_an_input_is_noticed(
    judged: Judge, layout: str, at: tuple[int, int]
) -> None:
    def answering(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        outputs = module(*inputs)
        if call == 3:
            inputs[0][at] += 1
        return outputs

    evidence, _ = judged(answering, layout=layout)
    assert evidence.result.outcome == "rejected" and codes(evidence.findings) == {"input_modified"}


def test_gaps_between_elements_hold_noise_and_may_not_be_written(judged: Judge) -> None:
    gaps = []

    def answering(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        flat = inputs[0].as_strided((8,), (1,))
        gaps.append(flat[1::2].clone())
        if call == 3:
            flat[1] = 1.0
        return module(*inputs)

    evidence, _ = judged(answering, layout="strided")
    assert codes(evidence.findings) == {"input_modified"}
    assert all(gap.view(torch.int32).any() for gap in gaps)
    assert not torch.equal(gaps[0].view(torch.int32), gaps[2].view(torch.int32))


def test_what_the_specification_writes_itself_is_allowed(judged: Judge) -> None:
    class InPlace(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.mul_(2.0) + 1

    evidence, _ = judged(honest, module=InPlace)
    assert evidence.result.outcome == "passed" and "input_modified" not in codes(evidence.findings)


class WritesHalf(torch.nn.Module):
    """Writes into the first of two inputs and returns memory of its own."""

    def forward(self, out: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return out.copy_(x * 2) + 1


def draw_two(generator: torch.Generator) -> list[Any]:
    return [torch.zeros(16, 24), torch.randn(16, 24, generator=generator)]


class ReturnsIt(WritesHalf):
    def forward(self, out: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return out.copy_(x * 2)


@pytest.mark.parametrize("layout", ["given", "strided", "offset"])
@pytest.mark.parametrize("module", [WritesHalf, ReturnsIt])
def test_of_what_is_given_only_what_the_specification_writes_may_be_written(
    judged: Judge, layout: str, module: type[torch.nn.Module]
) -> None:
    def spoiling(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        outputs = module(*inputs)
        if call == 3:
            inputs[1][7, 11] += 1
        return outputs

    evidence, _ = judged(honest, module=module, layout=layout, draw=draw_two)
    assert evidence.result.outcome == "passed" and evidence.findings == []
    evidence, _ = judged(spoiling, module=module, layout=layout, draw=draw_two)
    assert evidence.result.outcome == "rejected" and codes(evidence.findings) == {"input_modified"}


def test_gaps_beside_what_may_be_written_may_not(judged: Judge) -> None:
    def answering(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        outputs = module(*inputs)
        if call == 3:
            inputs[0].as_strided((8,), (1,))[1] = 1.0
        return outputs

    evidence, _ = judged(answering, module=WritesHalf, layout="strided", draw=draw_two)
    assert evidence.result.outcome == "rejected" and codes(evidence.findings) == {"input_modified"}


@pytest.mark.parametrize("module", [WritesHalf, ReturnsIt])
def test_one_buffer_for_all_outputs_is_noticed_where_inputs_are_written(
    judged: Judge, module: type[torch.nn.Module]
) -> None:
    buffer = torch.empty(16, 24)

    def answering(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        return buffer.copy_(module(*inputs))

    evidence, _ = judged(answering, module=module, draw=draw_two)
    assert evidence.result.outcome == "rejected"
    assert codes(evidence.findings) == {"aliased_output", "late_write"}


def test_an_answer_may_be_fresh_where_the_specifications_is_an_input(judged: Judge) -> None:
    evidence, _ = judged(lambda call, inputs, module: inputs[1] * 2, module=ReturnsIt, draw=draw_two)
    assert evidence.result.outcome == "passed" and evidence.findings == []


@pytest.mark.parametrize("layout", ["given", "strided", "transposed", "offset"])
@pytest.mark.parametrize("view", [lambda x: x.t(), lambda x: x[:, 0], lambda x: x[:1].expand(3, 24)])
def test_a_view_of_an_input_may_be_kept_as_long_as_its_input(
    judged: Judge, layout: str, view: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    class Viewed(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return view(x)

    evidence, _ = judged(honest, module=Viewed, layout=layout)
    assert evidence.result.outcome == "passed" and evidence.findings == []


def test_only_outputs_that_are_memory_of_an_input_in_the_specification_may_be(judged: Judge) -> None:
    def answering(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        return inputs[0].copy_(module(*inputs))

    evidence, _ = judged(answering, module=WritesHalf, draw=draw_two)
    assert evidence.result.outcome == "rejected" and codes(evidence.findings) == {"aliased_output"}


class Doubled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def test_memory_of_an_input_is_no_output(judged: Judge) -> None:
    class Copied(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 0.0

    evidence, _ = judged(lambda call, inputs, module: inputs[0], module=Copied)
    assert evidence.result.outcome == "rejected" and "aliased_output" in codes(evidence.findings)


def test_one_buffer_for_all_outputs_is_noticed(judged: Judge) -> None:
    buffer = torch.empty(16, 24)
    evidence, _ = judged(lambda call, inputs, module: buffer.copy_(inputs[0] * 2), module=Doubled)
    assert evidence.result.outcome == "rejected"
    assert codes(evidence.findings) == {"aliased_output", "late_write"}


@pytest.mark.parametrize("late", [0, 2])
def test_an_output_that_changes_later_is_noticed(judged: Judge, late: int) -> None:
    """Each is right when it is returned; one of them is written again during the last call."""
    outputs: list[torch.Tensor] = []

    def answering(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        outputs.append(inputs[0] * 2)
        if call == 3:
            outputs[late][5, 6] += 1
        return outputs[-1]

    evidence, _ = judged(answering, module=Doubled)
    assert evidence.result.outcome == "rejected" and codes(evidence.findings) == {"late_write"}


@pytest.mark.parametrize("deterministic", [False, True])
def test_two_calls_on_one_input_must_agree_in_bits(judged: Judge, deterministic: bool) -> None:
    def answering(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        return inputs[0] * 2 * (1 + 2.0**-23 * (call % 2))

    evidence, _ = judged(answering, module=Doubled, deterministic=deterministic)
    assert [(f.code, f.fatal) for f in evidence.findings] == [("nondeterministic", deterministic)]
    assert evidence.result.outcome == ("rejected" if deterministic else "passed")


# ---- what is told


def claiming(op: str, reply: dict[str, Any]) -> dict[str, Any]:
    """Says that outputs have the size they should have."""
    for fact in reply.get("tensors", []):
        fact["shape"] = [16, 24]
    return reply


def test_an_answer_that_is_told_but_not_delivered_is_not_found_in_the_mailbox(judged: Judge) -> None:
    """The second call on the same input delivers nothing: what the first left there is gone."""

    def answering(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        right = inputs[0] * 2
        return right if call != 1 else right[:0]

    evidence, _ = judged(answering, module=Doubled, forging=claiming)
    assert codes(evidence.findings) == {"nondeterministic"}


def test_noise_in_the_mailbox_is_of_one_call_alone(judged: Judge) -> None:
    """Nothing is ever delivered: zeros are not what is found instead, which would be right here."""

    class Cleared(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.zeros_like(x)

    evidence, _ = judged(lambda call, inputs, module: inputs[0][:0], module=Cleared, forging=claiming)
    assert evidence.result.outcome == "wrong"


def test_noise_lies_behind_an_input(judged: Judge) -> None:
    """Zeros there would make a sum that reads past the end right."""
    behind: list[bytes] = []

    def answering(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        x = inputs[0]
        whole = torch.empty(0, dtype=torch.uint8).set_(x.untyped_storage())
        end = 4 * (x.storage_offset() + x.numel())
        behind.append(whole[end : end + 16].numpy().tobytes())
        return module(*inputs)

    evidence, _ = judged(answering)
    assert evidence.result.outcome == "passed"
    assert len(set(behind)) >= CALLS and all(any(noise) for noise in behind)
