"""Regime, figures and steps from verdicts that are made up: each rule by the facts that call for it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from synthetic_runs import verdict as made_up

from assay.llm import feedback
from assay.llm.feedback import MOST_CHARACTERS
from assay.profile import advice_lines, advise
from assay.profile.rules import OTHERWISE, RULES
from assay.records import (
    Advice,
    Census,
    Counters,
    Interval,
    KernelCounters,
    KernelResources,
    Passed,
    Profile,
    Roofline,
    Share,
    Times,
    from_plain,
    to_json,
)
from assay.records.decoding import decode_verdict

KERNEL = KernelResources("mine", "ptxas", registers=32, spill_bytes=0, threads=256, occupancy=1.0)
OWN = Share("mine", 1, 95.0, "own")
LATE = Times(100.0, 90.0, 900.0, 3.0)
SPARE = Share("at::native::softmax", 1, 40.0, "library")


def timed(
    percent: float = 40.0,
    bound: str = "memory",
    *,
    times: Times | None = None,
    shares: tuple[Share, ...] = (OWN,),
    kernel: KernelResources | None = KERNEL,
    device: str = "cuda:0",
    replay: str = "wrong",
) -> Passed:
    """A right candidate that takes 100 us, at so many percent of a limit."""
    one = made_up("p", "passed")
    assert isinstance(one, Passed) and one.speed is not None
    roof = Roofline(3 << 20, 1 << 20, 1 << 20, "declared", bound, percent, percent, 1.0)
    own_us = sum(share.time_us for share in shares if share.kind == "own")
    census = Census(shares, own_us / sum(share.time_us for share in shares), replay)
    speed = replace(one.speed, roofline=roof, times=times or Times(100.0, 90.0, 120.0, 3.0))
    return replace(
        one,
        speed=speed,
        census=census,
        resources=(kernel,) if kernel else (),
        environment=replace(one.environment, device=device),
    )


def on_cpu(percent: float = 40.0, **about: Any) -> Passed:
    base = KernelResources("f", "object", loops=3, packed_loops=2, busy_threads=2.0, threads_there=2)
    return timed(
        percent, "memory", device="cpu", shares=(Share("own", 1, 1.0, "own"),), kernel=replace(base, **about)
    )


def counted(**values: float) -> Counters:
    return Counters((KernelCounters("mine", 1, values),), "nominal")


def codes(advice: Advice) -> list[str]:
    return [step.code for step in advice.steps]


@pytest.mark.parametrize(
    ("verdict", "counters", "regime"),
    [
        (timed(70, "memory"), None, "memory"),
        (timed(70, "compute"), None, "compute"),
        (timed(30, "memory"), None, "latency"),
        (timed(30, "memory", shares=(OWN, SPARE)), None, "memory"),
        (timed(80, "latency"), None, "launch"),
        (timed(10, "latency"), None, "latency"),
        (timed(10, "latency", shares=(OWN, SPARE)), None, "launch"),
        (timed(30, times=LATE, shares=(OWN, replace(SPARE, calls=4))), None, "launch"),
        (timed(30, times=LATE), None, "latency"),
        (timed(30, shares=(replace(OWN, calls=5, time_us=20.0),)), None, "launch"),
        (timed(30), counted(dram_percent=85.0, sm_percent=20.0), "memory"),
        (timed(30), counted(dram_percent=20.0, sm_percent=85.0), "compute"),
        (timed(70), counted(dram_percent=40.0, sm_percent=50.0), "latency"),
        (on_cpu(30), None, "latency"),
        (on_cpu(30, packed_loops=0), None, "compute"),
        (on_cpu(70), None, "memory"),
    ],
)  # fmt: skip
def test_the_regime(verdict: Passed, counters: Counters | None, regime: str) -> None:
    advice = advise(verdict, counters)
    assert advice.regime == regime and advice.why
    assert advice.steps and len(advice.figures) <= 3 and len(advice.steps) <= 3
    assert all(step.action.endswith(".") and step.reason for step in advice.steps)


def test_without_a_time_the_regime_is_unknown_and_resources_still_count() -> None:
    spilling = replace(KERNEL, spill_bytes=8)
    advice = advise(replace(timed(kernel=spilling), speed=None, speed_absent="not asked for"))
    assert advice.regime == "unknown" and codes(advice) == ["spills"]


APPLY: list[tuple[str, Passed, Counters | None]] = [
    ("stop", timed(93), None),
    ("unused", timed(replay="right"), None),
    ("unused", timed(replay="never launched"), None),
    ("spills", timed(kernel=replace(KERNEL, spill_bytes=24)), None),
    ("fuse", timed(shares=(OWN, SPARE)), None),
    ("host", timed(80, "latency", times=Times(5.0, 4.0, 60.0, 3.0)), None),
    ("host", timed(70, times=Times(5.0, 4.0, 60.0, 3.0)), None),
    ("coalesce", timed(), counted(load_efficiency_percent=12.5)),
    ("coalesce", timed(), counted(load_efficiency_percent=100.0, store_efficiency_percent=25.0)),
    ("traffic", timed(), counted(dram_read_bytes=8e6, dram_write_bytes=1e6)),
    ("more_blocks", timed(kernel=replace(KERNEL, blocks=32, waves=0.03)), None),
    ("registers", timed(kernel=replace(KERNEL, occupancy=0.25, limited_by="registers")), None),
    ("shared", timed(kernel=replace(KERNEL, occupancy=0.25, limited_by="shared memory")), None),
    ("larger_blocks", timed(kernel=replace(KERNEL, occupancy=0.4, limited_by="blocks")), None),
    ("block_size", timed(kernel=replace(KERNEL, occupancy=0.4, limited_by="block size")), None),
    ("prefetch", timed(), counted(stall_long_scoreboard=61.0)),
    ("wider_loads", timed(), counted(stall_memory_queue=30.0)),
    ("bank_conflicts", timed(), counted(stall_shared_queue=30.0)),
    ("barriers", timed(), counted(stall_barrier=30.0)),
    ("matrix_units", timed(20, "compute"), counted(tensor_percent=0.0)),
    ("threads", on_cpu(busy_threads=1.0), None),
    ("vectorise", on_cpu(packed_loops=0), None),
    ("copies", timed(shares=(OWN, Share("Memcpy", 1, 40.0, "housekeeping"))), None),
    ("library", timed(70, "compute", shares=(Share("gemm", 1, 190.0, "library"), OWN)), None),
    ("tail", timed(kernel=replace(KERNEL, waves=1.1)), None),
    ("stream", timed(70, times=Times(100.0, 40.0, 120.0, 3.0)), None),
    ("in_flight", timed(30, times=Times(100.0, 99.0, 120.0, 3.0)), None),
]  # fmt: skip


@pytest.mark.parametrize(("code", "verdict", "counters"), APPLY)
def test_each_rule_speaks_where_its_facts_are(code: str, verdict: Passed, counters: Counters | None) -> None:
    assert code in codes(advise(verdict, counters))


def test_every_rule_is_among_them() -> None:
    assert {code for code, _, _ in APPLY} == {rule.code for rule in RULES}


def test_no_rule_speaks_where_nothing_stands_out() -> None:
    full = replace(KERNEL, blocks=4096, waves=3.9)
    values = {"load_efficiency_percent": 95.0, "store_efficiency_percent": 95.0, "tensor_percent": 70.0}
    stalls = {
        "stall_long_scoreboard": 10.0,
        "stall_barrier": 5.0,
        "stall_shared_queue": 5.0,
        "stall_memory_queue": 5.0,
    }
    verdict = timed(70, "compute", kernel=full, times=Times(100.0, 80.0, 120.0, 3.0))
    counters = counted(sm_percent=80.0, dram_read_bytes=4.2e6, **values, **stalls)
    assert advise(verdict, counters).steps == (OTHERWISE["compute"],)


def test_a_library_that_takes_less_than_half_is_left_alone() -> None:
    verdict = timed(70, "compute", shares=(Share("gemm", 1, 90.0, "library"), OWN))
    assert "library" not in codes(advise(verdict))


def test_near_the_limit_there_is_one_step_and_it_is_to_stop() -> None:
    advice = advise(timed(95, kernel=replace(KERNEL, spill_bytes=8), shares=(OWN, SPARE)))
    assert codes(advice) == ["stop"] and "95 %" in advice.steps[0].reason


@pytest.mark.parametrize("bound", ["memory", "compute"])
def test_where_no_rule_speaks_the_regime_does(bound: str) -> None:
    verdict = timed(70, bound, times=Times(100.0, 80.0, 120.0, 3.0))
    assert advise(verdict).steps == (OTHERWISE[bound],)


def test_rough_times_are_called_rough() -> None:
    verdict = timed(70)
    assert verdict.speed is not None and "rough" not in advise(verdict).why
    scattered = replace(verdict.speed, ratio=Interval(1.0, 0.8, 1.3))
    assert "times are rough" in advise(replace(verdict, speed=scattered)).why


def test_a_smaller_case_says_nothing_about_bytes() -> None:
    counters = counted(dram_read_bytes=9e9, dram_percent=90.0)
    assert "traffic" in codes(advise(timed(), counters))
    assert "traffic" not in codes(advise(timed(), replace(counters, case="another")))


def test_the_figures_of_memory_are_light_bandwidth_and_traffic() -> None:
    counters = counted(dram_percent=80.0, dram_read_bytes=4 * 2.0**21)
    advice = advise(timed(50), counters)
    assert [figure.name for figure in advice.figures] == ["speed of light", "bandwidth", "traffic"]
    light, bandwidth, traffic = advice.figures
    assert light.value == "50 %" and "100 us" in light.meaning and "50 us" in light.meaning
    assert bandwidth.value == "41.9 GB/s" and "83.9 GB/s" in bandwidth.meaning
    assert traffic.value == "2 x"


def test_the_kernel_that_takes_longest_is_the_one_that_is_told_of() -> None:
    short = KernelResources("short", "ptxas", registers=255, spill_bytes=64)
    verdict = replace(
        timed(shares=(OWN, Share("short", 1, 1.0, "own"))), resources=(short, replace(KERNEL, occupancy=0.3))
    )
    advice = advise(verdict)
    assert "spills" not in codes(advice)
    assert any("mine" in figure.meaning for figure in advise(timed(30)).figures)


def test_a_cpu_is_told_of_threads_and_loops_not_of_warps() -> None:
    advice = advise(on_cpu(30))
    assert [figure.name for figure in advice.figures] == ["speed of light", "threads", "vectorised"]
    text = "\n".join(advice_lines(on_cpu(30)))
    assert "warp" not in text and "block" not in text


# --- in words ----------------------------------------------------------------------------------------------


def test_advice_in_words_has_regime_figures_and_steps() -> None:
    lines = advice_lines(timed(30, kernel=replace(KERNEL, spill_bytes=24)))
    assert lines[0].startswith("Latency bound: ") and "What to try:" in lines
    assert any(line.startswith("1. Keep fewer values alive") for line in lines)
    assert advice_lines(made_up("p", "wrong")) == [] and advice_lines(None) == []


def test_feedback_of_a_right_candidate_ends_with_resources_and_advice() -> None:
    verdict = timed(30, kernel=replace(KERNEL, spill_bytes=24, limited_by="registers", occupancy=0.25))
    text = feedback("passed", verdict, {}, advice_lines(verdict))
    at = [
        text.index(words)
        for words in ("us a call", "memory limit", "Kernel mine: 32 registers", "What to try")
    ]
    assert at == sorted(at)
    assert "24 bytes spilled" in text and "occupancy at most 25%, limited by registers" in text
    assert "Kernel mine" in feedback("passed", verdict, {})


def test_feedback_of_what_is_not_right_has_neither_and_is_never_empty() -> None:
    wrong = replace(made_up("p", "wrong"), resources=(KERNEL,))
    text = feedback("wrong", wrong, {}, ["advice"])
    assert "Kernel mine" not in text and "advice" not in text and text.startswith("Verdict: wrong.")
    assert feedback("unreadable", None, {}) == "Verdict: unreadable."


def test_feedback_is_cut_at_its_cap() -> None:
    text = feedback("passed", timed(), {}, ["x" * 100] * 100)
    assert len(text) <= MOST_CHARACTERS + len("\n(cut)") and text.endswith("(cut)")


def test_resources_in_words() -> None:
    shared = replace(KERNEL, shared_bytes=1024, dynamic_shared_bytes=512)
    words = replace(shared, blocks=8, occupancy=0.5, limited_by="blocks", waves=0.25).in_words()
    for part in (
        "32 registers",
        "no spills",
        "1536 bytes of shared",
        "8 blocks of 256 threads",
        "50%",
        "0.25 waves",
    ):
        assert part in words
    assert KernelResources("k", "launch").in_words() == "nothing is known"
    assert replace(KERNEL, spill_bytes=None, local_bytes=64).in_words().count("64 bytes of local memory") == 1


# --- as records --------------------------------------------------------------------------------------------


def test_resources_travel_with_the_verdict_and_old_records_have_none() -> None:
    verdict = timed()
    plain = json.loads(to_json(verdict))
    assert decode_verdict(plain) == verdict
    del plain["resources"]
    assert decode_verdict(plain) == replace(verdict, resources=())


def test_a_profile_is_read_back() -> None:
    counters = counted(dram_percent=80.0)
    profile = Profile(advise(timed(), counters), counters)
    assert from_plain(Profile, json.loads(to_json(profile))) == profile


def test_advice_needs_no_torch() -> None:
    code = "import sys, assay.profile; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
