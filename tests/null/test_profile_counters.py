"""ncu's tables read in both of its forms, whatever is missing from them, and why there is none.

The tables were written by hand, in the form that ncu 2024 and 2025 print; they come from no device.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.profile import counters as module
from assay.profile.counters import METRICS, find_ncu, measure_counters, ncu_paths, parse_ncu_csv, why_nothing
from assay.records import CandidateFailure, Counters
from assay.worker.inspection import Inspection, ncu_command

WIDE = """==PROF== Connected to process 4711 (/usr/bin/python3.11)
==PROF== Profiling "layer_norm" - 0: 0%....50%....100% - 14 passes
==PROF== Disconnected from process 4711
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","dram__bytes_read.sum","dram__throughput.avg.pct_of_peak_sustained_elapsed","gpu__time_duration.sum","launch__registers_per_thread","sm__throughput.avg.pct_of_peak_sustained_elapsed","something__else.avg"
"","","","","","","","","","","","byte","%","ns","register/thread","%",""
"0","4711","python3.11","127.0.0.1","void layer_norm<float, 4>(const float *, float *, int)","1","7","(256, 1, 1)","(4096, 1, 1)","0","9.0","134,217,728","82.31","45,120","32","21.04","3"
"1","4711","python3.11","127.0.0.1","void layer_norm<float, 4>(const float *, float *, int)","1","7","(256, 1, 1)","(4096, 1, 1)","0","9.0","134,217,728","80.31","45,120","32","23.04","3"
"2","4711","python3.11","127.0.0.1","fill(float *)","1","7","(128, 1, 1)","(8, 1, 1)","0","9.0","1,024","n/a","1,984","16","0.52","3"
"""  # noqa: E501
LONG = """"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"
"0","4711","python3.11","127.0.0.1","softmax","1","7","(256, 1, 1)","(4096, 1, 1)","0","9.0","Command line profiler metrics","gpu__time_duration.sum","ns","45120"
==WARNING== Note that something is odd.
"0","4711","python3.11","127.0.0.1","softmax","1","7","(256, 1, 1)","(4096, 1, 1)","0","9.0","Command line profiler metrics","dram__throughput.avg.pct_of_peak_sustained_elapsed","%","82,31"
"0","4711","python3.11","127.0.0.1","softmax","1","7","(256, 1, 1)","(4096, 1, 1)","0","9.0","Command line profiler metrics","sm__warps_active.avg.pct_of_peak_sustained_active","%","nan"
"0","4711","python3.11","127.0.0.1","softmax","1","7","(256, 1, 1)","(4096, 1, 1)","0","9.0","Command line profiler metrics","sm__throughput.avg.pct_of_peak_sustained_elapsed","","(!) n/a"
"""  # noqa: E501
DENIED = """==PROF== Connected to process 4711 (/usr/bin/python3.11)
==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters
"""


def test_a_column_for_each_metric() -> None:
    norm, fill = parse_ncu_csv(WIDE)
    assert norm.name == "void layer_norm<float, 4>(const float *, float *, int)" and norm.launches == 2
    assert norm.values["dram_read_bytes"] == 2 * 134217728 and norm.values["time_ns"] == 90240
    assert norm.values["dram_percent"] == pytest.approx(81.31) and norm.values["registers"] == 32
    assert (fill.name, fill.launches) == ("fill(float *)", 1)
    assert "dram_percent" not in fill.values and fill.values["sm_percent"] == 0.52


def test_a_line_for_each_metric() -> None:
    (kernel,) = parse_ncu_csv(LONG)
    assert kernel.values == {"time_ns": 45120.0, "dram_percent": 82.31}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "==PROF== nothing",
        DENIED,
        '"ID","Kernel Name"',
        '"ID","Kernel Name"\n"0"',
        '"ID\n',
        "\0",
        '"a"\n"c"',
    ],
)
def test_what_is_no_table_holds_no_kernels(text: str) -> None:
    assert parse_ncu_csv(text) == ()


def test_a_broken_line_costs_only_itself() -> None:
    broken = WIDE + '"3","4711"\n"4","4711","python3.11","127.0.0.1","late(float *)"\n'
    assert parse_ncu_csv(broken) == parse_ncu_csv(WIDE)


def test_a_field_without_an_end_is_no_fault() -> None:
    assert parse_ncu_csv('"Kernel Name","' + "x" * 200_000) == ()


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Inspection(0, DENIED, ""), "NVreg_RestrictProfilingToAdminUsers=0"),
        (Inspection(1, "", DENIED), "administrators"),
        (Inspection(None, "", ""), "was stopped"),
        (Inspection(9, "==ERROR== Failed to find metric a__b.sum\n", ""), "Failed to find metric a__b.sum"),
        (Inspection(3, "", "a trace\nValueError: no\n"), "ValueError: no"),
        (Inspection(127, "", ""), "127"),
        (Inspection(0, "==WARNING== No kernels were profiled.\n", ""), "No kernels were profiled"),
        (Inspection(0, "==PROF== Disconnected\n", ""), "no kernel"),
    ],
)
def test_why_nothing_was_counted(outcome: Inspection, words: str) -> None:
    assert words in why_nothing(outcome)


def test_only_marked_calls_are_counted_and_clocks_are_left_alone() -> None:
    command = ncu_command("/opt/ncu", ["a.sum", "b.pct"], "/scratch/log")
    options = dict(itertools.pairwise(command))
    assert command[0] == "/opt/ncu" and options["--metrics"] == "a.sum,b.pct"
    assert options["--clock-control"] == "none" and options["--profile-from-start"] == "off"
    assert options["--log-file"] == "/scratch/log" and "--csv" in command


# --- the whole way, with a judge that only answers ---------------------------------------------------------


class Answering:
    """What `measure_counters` asks of a judge."""

    def __init__(self, answers: list[Any], device: torch.device) -> None:
        self.answers, self.device = answers, device
        self.asked: list[Any] = []

    def count_under(self, _problem: Any, _candidate: Any, tool: Any) -> Any:
        self.asked.append(tool)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A toolkit with ncu and a driver that says nothing."""
    program = tmp_path / "bin" / "ncu"
    program.parent.mkdir()
    (tmp_path / "nsight-compute-2025.3.1").mkdir()
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setattr(module, "_DRIVER_SETTINGS", tmp_path / "params")
    return program


