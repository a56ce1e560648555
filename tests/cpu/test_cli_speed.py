"""Gate 2 as a person or a script meets it: `assay check` with speed, and `assay bench`."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from daemon_process import environment
from rich.console import Console

from assay.cli.options import RUNG_NAMES, policy_fields
from assay.cli.render import _ADVICE
from assay.cli.render_speed import show_ladder, show_speed
from assay.records import (
    FASTER,
    NO_DIFFERENCE,
    SLOWER,
    ClockCheck,
    Conditions,
    Environment,
    Interval,
    Ladder,
    Passed,
    Roofline,
    Rung,
    Speed,
    Times,
    from_plain,
    to_plain,
)
from assay.records.decoding import decode_verdict
from assay.speed.opponents import NAMES

NOISE = {"opponent_disturbed", "clocks_disagree", "gain_not_confirmed"}
TRIES = 4
WIDTH = 80


def assay(*arguments: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """The command line, out of reach of any daemon but one below `folder`."""
    command = [sys.executable, "-m", "assay.cli", *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=folder, env=environment(folder), timeout=280, check=False
    )


def records_in(folder: Path) -> list[Path]:
    return sorted((folder / ".assay" / "records").glob("*.json"))


@pytest.fixture(scope="module")
def timed(folder: Path) -> tuple[str, dict[str, Any]]:
    """What a timed check printed, and its record. A machine that is busy with other things may disturb the
    opponent; how that is told is another test's matter.
    """
    for _ in range(TRIES):
        run = assay("check", "tiny.py", "right.py", "--device", "cpu", "--rungs", "eager", folder=folder)
        assert run.returncode in (0, 1), run.stderr
        record = json.loads(records_in(folder)[-1].read_text())
        if record["status"] == "passed":
            assert run.returncode == 0
            return run.stdout, record
        assert {finding["code"] for finding in record["findings"]} <= NOISE, run.stdout
    pytest.skip("this machine is too busy for a race")


@pytest.mark.alone
def test_a_check_ends_with_a_speed_verdict(timed: tuple[str, dict[str, Any]]) -> None:
    text, record = timed
    assert text.startswith("PASSED")
    speed = record["speed"]
    headline = next(line for line in text.splitlines() if "the speed of eager" in line)
    assert headline.startswith(speed["outcome"].upper())
    assert re.search(r"^▸ right +[\d.]+ +1 +█", text, re.MULTILINE)
    assert re.search(r"^  eager +[\d.]+ +[\d.]+ +[▏▎▍▌▋▊▉█]", text, re.MULTILINE)
    assert re.search(r"^absent +compile, .*not", text, re.MULTILINE)
    assert text.splitlines()[-1].startswith("record: ")
    # Notes stay whole, for whoever searches for them; a busy machine may leave one.
    lines = [line for line in text.splitlines()[:-1] if not line.startswith("· ")]
    assert max(map(len, lines)) <= WIDTH


@pytest.mark.alone
def test_a_record_with_speed_reads_back_whole(timed: tuple[str, dict[str, Any]]) -> None:
    _, record = timed
    verdict = decode_verdict(record)
    assert isinstance(verdict, Passed)
    assert verdict.speed is not None
    codes = {finding.code for finding in verdict.findings}
    assert verdict.speed.clocks.agrees or "clocks_disagree" in codes  # a note, where noise made them
    assert "agrees" not in record["speed"]["clocks"]
    assert to_plain(verdict) == record
    assert record["policy"]["rungs"] == ["eager"]


def test_bench_prints_rungs_and_writes_a_record_that_decodes(folder: Path) -> None:
    run = assay("bench", "tiny.py", "--device", "cpu", "--rungs", "eager", folder=folder)
    assert run.returncode == 0, run.stderr
    assert re.search(r"^▸ eager +[\d.]+ +[\d.]+ to [\d.]+ +[\d.]+ % +█", run.stdout, re.MULTILINE)
    path = folder / run.stdout.splitlines()[-1].removeprefix("record: ")
    ladder = from_plain(Ladder, json.loads(path.read_text()))
    assert path.name.endswith(f"-bench-{ladder.digest[:8]}.json")
    assert ladder.opponent == "eager"
    assert [rung.name for rung in ladder.rungs if rung.times is not None] == ["eager"]
    assert all(rung.absent for rung in ladder.rungs if rung.name != "eager")


def test_bench_exits_1_where_no_baseline_runs(
    refused: Callable[..., tuple[object, str, str]], folder: Path, one_thread: None
) -> None:
    text = (folder / "tiny.py").read_text()
    leave = (
        '        if "assay.cli" not in sys.modules:\n            raise OSError("no baseline")\n        return'
    )
    (folder / "at_home.py").write_text("import sys\n" + text.replace("        return", leave, 1))
    order = ("bench", "at_home.py", "--device", "cpu", "--rungs", "eager", "--json")
    code, output, complaint = refused(*order, folder=folder)
    assert code == 1, complaint
    ladder = from_plain(Ladder, json.loads(output))
    assert (ladder.opponent, ladder.roofline) == ("", None)
    assert "no baseline" in next(rung.absent for rung in ladder.rungs if rung.name == "eager")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("check", "tiny.py", "right.py", "--rungs", "eager,warp"), "'warp'; there are eager, compile"),
        (("bench", "tiny.py", "--rungs", ""), "there are eager, compile"),
        (("bench", "nowhere.py"), "nowhere.py"),
        (("bench", "right.py"), "Model"),
        (("check", "tiny.py", "right.py", "--budget", "nan"), "--budget is a number"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    refused: Callable[..., tuple[object, str, str]], folder: Path, arguments: tuple[str, ...], words: str
) -> None:
    code, output, complaint = refused(*arguments, "--device", "cpu", folder=folder)
    assert (code, output) == (2, "")
    assert words in complaint
    assert len(complaint.strip().splitlines()) == 1


def test_rungs_are_those_the_ladder_knows() -> None:
    assert RUNG_NAMES == NAMES


def test_only_what_was_asked_for_is_in_the_policy() -> None:
    plain = {"allow_flawed": False, "allow_tf32": False, "rungs": (), "force_busy": False}
    assert policy_fields(**plain) == {}
    asked = {**plain, "rungs": ("eager",), "force_busy": True, "no_speed": True, "budget": 3.0}
    wanted = {"rungs": ("eager",), "force_busy": True, "speed": False, "speed_budget_s": 3.0}
    assert policy_fields(**asked) == wanted


# ---- rendering alone, with figures of a GPU

TIMES = Times(device_us=35.21, warm_us=28.4, latency_us=44.9, first_call_ms=812.0)
CONDITIONS = Conditions(
    sm_clock_mhz=1980.0,
    memory_clock_mhz=3201,
    temperature_c=41,
    power_w=312.4,
    throttle_reasons=(),
    other_processes=0,
    flush_bytes=1 << 28,
    dropped_blocks=2,
    forced=False,
)
ROOFLINE = Roofline(134217728, 134217728, 3 * 10**12, "declared", "memory", 29.6, 84.07, 20.1)


def rung(name: str, time_us: float, ratio: float | None) -> Rung:
    times = replace(TIMES, device_us=time_us)
    return Rung(name, {}, "", times, Interval(time_us, time_us * 0.99, time_us * 1.01), ratio)


RUNGS = (
    rung("eager", 102.4, 2.9),
    rung("compile", 51.3, 1.46),
    rung("max-autotune-no-cudagraphs", 44.7, 1.27),
    rung("max-autotune", 71.0, 2.02),
    Rung(
        "aot-inductor",
        {},
        absent="crashed: a reason [with brackets] that goes on for much longer than a line",
    ),
)
SPEED = Speed(
    outcome=FASTER,
    ratio=Interval(1.2712, 1.2621, 1.2814),
    margin=0.01,
    opponent="max-autotune-no-cudagraphs",
    times=TIMES,
    compile_s=0.0,
    rungs=RUNGS,
    graphed=Interval(1.31, 1.3, 1.32),
    graphed_absent="",
    clocks=ClockCheck(35.21, 35.02, 3.1),
    roofline=ROOFLINE,
    conditions=CONDITIONS,
    processes=3,
    blocks=46,
    precision={},
    calibration={"comparisons": 100, "false_rate": 0.01, "smallest_detectable": 0.0123},
)


def shown(speed: Speed) -> str:
    console = Console(file=io.StringIO(), width=WIDTH, force_terminal=False)
    show_speed(console, speed, "kernel")
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_headline_names_opponent_interval_and_limit() -> None:
    lines = shown(SPEED).splitlines()
    assert lines[0] == "FASTER  1.27x the speed of max-autotune-no-cudagraphs (95 %: 1.262 to 1.281)"
    assert lines[1].strip() == "84 % of speed of light"
    assert max(map(len, lines)) <= WIDTH


def test_the_chart_is_in_order_of_time_with_the_candidate_in_its_place() -> None:
    rows = [line.split() for line in shown(SPEED).splitlines() if "█" in line]
    names = [row[1] if row[0] == "▸" else row[0] for row in rows]
    assert names == ["kernel", "max-autotune-no-cudagraphs", "compile", "max-autotune", "eager"]
    lengths = [len(row[-1]) for row in rows]
    assert lengths == sorted(lengths)
    slow = replace(SPEED, outcome=SLOWER, ratio=Interval(0.5, 0.49, 0.51), rungs=(rung("eager", 17.6, 0.5),))
    rows = [line.split() for line in shown(slow).splitlines() if "█" in line]
    assert [row[0] for row in rows] == ["eager", "▸"]


def test_every_condition_has_its_line() -> None:
    text = " ".join(shown(SPEED).split())
    for words in (
        "cold 35.21 us (scored), warm 28.40, latency 44.90, first call 812 ms",
        "its own 35.21 us, the judge's 35.02 us (give or take 3.1): they agree",
        "floor 29.60 us (memory), 84 % reached; 268 MB, 3.00 TFLOP declared",
        "2 left out: the clock fell",
        "1980 MHz, memory 3201 MHz, 41 °C, 312 W",
        "1.31x (95 %: 1.300 to 1.320), both replayed from CUDA graphs",
        "false calls 1.0 %, smallest difference noticed 1.2 %",
        "aot-inductor: crashed: a reason [with brackets] that goes on",
    ):
        assert words in text


def test_no_difference_is_not_sold_as_one() -> None:
    even = replace(SPEED, outcome=NO_DIFFERENCE, ratio=Interval(1.003, 0.996, 1.009))
    assert "NO DIFFERENCE  1.00x the speed of max-autotune-no-cudagraphs" in shown(even)
    assert "nothing beat max-autotune-no-cudagraphs" in shown(even)
    noisy = replace(even, ratio=Interval(1.1, 0.33, 3.71))
    assert "cannot tell" in shown(noisy)
    assert "nothing beat" not in shown(noisy)


def shown_ladder(rungs: tuple[Rung, ...], opponent: str, roofline: Roofline | None) -> list[str]:
    where = Environment("0", "3", "2", None, None, None, "cuda:0", "NVIDIA H200", "6")
    took, when = 61.0, "2026-01-01T00:00:00+00:00"
    sizes = {"rows": 4096}
    ladder = Ladder("sum", "d" * 64, sizes, rungs, opponent, roofline, CONDITIONS, {}, where, took, when)
    console = Console(file=io.StringIO(), width=WIDTH, force_terminal=False)
    show_ladder(console, ladder, Path("r.json"))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_a_ladder_names_its_opponent_and_the_distance_from_the_limit() -> None:
    lines = shown_ladder(RUNGS, "compile", ROOFLINE)
    assert lines[0] == "LADDER  sum (rows=4096), NVIDIA H200"
    assert any(re.match(r"▸ compile +51\.30 +50\.79 to 51\.81 +58 % +█", line) for line in lines)
    assert lines[-1] == "record: r.json"
    assert max(map(len, lines)) <= WIDTH


def test_a_ladder_without_a_rung_says_why() -> None:
    lines = shown_ladder(RUNGS[-1:], "", None)
    assert "NO BASELINE RAN" in lines
    assert any(line.startswith("absent    aot-inductor: crashed: a reason") for line in lines)


def test_rejections_of_the_clock_come_with_advice() -> None:
    codes = {"clocks_disagree", "opponent_disturbed", "faster_than_physics", "persisting_l2"}
    assert {*codes, "wrong_when_timed"} <= set(_ADVICE)
