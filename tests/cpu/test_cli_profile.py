"""`assay profile` as a person or a script meets it, and the way to the device's counters without a device."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console
from synthetic_runs import verdict as made_up

from assay.candidates import read_candidate
from assay.cli.profile import profile
from assay.cli.render_profile import show_profile
from assay.judge import Judge, Policy
from assay.judge.counting import CounterTool
from assay.problems import load_problem
from assay.profile import advise, parse_ncu_csv
from assay.records import (
    CandidateFailure,
    Counters,
    KernelCounters,
    KernelResources,
    Passed,
    Profile,
    UserError,
    from_plain,
)
from assay.records.decoding import decode_verdict

PROBLEM = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1

def get_inputs():
    return [torch.randn(64, 256)]
"""
KERNEL = """// assay: out y = torch.empty(x.shape)
// assay: call relu_one(x.float(), y, x.numel())
// assay: return y.to(x.dtype)
extern "C" void relu_one(const float* x, float* y, long n) {
  for (long i = 0; i < n; ++i) y[i] = (x[i] > 0 ? x[i] : x[i] == x[i] ? 0 : x[i]) + 1;
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("profile")
    (place / "problem.py").write_text(PROBLEM)
    (place / "kernel.cpp").write_text(KERNEL)
    (place / "wrong.cpp").write_text(KERNEL.replace("+ 1;", "+ 2;"))
    return place


def run(folder: Path, candidate: str, *options: str) -> Result:
    words = [
        str(folder / "problem.py"),
        str(folder / candidate),
        "--device",
        "cpu",
        "--rungs",
        "eager",
        *options,
    ]
    environment = {"ASSAY_CACHE": str(folder / "cache")}
    return CliRunner().invoke(profile, [*words, "--records", str(folder / "records")], env=environment)


def page(verdict: Passed, found: Profile) -> str:
    written = io.StringIO()
    show_profile(Console(file=written, width=100), verdict, found, Path("a/record.json"))
    return written.getvalue()


def test_a_right_candidate_has_a_profile(folder: Path) -> None:
    result = run(folder, "kernel.cpp", "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    verdict, found = decode_verdict(told["verdict"]), from_plain(Profile, told["profile"])
    assert isinstance(verdict, Passed) and "resources" in verdict.seconds
    (kernel,) = verdict.resources
    assert (kernel.name, kernel.source) == ("relu_one", "object") and len(kernel.digest) == 64
    assert kernel.loops is None or kernel.loops >= 1
    assert found.advice.regime in ("memory", "compute", "latency", "launch") and found.advice.steps
    assert found.counters.absent == "counters are read on a GPU alone"
    text = page(verdict, found)
    for words in (
        "BOUND",
        "speed of light",
        "what to try",
        "relu_one",
        "one call",
        "no counters",
        "a/record.json",
    ):
        assert words in text
    assert len(list((folder / "records").iterdir())) == 1


def test_a_wrong_candidate_is_told_why_and_has_none(folder: Path) -> None:
    result = run(folder, "wrong.cpp")
    assert result.exit_code == 1
    assert "NO PROFILE" in result.output and "Verdict: wrong." in result.output
    assert "elements are outside tolerance" in result.output and "expected" in result.output


def test_mistakes_of_whoever_asks(folder: Path) -> None:
    assert run(folder, "kernel.cpp", "--unknown").exit_code == 2
    absent = run(folder, "absent.cpp")
    assert isinstance(absent.exception, UserError) and "absent.cpp" in str(absent.exception)


def test_the_page_of_a_gpu_has_kernels_and_counters() -> None:
    verdict = made_up("p", "passed")
    assert isinstance(verdict, Passed)
    kernel = KernelResources(
        "a_kernel", "triton", digest="0123456789", registers=168, spill_bytes=24, threads=256, blocks=264
    )
    verdict = replace(
        verdict, resources=(replace(kernel, occupancy=0.125, limited_by="registers", waves=2.0),)
    )
    values = {
        "dram_percent": 31.0,
        "sm_percent": 22.0,
        "stall_long_scoreboard": 55.0,
        "occupancy_percent": 11.0,
    }
    counters = Counters((KernelCounters("a_kernel", 1, values),), "nominal")
    text = page(verdict, Profile(advise(verdict, counters), counters))
    for words in (
        "LATENCY BOUND",
        "55 %",
        "168 registers",
        "24 bytes spilled",
        "limited by registers",
        "01234567",
    ):
        assert words in text
    assert "case nominal" in text and "wait: memory" in text and "faster" not in text


# --- counters, with a stand-in for ncu ---------------------------------------------------------------------

STAND_IN = """#!{python} -I
import pathlib, subprocess, sys
words = sys.argv[1:]
options = {{}}
while words[0].startswith("--"):
    takes = words[0] != "--csv"
    options[words[0]], words = words[1] if takes else "", words[2 if takes else 1 :]
run = subprocess.run(words)
names = options["--metrics"].split(",")
lines = ["==PROF== Connected", ",".join(f'"{{n}}"' for n in ("ID", "Kernel Name", *names))]
lines.append(",".join(f'"{{v}}"' for v in (0, "mine", *range(len(names)))))
pathlib.Path(options["--log-file"]).write_text("\\n".join(lines))
sys.exit(run.returncode)
"""


@pytest.fixture(scope="module")
def judge(folder: Path) -> Iterator[Judge]:
    with Judge("cpu", Policy(speed=False, derive_hidden=False), folder / "cache") as one:
        yield one


@pytest.fixture
def tool(tmp_path: Path) -> CounterTool:
    script = tmp_path / "ncu"
    script.write_text(STAND_IN.format(python=sys.executable))
    script.chmod(0o755)
    return CounterTool(str(script), (str(script),), ("dram__bytes_read.sum", "gpu__time_duration.sum"), 60.0)


def count(judge: Judge, folder: Path, name: str, tool: CounterTool) -> Any:
    return judge.count_under(load_problem(folder / "problem.py"), read_candidate(folder / name), tool)


def test_a_tool_is_run_over_the_scored_case_in_a_child_of_its_own(
    judge: Judge, folder: Path, tool: CounterTool
) -> None:
    case, outcome = count(judge, folder, "kernel.cpp", tool)
    assert outcome.status == 0, outcome.output
    (kernel,) = parse_ncu_csv(outcome.log)
    assert kernel.values == {"dram_read_bytes": 0.0, "time_ns": 1.0}
    assert case == judge.prepare(load_problem(folder / "problem.py")).cases[0].instance.case.name


def test_what_is_too_large_for_a_program_of_its_own_is_not_run(
    judge: Judge, folder: Path, tool: CounterTool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assay.judge.counting.MOST_INPUT_BYTES", 1)
    assert count(judge, folder, "kernel.cpp", tool) is None


def test_a_candidate_that_does_not_build_fails_as_it_always_does(
    judge: Judge, folder: Path, tool: CounterTool
) -> None:
    (folder / "broken.cpp").write_text(KERNEL.replace("long n", "longer n"))
    with pytest.raises(CandidateFailure):
        count(judge, folder, "broken.cpp", tool)
