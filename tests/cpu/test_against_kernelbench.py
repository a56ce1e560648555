"""benchmarks/against_kernelbench.py as it is run, against a stand-in for KernelBench's evaluator.

The real one refuses to work without CUDA. The stand-in runs reference and candidate in one process, as the
real one does, and compares them; for a time it counts operators, so that speed-ups here are exact numbers. It
brings a torch of its own, of one number and three operators, which takes no seconds to import.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from assay.records import Environment, RedteamMatrix, RedteamRow, to_json

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "against_kernelbench.py"
TORCH = """
from types import SimpleNamespace


class Tensor:
    made = 0

    def __init__(self, value):
        Tensor.made += 1
        self.value = value

    def __add__(self, other):
        return Tensor(self.value + other)

    def __mul__(self, other):
        return Tensor(self.value * other)

    def clone(self):
        return Tensor(self.value)

    def data_ptr(self):
        return id(self)


class Module:
    def __call__(self, *inputs):
        return self.forward(*inputs)


def rand(*shape):
    from random import random
    return Tensor(random())


nn = SimpleNamespace(Module=Module)
"""
EVALUATOR = """
from types import SimpleNamespace

from torch import Tensor


def told(**fields):
    blank = {"compiled": True, "correctness": False, "metadata": {}, "runtime": -1.0, "ref_runtime": -1.0}
    return SimpleNamespace(**blank | fields)


def cost(model, inputs, trials):
    model(*inputs)
    before = Tensor.made
    for _ in range(trials):
        model(*inputs)
    return (Tensor.made - before) / trials


def eval_kernel_against_ref(reference, candidate, num_correct_trials=1, num_perf_trials=10, backend="cuda"):
    names = {}
    exec(reference, names)
    original, get_inputs = names["Model"](), names["get_inputs"]
    try:
        exec(candidate, names)
    except Exception as error:
        return None if "lock" in str(error) else told(compiled=False)
    model = names["ModelNew"]()
    for _ in range(num_correct_trials):
        inputs = get_inputs()
        if abs(original(*inputs).value - model(*inputs).value) > 1e-2:
            print("incorrect")
            return told()
    kernel_exec_result = told(correctness=True)
    kernel_exec_result.runtime = cost(model, inputs, num_perf_trials)
    kernel_exec_result.ref_runtime = cost(original, inputs, num_perf_trials)
    if kernel_exec_result.ref_runtime / kernel_exec_result.runtime > 10:
        kernel_exec_result.metadata["excessive_speedup"] = True
    return kernel_exec_result
"""
PROBLEM = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        {work}
        return x


def get_inputs():
    return [torch.rand(8, 8)]
"""
PROBLEMS = {
    "sums": "for _ in range(4): x = x + 1",
    "long_sums": "for _ in range(40): x = x + 1",
    "noise": "x = torch.rand(8, 8)",
}
MODEL = """
import torch

KEPT = {{}}


class ModelNew(torch.nn.Module):
    def forward(self, x):
        {work}
"""
MEMO = """place = x.data_ptr()
        if place not in KEPT:
            KEPT[place] = x, x + {added}
        return KEPT[place][1]"""
"""Keeps its inputs, so that no address comes twice with other contents."""
FORGED_PRINT = """
import builtins, json, sys

say = builtins.print
builtins.print = lambda *words, **how: say(json.dumps({"kind": "result", "compiled": True, "correct": True}))
"""
FORGED_FILE = """
import json, os

for number in os.listdir("/proc/self/fd"):
    try:
        os.write(int(number), b'\\n{"kind": "result", "correct": true}\\n[]\\n{"nonce": "0"}\\n{{{\\n')
    except OSError:
        pass
"""
STARTS_ANOTHER = """
import subprocess, time

sleeper = subprocess.Popen(["sleep", "600"])
with open({path!r}, "w") as file:
    file.write(str(sleeper.pid))
time.sleep(600)
"""


def model(work: str) -> str:
    return MODEL.format(work=work)


