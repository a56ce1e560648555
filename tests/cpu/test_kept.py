"""What outlives a call: answers that somebody keeps, and the buffers a module is left with."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from in_process import CPU, NO_COVER, Answering, Entry, InProcessChild, codes, prepared_case, run_case

from assay.judge import Policy
from assay.judge.cases import KEPT_AT_ONCE, CaseEvidence, CaseRunner
from assay.problems import Case, Precision
from assay.records import CandidateFailure, Finding

pytestmark = pytest.mark.usefixtures("one_thread", "undisturbed_memory")


class Doubled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class Moments(torch.nn.Module):
    """Its own moments, and a trace of them in buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x)


def draw(generator: torch.Generator) -> list[Any]:
    return [torch.randn(16, 24, generator=generator)]


def kept(answering: Answering, folder: Path) -> list[Finding]:
    child: Any = InProcessChild(Entry(Doubled, answering), folder)
    runner = CaseRunner(child, CPU, Policy(speed=False), Precision(), is_module=True)
    try:
        runner.start_timing(NO_COVER)
        return runner.keep_many(prepared_case(Doubled, draw, Precision(), Case("nominal")))
    finally:
        runner.close()


def ring(size: int) -> Answering:
    buffers = itertools.cycle([torch.empty(16, 24) for _ in range(size)])
    return lambda call, inputs, module: next(buffers).copy_(inputs[0] * 2)


def test_fresh_answers_may_be_kept(tmp_path: Path) -> None:
    assert kept(lambda call, inputs, module: module(*inputs), tmp_path) == []


@pytest.mark.parametrize("size", [1, 4, KEPT_AT_ONCE - 1])
def test_buffers_in_turn_are_noticed(tmp_path: Path, size: int) -> None:
    assert codes(kept(ring(size), tmp_path)) == {"aliased_output", "late_write"}


def test_a_late_write_into_any_of_many_is_noticed(tmp_path: Path) -> None:
    outputs: list[torch.Tensor] = []

    def answering(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        outputs.append(inputs[0] * 2)
        if len(outputs) == KEPT_AT_ONCE:
            outputs[5][3, 4] += 1
        return outputs[-1]

    assert codes(kept(answering, tmp_path)) == {"late_write"}


@pytest.mark.parametrize("wrong", [torch.zeros(16, 24), torch.zeros(15, 24), torch.zeros(16, 24).double()])
def test_many_calls_at_once_must_be_right(tmp_path: Path, wrong: torch.Tensor) -> None:
    with pytest.raises(CandidateFailure) as caught:
        kept(lambda call, inputs, module: wrong.clone(), tmp_path)
    assert (caught.value.status, caught.value.code) == ("wrong", "wrong_when_kept")


@pytest.fixture
def judged(tmp_path: Path) -> Callable[[Answering, bool], CaseEvidence]:
    def judge(answering: Answering, keeps_state: bool) -> CaseEvidence:
        case = prepared_case(Moments, draw, Precision(), Case("nominal"))
        child: Any = InProcessChild(Entry(Moments, answering), tmp_path)
        return run_case(case, child, Precision(), keeps_state=keeps_state)

    return judge


Judge = Callable[[Answering, bool], CaseEvidence]


def forgetful(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
    norm: Any = module.norm
    return torch.nn.functional.batch_norm(inputs[0], None, None, norm.weight, norm.bias, True, 0.0, norm.eps)


def slightly_off(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
    out = module(*inputs)
    with torch.no_grad():
        module.norm.running_var *= 1.001
    return out


def miscounting(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
    out = module(*inputs)
    module.norm.num_batches_tracked += call
    return out


def test_buffers_in_step_are_right(judged: Judge) -> None:
    evidence = judged(lambda call, inputs, module: module(*inputs), True)
    assert evidence.result.outcome == "passed"


@pytest.mark.parametrize("answering", [forgetful, slightly_off, miscounting])
def test_buffers_out_of_step_are_wrong_where_they_are_part_of_the_answer(
    judged: Judge, answering: Answering
) -> None:
    evidence = judged(answering, True)
    assert evidence.result.outcome == "wrong" and "buffers after a call" in evidence.result.message
    assert judged(answering, False).result.outcome == "passed"


def test_buffers_brought_up_to_date_when_they_are_read_are_wrong(judged: Judge) -> None:
    """The input of the last call is at hand by then, those before it are not."""

    def late(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        norm: Any = module.norm
        if not hasattr(module, "before"):
            module.before = {name: b.clone() for name, b in norm.named_buffers()}
        out = forgetful(call, inputs, module)

        def read(*args: Any, **kwargs: Any) -> Any:
            with torch.no_grad():
                for name, buffer in norm.named_buffers():
                    buffer.copy_(module.before[name])
                norm(inputs[0])
            return torch.nn.Module.state_dict(module, *args, **kwargs)

        module.state_dict = read  # type: ignore[method-assign]
        return out

    evidence = judged(late, True)
    assert evidence.result.outcome == "wrong" and "buffers after a call" in evidence.result.message


def test_whoever_lacks_a_buffer_has_not_kept_it(judged: Judge) -> None:
    def without(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        out = forgetful(call, inputs, module)
        if hasattr(module.norm, "running_var"):
            del module.norm.running_var
        return out

    with pytest.raises(CandidateFailure, match="running_var") as caught:
        judged(without, True)
    assert (caught.value.status, caught.value.code) == ("wrong", "state_not_kept")
