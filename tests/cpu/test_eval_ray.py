"""`assay eval --ray` and `assay search --ray` on a real cluster here.

A node of it is killed; another one says what GPU it has to a machine without one.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from described_gpu import H200
from llm_server import ModelServer
from ray_cluster import a_node, new_cluster

from assay.archive import Archive, Judged, SearchArchive
from assay.evaluation import Described, describe_device, read_suite
from assay.evaluation.ray_crew import SHARE, RayCrew, Seat, seats_of
from assay.records import UserError, from_plain, to_plain

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
NODES_NAME = "the standing node"
IDEA = "1. Do less\n   Hypothesis: it does too much.\n   Mechanism: fewer calls.\n   Predicted gain: 1.1x\n"
KERNEL = "```python\nimport torch\n\n\ndef forward(x):\n    return (torch.exp(x) + torch.exp(x)) / 2\n```\n"
# Torch on a node says that there is such a GPU to whoever reads its properties, once that file is there.
STAND_IN = """
import os
import sys
import types

if "get_device_properties" in " ".join(sys.orig_argv) and os.path.exists({switch!r}):
    import torch

    torch.cuda.get_device_properties = lambda device: types.SimpleNamespace(**{facts!r})
"""
Refused = Callable[..., tuple[object, str, str]]


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
    with new_cluster() as cluster:
        yield cluster


@pytest.fixture(scope="module")
def standing(cluster: Any) -> Iterator[str]:
    """The address of the cluster once it has a node that judges; it is known by what it asks models."""
    with a_node(cluster, OPENAI_ORG_ID=NODES_NAME):
        yield cluster.address


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
    cluster: Any, suite: Path, tmp_path: Path, request: pytest.FixtureRequest
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
    with a_node(cluster, cpus=2) as doomed:
        words = command(suite, "--candidates", folder, "--run", run, "--ray", cluster.address)
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        until_one_is_judged(run)
        cluster.remove_node(doomed, allow_graceful=False)
    kept = judged(run)
    assert len(kept) < len(expected), "the node has to be at work when it is killed"
    request.getfixturevalue("standing")
    said, _ = process.communicate(timeout=240)
    assert process.returncode == 0, said
    ended = judged(run)
    assert {f"{one.candidate.problem}/{one.candidate.name}": one.status for one in ended} == expected
    assert len(ended) == len(expected) and [one for one in ended if one in kept] == kept


def test_a_cluster_that_is_not_there_is_one_line(suite: Path, tmp_path: Path, refused: Refused) -> None:
    words = ("eval", suite, "--candidates", tmp_path, "--ray", "127.0.0.1:1", "--run", tmp_path / "r")
    code, _, err = refused(*words, "--no-speed", folder=tmp_path)
    assert code == 2 and "no Ray cluster answers there" in err
    assert err.count("\n") == 1 and "Traceback" not in err


@pytest.mark.timeout(400)
def test_a_search_is_judged_by_the_cluster_which_also_asks_models(
    standing: str, suite: Path, tmp_path: Path, refused: Refused
) -> None:
    run = tmp_path / "search.sqlite"
    words = ["search", suite / "level1" / "exp.py", "--plain", "--rungs", "eager", "--budget", 0.1]
    words += ["--width", 1, "--evaluations", 1, "--run", run, "--out", tmp_path / "found.py"]
    with ModelServer(lambda prompt: IDEA if prompt.startswith("Think of ways") else KERNEL) as server:
        words += ["--model", "openai:tiny", "--model-url", server.url, "--ray", standing]
        code, _, err = refused(*words, folder=tmp_path)
    assert code in (0, 1) and "Traceback" not in err, err
    ended = judged(run)
    assert ended and all(one.verdict() is not None for one in ended)
    assert not any(one.worker.startswith("cpu") for one in ended), "a process of this machine judged"
    assert {asked["headers"].get("openai-organization") for asked in server.asked} == {NODES_NAME}
    for system, prompt in (asked["messages"] for asked in server.asked):
        assert "no instruction to you" in system["content"] and "a CPU with" in prompt["content"]
    assert ended[0].candidate.source in KERNEL


def test_a_description_travels_as_text() -> None:
    for told in (describe_device("cpu"), Described("cuda:0", "an H200", 150 << 30, H200)):
        assert from_plain(Described, json.loads(json.dumps(to_plain(told))), "device") == told


def test_a_cpu_is_described_with_its_memory() -> None:
    told = describe_device("cpu")
    assert told.device == "cpu" and told.facts is None and told.memory > 1 << 28
    assert "a CPU with" in told.words


@pytest.fixture(scope="module")
def gpu_switch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Torch finds the GPU of that node once this file is there; for the last tests of this file."""
    return tmp_path_factory.mktemp("switch") / "there"


