"""`assay eval --ray` and `assay search --ray` on a real cluster here, a node of which is killed."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from llm_server import ModelServer
from ray_cluster import new_cluster

from assay.archive import Archive, Judged
from assay.evaluation import read_suite
from assay.evaluation.ray_crew import SHARE, RayCrew, Seat, seats_of
from assay.llm import Settings, Spoken
from assay.records import UserError

PROBLEM = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.{operator}(x)


rows = 16


def get_inputs():
    return [torch.rand(rows, 24) + 0.5]
"""
OPERATORS = ("exp", "sqrt")
SLOW = "import time\n\nimport torch\n\ntime.sleep(0.5)\n\n\ndef forward(x):\n    return torch.{}(x){}\n"
BARE = """
// assay: out y = torch.empty(x.shape)
// assay: call twice(x, y, x.numel())
// assay: return y
#include <cmath>
#include <cstdint>
extern "C" void twice(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = std::exp(x[i]);
}
"""


def node(name: str, *, alive: bool = True, **resources: float) -> dict[str, Any]:
    return {"NodeID": name, "Alive": alive, "Resources": resources}


def test_actors_sit_where_the_gpus_are() -> None:
    nodes = [node("a", CPU=8, GPU=2), node("b", CPU=64), node("c", CPU=8, GPU=1, alive=False)]
    for timed in (True, False):
        assert seats_of(nodes, timed=timed) == [Seat("a", 0, 1, 0), Seat("a", 1, 1, 0)]


def test_without_gpus_every_cpu_judges_and_a_whole_node_times() -> None:
    nodes = [node("a", CPU=2), node("b", CPU=1), node("c")]
    assert seats_of(nodes, timed=False) == [
        Seat("a", 0, 0, SHARE),
        Seat("a", 1, 0, SHARE),
        Seat("b", 0, 0, SHARE),
    ]
    assert seats_of(nodes, timed=True) == [Seat("a", 0, 0, 2), Seat("b", 0, 0, 1)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head that judges nothing."""
    cluster = new_cluster(cpus=0, gpus=0)
    yield cluster
    cluster.shutdown()


@contextlib.contextmanager
def a_node(cluster: Any) -> Iterator[None]:
    added = cluster.add_node(num_cpus=1, num_gpus=0)
    cluster.wait_for_nodes()
    try:
        yield
    finally:
        cluster.remove_node(added)


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    folder = tmp_path / "suite" / "level1"
    folder.mkdir(parents=True)
    for name in OPERATORS:
        (folder / f"{name}.py").write_text(PROBLEM.format(operator=name))
    return folder.parent


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "assay.cli.main", "eval", *map(str, words), "--no-speed"]


def judged(run: Path) -> list[Judged]:
    with Archive(run) as archive:
        return list(archive.judged())


def until_one_is_judged(run: Path) -> None:
    deadline = time.monotonic() + 200
    while True:
        with contextlib.suppress(UserError):  # it is being made
            if judged(run):
                return
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.timeout(400)
def test_a_node_is_killed_and_every_candidate_is_judged_once(
    cluster: Any, suite: Path, tmp_path: Path
) -> None:
    folder, run = tmp_path / "candidates", tmp_path / "run.sqlite"
    expected = {}
    for name in OPERATORS:
        (folder / f"level1_{name}").mkdir(parents=True)
        for k in range(6):
            text = SLOW.format(name, " * 1.5" if k % 3 == 0 else "") + f"# {k}\n"
            (folder / f"level1_{name}" / f"k{k}.py").write_text(text)
            expected[f"level1_{name}/k{k}"] = "wrong" if k % 3 == 0 else "passed"
    (folder / "level1_exp" / "bare.cpp").write_text(BARE)
    expected["level1_exp/bare"] = "passed"
    doomed = cluster.add_node(num_cpus=2, num_gpus=0)
    cluster.wait_for_nodes()
    words = command(suite, "--candidates", folder, "--run", run, "--ray", cluster.address)
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    until_one_is_judged(run)
    cluster.remove_node(doomed, allow_graceful=False)
    kept = judged(run)
    assert len(kept) < len(expected), "the node has to be at work when it is killed"
    with a_node(cluster):
        said, _ = process.communicate(timeout=240)
    assert process.returncode == 0, said
    ended = judged(run)
    assert {f"{one.candidate.problem}/{one.candidate.name}": one.status for one in ended} == expected
    assert len(ended) == len(expected) and [one for one in ended if one in kept] == kept


def test_models_are_asked_by_the_cluster(cluster: Any, suite: Path) -> None:
    with ModelServer(lambda prompt: f"you said {prompt}") as server:
        settings = Settings("openai", "tiny", server.url, retries=0)
        with (
            a_node(cluster),
            contextlib.closing(RayCrew(cluster.address, {"speed": False}, read_suite(suite))) as crew,
        ):
            assert crew.describe_device().device == "cpu"
            assert crew.complete(settings, Spoken("be brief", "hello")).text == "you said hello"
    assert server.asked[0]["messages"][0]["content"] == "be brief"


def test_a_cluster_that_is_not_there_is_one_line(suite: Path, tmp_path: Path) -> None:
    words = command(suite, "--candidates", tmp_path, "--ray", "127.0.0.1:1", "--run", tmp_path / "r")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "no Ray cluster answers there" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.timeout(400)
def test_a_search_is_judged_by_the_cluster(cluster: Any, suite: Path, tmp_path: Path) -> None:
    run = tmp_path / "search.sqlite"
    words = [sys.executable, "-m", "assay.cli.main", "search", str(suite / "level1" / "exp.py"), "--plain"]
    words += ["--ray", cluster.address, "--rungs", "eager", "--width", "1", "--evaluations", "2"]
    words += ["--run", str(run), "--out", str(tmp_path / "found.py")]
    with a_node(cluster):
        done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode in (0, 1) and "Traceback" not in done.stderr, done.stderr
    ended = judged(run)
    assert ended and all(one.verdict() is not None for one in ended)
    assert not any(one.worker.startswith("cpu") for one in ended), "a process of this machine judged"
