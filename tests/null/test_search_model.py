"""A model behind a real HTTP server drives all three strategies from recorded answers."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
from llm_server import ModelServer
from scripted_search import drive, source, speed_of

from assay.archive import SearchArchive
from assay.llm import Settings, complete
from assay.search import Limits, ModelProposer, read_prompts, read_recording
from assay.search.budget import BARREN

IDEAS = """1. Keep the row in registers @
   Hypothesis: the row is read twice.
   Mechanism: one load, all sums in registers.
   Predicted gain: 1.3x
2. Vector loads @
   Hypothesis: loads are narrow.
   Mechanism: sixteen bytes a thread.
   Predicted gain: 1.1x
"""


class Recorded:
    """Ideas where ideas are asked for; else a file, a little faster every time, every fourth one wrong."""

    def __init__(self) -> None:
        self._count, self._asked = itertools.count(1), list[str]()

    def __call__(self, prompt: str) -> str:
        self._asked.append(prompt)
        if prompt.startswith("Think of ways"):
            return IDEAS.replace("@", str(len(self._asked)))
        number = next(self._count)
        status = "wrong" if number % 4 == 0 else "passed"
        return f"One more step.\n\n```python\n{source(0.9 + 0.02 * number, status)}```\n"


def proposer(server: ModelServer, price: float | None = 1.0) -> ModelProposer:
    settings = Settings("openai", "tiny", server.url, price_in_usd=price, price_out_usd=price, retries=0)
    return ModelProposer(settings, read_prompts("triton"), device="a device", complete=complete)


@pytest.mark.parametrize("strategy", ["independent", "serial", "evolution"])
def test_a_model_drives_every_strategy(strategy: str, tmp_path: Path) -> None:
    with ModelServer(Recorded()) as server:
        limits = Limits(evaluations=12)
        reason, view = drive(tmp_path / "s", proposers=[proposer(server)], strategy=strategy, limits=limits)
    assert reason == "the evaluations are spent" and len(view.judged) == 12
    assert view.ideas and view.ideas[0].new.title == "Keep the row in registers 1"
    assert view.ideas[0].new.predicted_gain == pytest.approx(1.3)
    assert view.best and view.best.ratio
    assert view.best.ratio.middle == max(speed_of(m.draft.source)[0] for m in view.ranked)
    used = {request.operator.name for request in view.asked}
    assert used >= {"idea", "implement"} if strategy != "serial" else used >= {"idea", "repair"}
    with SearchArchive(tmp_path / "s") as archive:
        said = archive.exchange(view.asked[0].id)
        assert said and said.model == "openai:tiny" and "LayerNorm" in said.prompt
        assert archive.tokens()[0] > 0
    assert all(cost is not None and cost > 0 for cost in view.costs.values())


def test_the_recording_drives_it_again_without_a_server(tmp_path: Path) -> None:
    limits = Limits(evaluations=12)
    with ModelServer(Recorded()) as server:
        _, first = drive(tmp_path / "s", proposers=[proposer(server)], limits=limits)
    recording = read_recording(tmp_path / "s", first.problem)
    _, again = drive(
        tmp_path / "r", proposers=list(recording.proposers), workers=recording.workers, limits=limits
    )
    assert [m.draft.source for m in again.members] == [m.draft.source for m in first.members]
    assert again.costs == first.costs


def test_a_model_without_a_price_stops_at_a_limit_in_dollars(tmp_path: Path) -> None:
    with ModelServer(Recorded()) as server:
        reason, _ = drive(tmp_path / "s", proposers=[proposer(server, None)], limits=Limits(usd=1.0))
    assert "price is unknown" in reason


def test_a_dead_endpoint_ends_the_search_with_what_it_has(tmp_path: Path) -> None:
    recorded = Recorded()
    with ModelServer(recorded) as server:
        model = proposer(server)
        drive(tmp_path / "s", proposers=[model], limits=Limits(evaluations=4))
    reason, view = drive(tmp_path / "s", proposers=[model], limits=Limits(evaluations=8))
    assert "model/" in reason and "openai:tiny" in reason
    assert view.best is not None and len(view.judged) == 4


def test_answers_without_a_kernel_end_the_search(tmp_path: Path) -> None:
    with ModelServer(lambda prompt: "I would rather not.") as server:
        reason, view = drive(tmp_path / "s", proposers=[proposer(server)], limits=Limits())
    assert "brought no candidate" in reason and len(view.asked) == BARREN


def test_an_endpoint_that_limits_its_rate_is_told_as_such(tmp_path: Path) -> None:
    with ModelServer(lambda prompt: (429, '{"error": {"message": "slow down"}}')) as server:
        reason, view = drive(tmp_path / "s", proposers=[proposer(server)])
    assert "still limited" in reason and not view.members