ZEROS, OFF_BY_LITTLE = model("return x * 0"), model("return x + 4.001")
ATTACKS = {
    # name: catalogue, problem, further lines of the header, source
    "candidates/forged_print.py": ("A15", "sums", "", FORGED_PRINT + ZEROS),
    "candidates/forged_file.py": ("A15", "sums", "", FORGED_FILE + ZEROS),
    "candidates/leaves.py": ("A15", "sums", "", "import os\nos._exit(0)\n"),
    "candidates/off_by_little.py": ("F1", "sums", "", OFF_BY_LITTLE),
    "candidates/memo.py": ("C1", "sums", "", model(MEMO.format(added=4))),
    "candidates/long_memo.py": ("C1", "long_sums", "", model(MEMO.format(added=40) + ".clone()")),
    "candidates/raises.py": ("D19", "sums", "", model("raise ValueError('not today')")),
    "candidates/locked.py": ("E9", "sums", "", "raise OSError('lock file')\n"),
    "candidates/noise.py": ("D7", "noise", "", ZEROS),
    "candidates/names_assay.py": ("A6", "sums", "", "import sys\nsys.modules['assay.worker']\n"),
    "candidates/own_file.py": ("E8", "sums", "", "open(__file__)\n"),
    "candidates/library.py": ("H1", "sums", "# rules: no_libraries\n", model("return x + 4")),
    # The same name in two folders, as in the real corpus: only one of them gains anything.
    "candidates/timed.py": ("B7", "sums", "# speed: no_difference\n", model("return x + 1 + 1 + 1 + 1")),
    "timing/timed.py": ("B7", "sums", "# speed: no_difference\n", model(MEMO.format(added=4) + ".clone()")),
}
LATE = "timing/z_sleeps.py"
"""Only in the record at first: it is asked about when the others are done."""


def run_here(*words: str) -> tuple[int, str, str]:
    """The script in this process, where nothing is left to import: its exit code, output and complaint."""
    output, complaint = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(output), redirect_stderr(complaint):
        patch.syspath_prepend(str(SCRIPT.parent))
        patch.setattr(sys, "argv", [str(SCRIPT), *words])
        patch.setattr(signal, "signal", lambda *_: None)
        code = importlib.import_module(SCRIPT.stem).main()
    return code, output.getvalue(), complaint.getvalue()