@pytest.fixture(scope="module")
def with_gpu(cluster: Any, gpu_switch: Path) -> Iterator[str]:
    """The address of the cluster once it has a node that says that it has a GPU."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    folder = gpu_switch.parent
    (folder / "sitecustomize.py").write_text(STAND_IN.format(switch=str(gpu_switch), facts=H200))
    known = os.environ.get("PYTHONPATH", "")
    with a_node(cluster, gpus=1, PYTHONPATH=f"{folder}:{known}"):
        yield cluster.address


def to_search(problem: Path, address: str, folder: Path) -> list[object]:
    words = ["search", problem, "--plain", "--ray", address, "--rungs", "eager"]
    return [*words, "--run", folder / "run.sqlite", "--out", folder / "found.py"]


@pytest.mark.timeout(400)
def test_a_gpu_that_torch_cannot_use_there_is_one_line(
    with_gpu: str, gpu_switch: Path, suite: Path, tmp_path: Path, refused: Refused
) -> None:
    gpu_switch.unlink(missing_ok=True)
    words = to_search(suite / "level1" / "exp.py", with_gpu, tmp_path)
    code, out, err = refused(*words, "--time", 5, folder=tmp_path)
    assert code == 2 and not out
    assert "no GPU of the cluster can be used" in err and "cannot be described" in err
    assert err.count("\n") == 1 and "Traceback" not in err, err


@pytest.mark.timeout(400)
def test_what_is_captured_here_is_for_the_gpu_of_the_cluster(
    with_gpu: str, gpu_switch: Path, suite: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu_switch.touch()
    problem = suite / "level1" / "exp.py"
    with contextlib.closing(RayCrew(with_gpu, {}, read_suite(problem))) as crew:
        a_gpu_that_stays_busy_is_said(crew, monkeypatch)
        told = crew.describe_device()
    assert (told.device, told.memory, told.facts) == ("cuda:0", H200["total_memory"], H200)
    assert "NVIDIA H200, compute capability 9.0, 132 SMs, 150 GiB" in told.words

    queue = tmp_path / "queue"
    words = to_search(problem, with_gpu, tmp_path)
    words += ["--propose", "compiler", "--propose", "queue", "--queue", queue, "--time", 5, "--width", 4]
    command = [sys.executable, "-m", "assay.cli.main", *map(str, words)]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )  # nobody can judge: the node has no GPU in truth
    assert "Traceback" not in done.stderr and "the time is up" in done.stderr, done.stderr
    with SearchArchive(tmp_path / "run.sqlite") as archive:
        sources = [one.candidate.source for one in archive.drafted()]
    assert sources and all("@triton.jit" in source for source in sources)
    pages = [path.read_text() for path in queue.glob("*.md")]
    assert pages and all(told.words in page for page in pages)


def a_gpu_that_stays_busy_is_said(crew: RayCrew, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    class Holder:
        """Somebody else at work."""

        def there(self) -> bool:
            return True

    holder: Any = ray.remote(Holder).options(num_gpus=1, num_cpus=0).remote()
    assert ray.get(holder.there.remote())
    with monkeypatch.context() as patched, pytest.raises(UserError, match="GPUs is free"):
        patched.setattr("assay.evaluation.ray_crew.EMPTY_FOR_S", 2.0)
        crew.describe_device()
    ray.kill(holder)
