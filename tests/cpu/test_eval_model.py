"""`assay eval --model` against a real HTTP server: turns, prices, resuming, an endpoint that dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from llm_server import ModelServer, Reply

from assay.archive import Archive, Judged
from assay.cli.main import cli
from assay.records import UserError

PROBLEM = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.{}(x)


rows = 16


def get_inputs():
    return [torch.rand(rows, 24) + 0.5]
"""
WRONG = "Scale it.\n```python\nimport torch\n\ndef forward(x):\n    return torch.exp(x) * 1.5\n```"
RIGHT = "Do not scale.\n```python\nimport torch\n\ndef forward(x):\n    return torch.exp(x)\n```"


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    folder = tmp_path / "suite" / "level1"
    folder.mkdir(parents=True)
    for name in ("exp", "log"):
        (folder / f"{name}.py").write_text(PROBLEM.format(name))
    return folder.parent


def command(suite: Path, server: ModelServer, run: Path, *others: object) -> list[str]:
    words = ("eval", suite, "--model", "openai:tiny", "--model-url", server.url, "--run", run, "--no-speed")
    only = others if "--samples" in others else (*others, "--only", "level1_exp")
    return [sys.executable, "-m", "assay.cli.main", *map(str, (*words, "--device", "cpu", *only))]


def judged(run: Path) -> list[Judged]:
    with Archive(run) as archive:
        return list(archive.judged())


def learning(prompt: str) -> Reply:
    """Wrong at first; right when told that it was. Of the other problem it knows nothing."""
    if "torch.exp" in prompt:
        return RIGHT if "Verdict: wrong." in prompt else WRONG
    return (400, '{"error": {"message": "too long"}}') if "Verdict" in prompt else "I would rather not."


def test_a_model_learns_from_what_the_judge_found(suite: Path, tmp_path: Path) -> None:
    run = tmp_path / "run.sqlite"
    with ModelServer(learning) as server:
        words = command(suite, server, run, "--samples", 2, "--turns", 2, "--price", "10/100", "--json")
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        again = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ends = [(one.candidate.problem[7:], one.candidate.sample, one.status) for one in judged(run)]
    # An answer without a kernel, and one the endpoint refused, count against the model.
    assert ends == [
        *(("exp", sample, status) for sample in (0, 1) for status in ("wrong", "passed")),
        *(("log", sample, "unreadable") for sample in (0, 1) for _ in range(2)),
    ]
    # Six answers of 100 and 50 tokens; asked once each, although the command ran twice.
    assert len(server.asked) == 8 and again.returncode == 0
    assert json.loads(done.stdout)["all_problems"]["cost_usd"] == pytest.approx(6 * (0.001 + 0.005))
    prompts = [asked["messages"][1]["content"] for asked in server.asked]
    assert sum("torch.exp(x) * 1.5" in prompt and "expected" in prompt for prompt in prompts) == 2
    with Archive(run) as archive:
        second = judged(run)[1].candidate
        said = archive.transcript(second.id)
    assert said is not None and said.answer == RIGHT and "Verdict: wrong." in said.prompt
    assert second.parent == judged(run)[0].candidate.id


def test_what_is_judged_stays_when_the_endpoint_dies(suite: Path, tmp_path: Path) -> None:
    run = tmp_path / "run.sqlite"
    with ModelServer(lambda prompt: WRONG if "Verdict" not in prompt else (401, "{}")) as server:
        words = command(suite, server, run, "--turns", 2)
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 2 and "is OPENAI_API_KEY right?" in done.stderr
        assert [one.status for one in judged(run)] == ["wrong"]
    with ModelServer(learning) as server:  # the same run at another address is another run
        words = command(suite, server, run, "--turns", 2)
        result = CliRunner().invoke(cli, words[3:])
        assert isinstance(result.exception, UserError) and "another model" in str(result.exception)


def test_an_answer_that_was_paid_for_is_kept(suite: Path, tmp_path: Path) -> None:
    """Interrupted while the model writes: its answer is waited for, and judged another time."""
    run = tmp_path / "run.sqlite"
    asked, told = threading.Event(), threading.Event()

    def slow(prompt: str) -> Reply:
        asked.set()
        told.wait(60)
        return RIGHT

    with ModelServer(slow) as server:
        words = command(suite, server, run)
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert asked.wait(120)
        process.send_signal(signal.SIGTERM)
        time.sleep(1)
        assert process.poll() is None
        told.set()
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 130 and "waiting for 1 answers" in said
        assert judged(run) == []
        assert subprocess.run(words, capture_output=True, check=False).returncode == 0
    assert [one.status for one in judged(run)] == ["passed"] and len(server.asked) == 1


def test_whoever_interrupts_twice_gets_out(suite: Path, tmp_path: Path) -> None:
    asked, never = threading.Event(), threading.Event()

    def silent(prompt: str) -> Reply:
        asked.set()
        never.wait(120)
        return RIGHT

    with ModelServer(silent) as server:
        words = command(suite, server, tmp_path / "run.sqlite")
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert asked.wait(120)
        for _ in range(2):
            process.send_signal(signal.SIGTERM)
            time.sleep(1)
        said, _ = process.communicate(timeout=60)
        never.set()
    assert process.returncode == 130 and "Traceback" not in said
    assert os.path.exists(tmp_path / "run.sqlite")