def measure(*answers: Any, device: str = "cuda") -> tuple[Counters, list[Any]]:
    judge: Any = Answering(list(answers), torch.device(device))
    nobody: Any = None
    return measure_counters(judge, nobody, nobody), judge.asked


def test_what_ncu_counted_is_told_with_its_case(ncu: Path) -> None:
    found, asked = measure(("nominal", Inspection(0, WIDE, "")))
    assert found.case == "nominal" and not found.absent and len(found.kernels) == 2
    assert asked[0].path == str(ncu) and set(asked[0].metrics) == set(METRICS.values())
    assert asked[0].readable == ncu_paths(str(ncu)) and str(ncu) in asked[0].readable
    assert str(ncu.parent.parent / "nsight-compute-2025.3.1") in asked[0].readable


def test_metrics_that_a_chip_does_not_know_are_left_out_in_a_second_run(ncu: Path) -> None:
    unknown = METRICS["tensor_percent"]
    log = f"==ERROR== Failed to find metric {unknown}\n"
    found, asked = measure(("nominal", Inspection(1, log, "")), ("nominal", Inspection(0, WIDE, "")))
    assert len(found.kernels) == 2 and len(asked) == 2
    assert set(asked[1].metrics) == set(METRICS.values()) - {unknown}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "too large"),
        (CandidateFailure("crashed", "signal", "died of SIGSEGV"), "died of SIGSEGV"),
        (("nominal", Inspection(0, DENIED, "")), "administrators"),
    ],
)
def test_what_cannot_be_counted_is_said_once(ncu: Path, answer: Any, words: str) -> None:
    found, asked = measure(answer)
    assert not found.kernels and words in found.absent and len(asked) == 1


def test_a_cpu_has_no_counters_and_nobody_is_asked(ncu: Path) -> None:
    found, asked = measure(device="cpu")
    assert "GPU" in found.absent and not asked


def test_a_driver_that_refuses_is_not_asked(ncu: Path) -> None:
    settings = ncu.parent.parent / "params"
    settings.write_text("ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n")
    found, asked = measure()
    assert "administrators" in found.absent and not asked
    settings.write_text("RmProfilingAdminOnly: 0\n")
    assert measure(("nominal", Inspection(0, WIDE, "")))[0].kernels


def test_without_ncu_the_fix_is_named(ncu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ncu.unlink()
    monkeypatch.setattr(module, "_PLACES", ())
    monkeypatch.delenv("CUDA_HOME", raising=False)
    assert find_ncu() is None
    found, asked = measure()
    assert "install Nsight Compute" in found.absent and not asked
