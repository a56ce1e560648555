"""`assay search --ray` from a machine without a GPU: a node of the cluster says what GPU it has."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from described_gpu import H200
from ray_cluster import new_cluster

from assay.archive import SearchArchive
from assay.evaluation import Described, describe_device, read_suite
from assay.evaluation.ray_crew import RayCrew
from assay.records import UserError, from_plain, to_plain

PROBLEM = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.exp(x)


def get_inputs():
    return [torch.rand(16, 24) + 0.5]
"""
# Torch on that node says that there is such a GPU to whoever reads its properties.
STAND_IN = f"""
import sys
import types

if "get_device_properties" in " ".join(sys.orig_argv):
    import torch

    torch.cuda.get_device_properties = lambda device: types.SimpleNamespace(**{H200!r})
"""


@contextlib.contextmanager
def one_node(**environment: str) -> Iterator[str]:
    """A cluster whose only node says that it has a GPU; its address."""
    with pytest.MonkeyPatch.context() as patched:
        for name, value in environment.items():
            patched.setenv(name, value)
        cluster = new_cluster(cpus=1, gpus=1)
    try:
        yield cluster.address
    finally:
        cluster.shutdown()


@pytest.fixture(scope="module")
def without() -> Iterator[str]:
    """A node where torch finds no GPU."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with one_node() as address:
        yield address


@pytest.fixture
def with_gpu(tmp_path: Path) -> Iterator[str]:
    """A node where torch finds an H200."""
    (tmp_path / "node").mkdir()
    (tmp_path / "node" / "sitecustomize.py").write_text(STAND_IN)
    known = os.environ.get("PYTHONPATH", "")
    with one_node(PYTHONPATH=f"{tmp_path / 'node'}:{known}") as address:
        yield address


@pytest.fixture
def problem(tmp_path: Path) -> Path:
    path = tmp_path / "exp.py"
    path.write_text(PROBLEM)
    return path


def search(problem: Path, address: str, *words: object) -> subprocess.CompletedProcess[str]:
    """From a machine without a GPU."""
    folder = problem.parent
    command = [sys.executable, "-m", "assay.cli.main", "search", problem, "--plain", "--ray", address, *words]
    command += ["--rungs", "eager", "--run", folder / "run.sqlite", "--out", folder / "found.py"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=400, check=False, env=environment
    )


def test_a_description_travels_as_text() -> None:
    for told in (describe_device("cpu"), Described("cuda:0", "an H200", 150 << 30, H200)):
        assert from_plain(Described, json.loads(json.dumps(to_plain(told))), "device") == told


def test_a_cpu_is_described_with_its_memory() -> None:
    told = describe_device("cpu")
    assert (
        told.device == "cpu" and told.facts is None and told.memory > 1 << 28 and "a CPU with" in told.words
    )


@pytest.mark.timeout(400)
def test_a_gpu_that_torch_cannot_use_there_is_one_line(without: str, problem: Path) -> None:
    done = search(problem, without)
    assert done.returncode == 2 and not done.stdout
    assert "no GPU of the cluster can be used" in done.stderr and "cannot be described" in done.stderr
    assert done.stderr.count("\n") == 1 and "Traceback" not in done.stderr, done.stderr


@pytest.mark.timeout(400)
def test_a_gpu_that_stays_busy_is_said(without: str, problem: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.evaluation.ray_crew.EMPTY_FOR_S", 2.0)
    with contextlib.closing(RayCrew(without, {}, read_suite(problem))) as crew:
        import ray

        class Holder:
            """Somebody else at work."""

            def there(self) -> bool:
                return True

        holder: Any = ray.remote(Holder).options(num_gpus=1, num_cpus=0).remote()
        assert ray.get(holder.there.remote())
        with pytest.raises(UserError, match="none of the cluster's GPUs is free"):
            crew.describe_device()
        ray.kill(holder)


@pytest.mark.timeout(400)
def test_what_is_captured_here_is_for_the_gpu_of_the_cluster(with_gpu: str, problem: Path) -> None:
    with contextlib.closing(RayCrew(with_gpu, {}, read_suite(problem))) as crew:
        told = crew.describe_device()
    assert (told.device, told.memory, told.facts) == ("cuda:0", H200["total_memory"], H200)
    assert "NVIDIA H200, compute capability 9.0, 132 SMs, 150 GiB" in told.words

    queue = problem.parent / "queue"
    words = ("--propose", "compiler", "--propose", "queue", "--queue", queue, "--time", 5, "--width", 4)
    done = search(problem, with_gpu, *words)  # nobody can judge: the node has no GPU in truth
    assert "Traceback" not in done.stderr and "the time is up" in done.stderr, done.stderr
    with SearchArchive(problem.parent / "run.sqlite") as archive:
        sources = [one.candidate.source for one in archive.drafted()]
    assert sources and all("@triton.jit" in source for source in sources)
    pages = [path.read_text() for path in queue.glob("*.md")]
    assert pages and all(told.words in page for page in pages)
