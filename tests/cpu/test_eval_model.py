"""`assay eval --model` against a real HTTP server: turns, prices, resuming, an endpoint that dies."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from daemon_process import environment
from llm_server import ModelServer, Reply

from assay.archive import Archive, Judged

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
Refused = Callable[..., tuple[object, str, str]]


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    folder = tmp_path / "suite" / "level1"
    folder.mkdir(parents=True)
    for name in ("exp", "log"):
        (folder / f"{name}.py").write_text(PROBLEM.format(name))
    return folder.parent


def words(suite: Path, server: ModelServer, run: Path, *others: object) -> list[object]:
    only = others if "--samples" in others else (*others, "--only", "level1_exp")
    where = ("--model", "openai:tiny", "--model-url", server.url, "--run", run)
    return ["eval", suite, *where, "--no-speed", "--jobs", 1, "--device", "cpu", *only]


def started(folder: Path, words: list[object]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "assay.cli.main", *map(str, words)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment(folder)
    )


def interrupted(process: subprocess.Popen[str]) -> None:
    """Told to end, and heard to say that it waits for the answer."""
    process.send_signal(signal.SIGTERM)
    assert process.stdout is not None
    assert any("waiting for 1 answers" in line for line in process.stdout), "it did not wait"


def judged(run: Path) -> list[Judged]:
    with Archive(run) as archive:
        return list(archive.judged())


class Learning:
    """Wrong at first; right when told that it was. Of the other problem it knows nothing."""

    def __init__(self) -> None:
        self.asked, self.may_answer = threading.Event(), threading.Event()
        self.is_dead = True
        """No prompt that tells of a verdict is answered."""

    def __call__(self, prompt: str) -> Reply:
        self.asked.set()
        self.may_answer.wait(120)
        if self.is_dead and "Verdict" in prompt:
            return 401, "{}"
        if "torch.exp" in prompt:
            return RIGHT if "Verdict: wrong." in prompt else WRONG
        return (400, '{"error": {"message": "too long"}}') if "Verdict" in prompt else "I would rather not."


def test_a_model_learns_from_what_the_judge_found_whatever_comes_between(
    suite: Path, tmp_path: Path, refused: Refused
) -> None:
    run, model = tmp_path / "run.sqlite", Learning()
    with ModelServer(model) as server:
        first = words(suite, server, run, "--turns", 2, "--price", "10/100")
        an_answer_that_was_paid_for_is_kept(first, model, run)
        what_is_judged_stays_when_the_endpoint_dies(first, refused, run)
        model.is_dead = False
        whole = words(suite, server, run, "--turns", 2, "--price", "10/100", "--samples", 2, "--json")
        code, out, err = refused(*whole, folder=tmp_path)
    assert code == 0, err
    ends = [(one.candidate.problem[7:], one.candidate.sample, one.status) for one in judged(run)]
    # An answer without a kernel, and one the endpoint refused, count against the model.
    assert ends == [
        *(("exp", sample, status) for sample in (0, 1) for status in ("wrong", "passed")),
        *(("log", sample, "unreadable") for sample in (0, 1) for _ in range(2)),
    ]
    # Six answers of 100 and 50 tokens; all but the one that died were asked for once, by three starts.
    assert len(server.asked) == 9
    assert json.loads(out)["all_problems"]["cost_usd"] == pytest.approx(6 * (0.001 + 0.005))
    prompts = [asked["messages"][1]["content"] for asked in server.asked]
    assert sum("torch.exp(x) * 1.5" in prompt and "expected" in prompt for prompt in prompts) == 3
    it_is_known_which_answer_followed_which(run)
    with ModelServer(model) as server:  # the same run at another address is another run
        code, _, err = refused(*words(suite, server, run, "--turns", 2), folder=tmp_path)
    assert code == 2 and "another model" in err and not server.asked


def an_answer_that_was_paid_for_is_kept(words: list[object], model: Learning, run: Path) -> None:
    """Interrupted while the model writes: its answer is waited for, and judged another time."""
    process = started(run.parent, words)
    assert model.asked.wait(120)
    interrupted(process)
    assert process.poll() is None
    model.may_answer.set()
    process.communicate(timeout=120)
    assert process.returncode == 130 and judged(run) == []


def what_is_judged_stays_when_the_endpoint_dies(words: list[object], refused: Refused, run: Path) -> None:
    code, _, err = refused(*words, folder=run.parent)
    assert code == 2 and "is OPENAI_API_KEY right?" in err
    assert [one.status for one in judged(run)] == ["wrong"]


def it_is_known_which_answer_followed_which(run: Path) -> None:
    first, second, *_ = (one.candidate for one in judged(run))
    with Archive(run) as archive:
        said = archive.transcript(second.id)
    assert said is not None and said.answer == RIGHT and "Verdict: wrong." in said.prompt
    assert second.parent == first.id


def test_whoever_interrupts_twice_gets_out(suite: Path, tmp_path: Path) -> None:
    run, model = tmp_path / "run.sqlite", Learning()
    with ModelServer(model) as server:
        process = started(tmp_path, words(suite, server, run))
        assert model.asked.wait(120)
        interrupted(process)
        process.send_signal(signal.SIGTERM)
        said, _ = process.communicate(timeout=120)
        model.may_answer.set()
    assert process.returncode == 130 and "Traceback" not in said
    assert run.exists()