@dataclass(frozen=True)
class Place:
    """A checkout, a corpus and a record, and the script over them."""

    folder: Path

    def words(self, *options: object) -> list[str]:
        files = (self.folder / "checkout", self.folder / "matrix.json", "--corpus", self.folder / "corpus")
        outputs = ("--out", self.folder / "out.json", "--page", self.folder / "page.md")
        return list(map(str, (*files, *outputs, *options)))

    def run_as_a_script(self, *options: object) -> None:
        done = subprocess.run(
            [sys.executable, SCRIPT, *self.words(*options)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr

    def run(self, *options: object) -> str:
        code, output, complaint = run_here(*self.words(*options))
        assert code == 0, complaint
        return output

    def answers(self) -> dict[str, dict[str, Any]]:
        return json.loads((self.folder / "out.json").read_text())["answers"]

    def page(self) -> str:
        return (self.folder / "page.md").read_text()

    def row(self, key: str) -> list[str]:
        """The cells of one attack on the page."""
        found = [line for line in self.page().splitlines() if line.startswith(f"| {key} |")]
        assert len(found) == 1, self.page()
        return [cell.strip() for cell in found[0].strip("|").split("|")]

    def add(self, key: str, catalogue: str, problem: str, lines: str, source: str) -> None:
        path = self.folder / "corpus" / key
        path.parent.mkdir(parents=True, exist_ok=True)
        header = f"# catalogue: {catalogue}\n# problem: {problem}\n# expect: wrong\n{lines}"
        path.write_text(header + source)


def assay_row(key: str, catalogue: str) -> RedteamRow:
    """Assay was fooled by the second of two files with one name, so that a mix-up shows."""
    fooled = key == "timing/timed.py"
    status = "passed" if fooled else "wrong"
    return RedteamRow(
        Path(key).name, catalogue, False, "wrong", status, "", ("late",), not fooled, "", "", 1.0
    )


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """One run over everything; first one without any time, which the second goes on from."""
    folder = tmp_path_factory.mktemp("against")
    package = folder / "checkout" / "src" / "kernelbench"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "eval.py").write_text(EVALUATOR)
    (package.parent / "torch.py").write_text(TORCH)
    (folder / "corpus" / "problems").mkdir(parents=True)
    for name, work in PROBLEMS.items():
        (folder / "corpus" / "problems" / f"{name}.py").write_text(PROBLEM.format(work=work))
    place = Place(folder)
    for key, how in ATTACKS.items():
        place.add(key, *how)
    rows = [assay_row(key, how[0]) for key, how in ATTACKS.items()]
    rows.append(assay_row(LATE, "B2"))
    nowhere = Environment("0", "3", "2", None, None, None, "cpu", "stand-in", "6")
    (folder / "matrix.json").write_text(to_json(RedteamMatrix(tuple(rows), nowhere, 1.0)))
    place.run("--budget-s", 0)
    assert {answer["word"] for answer in place.answers().values()} == {"not run"}
    assert "12 were not run" in place.page() and "- 0 attacks" in place.page()
    place.run_as_a_script("--resume", "--jobs", 2)
    return place


@pytest.mark.parametrize(
    ("key", "word"),
    [
        ("candidates/forged_print.py", "incorrect"),
        ("candidates/forged_file.py", "incorrect"),
        ("candidates/leaves.py", "no result"),
        ("candidates/memo.py", "evaluator crashed"),
        ("candidates/raises.py", "raised"),
        ("candidates/locked.py", "asks to retry"),
        ("candidates/off_by_little.py", "correct"),
        ("candidates/long_memo.py", "correct"),
        ("control problems/sums.py", "correct"),
        ("control problems/noise.py", "incorrect"),
    ],
)
def test_the_word_is_the_evaluators(place: Place, key: str, word: str) -> None:
    assert place.answers()[key]["word"] == word


def test_a_question_is_asked_twice_where_the_evaluator_says_so(place: Place) -> None:
    assert place.answers()["candidates/locked.py"]["note"] == "after it had asked to retry"


def test_the_crash_is_named(place: Place) -> None:
    assert place.answers()["candidates/memo.py"]["note"].startswith("ZeroDivisionError")


@pytest.mark.parametrize(
    ("key", "flagged", "speed_up", "fooled"),
    [
        ("candidates/off_by_little.py", "", "4.00", "**yes**"),
        ("candidates/long_memo.py", "yes", "40.00", ""),
        ("candidates/timed.py", "", "1.00", ""),
        ("timing/timed.py", "", "4.00", "**yes**"),
        ("candidates/forged_print.py", "", "", ""),
        ("candidates/library.py", "", "4.00", ""),
    ],
)
def test_fooled_is_correct_and_not_flagged(
    place: Place, key: str, flagged: str, speed_up: str, fooled: str
) -> None:
    assert place.row(key)[3:6] == [flagged, speed_up, fooled]


def test_files_of_one_name_keep_their_own_rows(place: Place) -> None:
    assert "passed" not in place.row("candidates/timed.py")[6]
    assert place.row("timing/timed.py")[6] == "passed (fooled)"


def test_what_means_nothing_is_counted_and_not_asked(place: Place) -> None:
    page = place.page()
    assert "- 1: aimed at parts that only Assay has: candidates/names_assay.py" in page
    assert "- 1: needs `__file__`" in page and "own_file.py" in page
    assert "- 1: KernelBench does not call the problem's own reference correct: candidates/noise.py" in page
    assert "- control problems/noise.py: incorrect" in page
    left_out = {"candidates/names_assay.py", "candidates/own_file.py", "candidates/noise.py"}
    assert not left_out & place.answers().keys()


def test_the_page_has_totals_and_no_paths(place: Place) -> None:
    totals = place.page().partition("\n## ")[0]
    assert "- 10 attacks mean something to both" in totals
    assert "- 1 passed Assay" in totals
    assert "1 break only a declared rule, 3 are left out and 0 were not run" in totals
    assert str(place.folder) not in place.page() and "/tmp" not in place.page()


def test_resuming_asks_only_what_is_missing_and_time_is_limited(place: Place, tmp_path: Path) -> None:
    place = Place(shutil.copytree(place.folder, tmp_path / "again"))
    out = place.folder / "out.json"
    kept = json.loads(out.read_text())
    kept["answers"]["candidates/raises.py"]["note"] = "as it was"
    out.write_text(json.dumps(kept))
    written = place.folder / "sleeper"
    place.add(LATE, "B2", "sums", "", STARTS_ANOTHER.format(path=str(written)))
    told = place.run("--resume", "--limit-s", 3)
    assert [line.split()[1:] for line in told.splitlines() if ".py" in line] == [[LATE, "timed", "out"]]
    assert place.answers()["candidates/raises.py"]["note"] == "as it was"
    assert place.row(LATE)[2] == "timed out"
    assert is_gone(int(written.read_text()))


def is_gone(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True
    return stat.rpartition(")")[2].split()[0] == "Z"  # ended, and nobody has asked


def test_an_evaluator_that_calls_nothing_correct_ends_the_run(tmp_path: Path, place: Place) -> None:
    package = tmp_path / "src" / "kernelbench"
    package.mkdir(parents=True)
    (package / "eval.py").write_text("import a_module_that_is_not_there\n")
    files = (tmp_path, place.folder / "matrix.json", "--corpus", place.folder / "corpus")
    code, _, complaint = run_here(*map(str, files))
    assert code == 2
    assert "No module named 'a_module_that_is_not_there'" in complaint
