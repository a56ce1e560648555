"""One child at the desk: what it tells, what is taken, and what the judge's own clock saw meanwhile."""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from in_process import CPU, NO_COVER, Entry, Forging, InProcessChild, prepared_case

from assay.correctness import Calibration, Fingerprinter
from assay.judge import Policy
from assay.judge.desk import NEARBY_BYTES, Desk, capacity_bytes, unpacked
from assay.judge.run import Answer, Run, checked_tree, compare, form_complaint, laid_side_by_side
from assay.judge.seat import MOST_COVER_US, Seat
from assay.problems import Case, Precision
from assay.problems.values import flatten
from assay.records import CandidateFailure
from assay.worker.messages import OutputFact
from assay.worker.placement import place

pytestmark = pytest.mark.usefixtures("one_thread", "undisturbed_memory")
NO_TIME = {"device_us": 0.0, "launch_us": 0.0, "host_us": 0.0, "sm_mhz": 0.0}


class Doubled(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


def draw(generator: torch.Generator) -> list[Any]:
    return [torch.randn(4, 8, generator=generator)]


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk(CPU, Fingerprinter(CPU))
    yield desk
    desk.close()


class Seated:
    """A seat at a desk, and what it takes to ask it."""

    def __init__(self, desk: Desk, folder: Path, answering: Any, forging: Forging | None = None) -> None:
        self.child: Any = InProcessChild(Entry(Doubled, answering), folder, forging)
        self.run = Run(prepared_case(Doubled, draw, Precision(), Case("nominal")), 1, CPU, Precision())
        self._desk = desk
        desk.join(self.child)
        self.seat = Seat(self.child, desk, CPU, Policy(), is_module=True)
        self.seat.construct(self.run)

    def calls(self, inputs: list[list[Any]]) -> list[dict[str, Any]]:
        places = self._desk.lay([tensor for one in inputs for tensor in one], "given")
        return [{"inputs": {"list": [{"tensor": 0}]}, "tensors": [place]} for place in places]

    def answer(self, inputs: list[Any]) -> Answer:
        (call,) = self.calls([inputs])
        how = {"grad": "grad", "hold": False, "timing": "idle", "cover_us": 0}
        return self.seat.answer(self.run, {**call, **how})


def inputs_of(seed: int) -> list[Any]:
    return draw(torch.Generator().manual_seed(seed))


def test_the_judge_times_the_whole_exchange_by_its_own_clock(desk: Desk, tmp_path: Path) -> None:
    """The child tells that it took no time at all; it cannot tell that to the judge's clock."""
    spent_us: list[float] = []

    def slow(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        start_ns = time.monotonic_ns()
        time.sleep(0.01)
        spent_us.append((time.monotonic_ns() - start_ns) / 1e3)
        return inputs[0] * 2

    def forging(op: str, reply: dict[str, Any]) -> dict[str, Any]:
        return {**reply, "sample": NO_TIME} if op == "sample" else reply

    timed = Seated(desk, tmp_path, slow, forging).answer(inputs_of(1)).time()
    assert timed.wall_us >= spent_us[0] and timed.device_us == timed.host_us == 0.0


def test_the_judges_own_threads_rest_before_its_clock_counts(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They spin for milliseconds after the judge's last work, and would take the child's processors."""
    seated = Seated(desk, tmp_path, lambda k, inputs, module: module(*inputs))
    stood_still: list[bool] = []
    monkeypatch.setattr("assay.judge.seat.rest", lambda: stood_still.append(seated.child.is_frozen))
    seated.answer(inputs_of(1))
    seated.child.freeze()
    seated.answer(inputs_of(2))
    seated.child.freeze()
    seated.seat.burst(seated.run, seated.calls([inputs_of(3)]))
    assert stood_still == [False, True, True]


def test_whoever_stands_still_does_so_again_when_it_was_shown_more_memory(desk: Desk, tmp_path: Path) -> None:
    seated = Seated(desk, tmp_path, lambda k, inputs, module: module(*inputs))
    seated.child.freeze()
    desk.lay([torch.zeros(1 << 20)], "given")
    desk.need_mailbox(1 << 22)
    assert seated.child.is_frozen and len(seated.child.heads("arena")) >= 2


def test_every_answer_of_a_burst_is_read_from_its_own_place(desk: Desk, tmp_path: Path) -> None:
    seated = Seated(desk, tmp_path, lambda call, inputs, module: inputs[0] * 2)
    dealt = [inputs_of(seed) for seed in range(5)]
    burst = seated.seat.burst(seated.run, seated.calls(dealt))
    assert [answer.complaint for answer in burst.answers] == [""] * 5
    for answer, inputs in zip(burst.answers, dealt, strict=True):
        assert torch.equal(answer.got[0], inputs[0] * 2)
        assert compare(seated.run, inputs, answer).ok


def test_writing_into_the_inputs_of_a_burst_is_noticed(desk: Desk, tmp_path: Path) -> None:
    def writing(call: int, inputs: list[Any], module: torch.nn.Module) -> Any:
        doubled = inputs[0] * 2
        inputs[0][0, 0] = 9.0 if call == 4 else inputs[0][0, 0]
        return doubled

    seated = Seated(desk, tmp_path, writing)
    burst = seated.seat.burst(seated.run, seated.calls([inputs_of(seed) for seed in range(5)]))
    assert [f.code for answer in burst.answers for f in answer.findings] == ["input_modified"]


def test_a_candidate_cannot_ask_for_an_endless_cover(desk: Desk, tmp_path: Path) -> None:
    seat = Seated(desk, tmp_path, lambda call, inputs, module: inputs[0] * 2).seat
    seat.launch_us = [1e9] * 8
    assert seat.cover_us == MOST_COVER_US


# ---- the form of an answer

FACT = OutputFact("Tensor", True, "cpu", (4, 8), "float32", True)


class Several(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        return {"a": x * 2, "b": [x.sum(-1), 3]}


@functools.cache
def specified() -> Calibration:
    return prepared_case(Several, draw, Precision(), Case("nominal")).calibration


def complaint(facts: list[OutputFact], outputs: Any) -> str:
    return form_complaint(specified(), facts, flatten(outputs, []), CPU)


A, B = FACT, OutputFact("Tensor", True, "cpu", (4,), "float32", True)
RIGHT = {"a": torch.zeros(4, 8), "b": [torch.zeros(4), 3]}


def test_the_specified_form_is_no_complaint() -> None:
    assert complaint([A, B], RIGHT) == ""


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"shape": (2, 8)}, "specified is"),
        ({"shape": (4, 8, 1)}, "specified is"),
        ({"dtype": "float16"}, "specified is"),
        ({"dtype": "float64"}, "specified is"),
        ({"plain": False, "type": "lazy.Tensor"}, "not a plain tensor"),
        ({"device": "cuda"}, "lies on cuda"),
        ({"lazy": True}, "not all there"),
        ({"delivered": False}, "not delivered"),
    ],
)
def test_every_output_must_have_its_form(which: int, fields: dict[str, Any], words: str) -> None:
    facts = [A, B]
    facts[which] = replace(facts[which], **fields)
    assert words in complaint(facts, RIGHT)


@pytest.mark.parametrize("facts", [[], [A], [A, B, B]])
def test_there_must_be_as_many_outputs_as_specified(facts: list[OutputFact]) -> None:
    assert "outputs where 2 are specified" in complaint(facts, RIGHT)


@pytest.mark.parametrize(
    "outputs",
    [
        [torch.zeros(4, 8), [torch.zeros(4), 3]],
        {"a": torch.zeros(4, 8), "b": torch.zeros(4)},
        {"a": torch.zeros(4, 8), "c": [torch.zeros(4), 3]},
        {"a": torch.zeros(4, 8), "b": [torch.zeros(4), 3, 4]},
    ],
)
def test_outputs_must_nest_as_specified(outputs: Any) -> None:
    assert "nest differently" in complaint([A, B], outputs)


@pytest.mark.parametrize(
    "tree",
    [
        {"list": [{"tensor": 1}, {"tensor": 0}]},
        {"list": [{"tensor": 0}, {"tensor": 0}]},
        {"list": [{"tensor": 0}]},
        {"list": [{"tensor": 0}, {"tensor": 2}]},
        {"module": "os"},
        [{"tensor": 0}],
    ],
)
def test_a_forged_structure_is_rejected(tree: Any) -> None:
    with pytest.raises(CandidateFailure) as caught:
        checked_tree(tree, 2)
    assert (caught.value.status, caught.value.code) == ("rejected", "forged_message")


def test_an_answer_of_the_wrong_form_is_wrong_whatever_it_holds(desk: Desk, tmp_path: Path) -> None:
    seated = Seated(desk, tmp_path, lambda call, inputs, module: (inputs[0] * 2)[:3])
    answer = seated.answer(inputs_of(1))
    assert answer.got == [] and not compare(seated.run, inputs_of(1), answer).ok


# ---- the desk


@pytest.mark.parametrize(
    ("shape", "dtype"), [((5, 8), "float32"), ((4, 9), "float32"), ((-4, 8), "float32"), ((4, 8), "float99")]
)
def test_what_was_claimed_but_does_not_fit_is_rejected(shape: tuple[int, ...], dtype: str) -> None:
    room = capacity_bytes(((4, 8),), ("float32",))
    taken = torch.zeros(128, dtype=torch.uint8)
    assert room > 128
    with pytest.raises(CandidateFailure) as caught:
        unpacked(taken, [replace(FACT, shape=shape, dtype=dtype)])
    assert (caught.value.status, caught.value.code) == ("rejected", "forged_message")


def test_inputs_move_within_the_given_bytes_or_stay(desk: Desk) -> None:
    tensors = [torch.arange(6.0)]
    stayed = {desk.lay(tensors, "given")[0]["offset_bytes"] for _ in range(20)}
    assert stayed == {0}
    moved = {desk.lay(tensors, "given", within_bytes=NEARBY_BYTES)[0]["offset_bytes"] for _ in range(60)}
    assert len(moved) > 5 and max(moved) <= NEARBY_BYTES


def test_every_one_of_many_calls_has_the_layouts_of_one(desk: Desk) -> None:
    inputs = [torch.zeros(3, 5), torch.zeros(3, 5)]
    alone = [place["strides"] for place in desk.lay(inputs, "mixed")]
    assert alone[0] != alone[1]
    for call in laid_side_by_side(desk, [inputs] * 4, "mixed"):
        assert [place["strides"] for place in call["tensors"]] == alone


@pytest.mark.parametrize("layout", ["given", "strided", "offset", "transposed"])
def test_every_byte_laid_out_is_watched(desk: Desk, layout: str) -> None:
    tensors = [torch.zeros(3, 5), torch.zeros(7, dtype=torch.float16)]
    desk.lay(tensors, layout)
    memory = desk._arenas["in"].bytes
    assert desk.inputs_untouched()
    for at in range(place(tensors, layout)[1]):
        memory[at] ^= 1
        assert not desk.inputs_untouched(), at
        memory[at] ^= 1
    assert desk.inputs_untouched()


def test_noise_fills_the_mailbox_anew_each_time(desk: Desk) -> None:
    seen = set()
    for _ in range(8):
        desk.clear_mailbox(64)
        seen.add(bytes(desk.take(64).tolist()))
    assert len(seen) == 8


def test_python_looks_for_garbage_between_timed_calls_and_not_within(desk: Desk, tmp_path: Path) -> None:
    searches, within, litter = [], [], []

    def littering(_call: int, inputs: list[Any], _module: Any) -> torch.Tensor:
        before = len(searches)
        litter.append([[] for _ in range(2 * gc.get_threshold()[0])])
        within.append(len(searches) - before)
        return inputs[0] * 2

    def noted(phase: str, _facts: dict[str, int]) -> None:
        searches.extend([phase] if phase == "stop" else [])

    seated = Seated(desk, tmp_path, littering)
    NO_COVER.hand_to(seated.child, desk)
    gc.callbacks.append(noted)
    try:
        for seed in range(3):
            seated.answer(inputs_of(seed))
    finally:
        gc.callbacks.remove(noted)
    assert within == [0, 0, 0] and len(searches) >= 3
