"""Runs with made-up verdicts, as large as one wants: what scores, reports and archives are tested on."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from assay.archive import Archive, Listed, Planned
from assay.records import (
    CATEGORIES,
    FASTER,
    NO_DIFFERENCE,
    SLOWER,
    About,
    BuildFailed,
    CandidateRecord,
    CaseResult,
    Census,
    ClockCheck,
    Conditions,
    Crashed,
    Environment,
    Finding,
    Interval,
    Passed,
    ProblemRecord,
    Rejected,
    Roofline,
    Rung,
    Share,
    Speed,
    Times,
    Verdict,
    Wrong,
)

ENVIRONMENT = Environment("0", "3.12", "2.11", "3.6", "13.0", "580", "cuda:0", "a GPU", "6.1")
SOURCE = (
    "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x * {}\n"
)
CONDITIONS = Conditions(1980.0, 3201, 41, 300.0, (), 0, 1 << 28, 0, False)


def speed(ratio: float) -> Speed:
    own_us = 100.0
    times = Times(own_us, 90.0, 120.0, 3.0)

    def rung(name: str, factor: float) -> Rung:
        us = own_us * ratio * factor
        return Rung(name, {}, "", Times(us, us, us, 1.0), Interval(us, us * 0.99, us * 1.01), us / own_us)

    outcome = FASTER if ratio > 1.01 else SLOWER if ratio < 0.99 else NO_DIFFERENCE
    return Speed(
        outcome=outcome,
        ratio=Interval(ratio, ratio * 0.995, ratio * 1.005),
        margin=0.01,
        opponent="compile",
        times=times,
        compile_s=0.5,
        rungs=(
            rung("eager", 2.0),
            rung("compile", 1.0),
            Rung("aot-inductor", {}, absent="it <did> not compile"),
        ),
        graphed=None,
        graphed_absent="not asked for",
        clocks=ClockCheck(own_us, own_us, 3.0),
        roofline=Roofline(1 << 20, 1 << 20, 1 << 20, "declared", "memory", 60.0, 60.0, 30.0),
        conditions=CONDITIONS,
        processes=3,
        blocks=36,
        precision={},
    )


def verdict(problem: str, status: str, ratio: float = 1.0, *, flaws: tuple[str, ...] = ()) -> Verdict:
    case = CaseResult(
        "nominal",
        "passed" if status == "passed" else "wrong",
        False,
        False,
        {"n": 8},
        "given",
        "nominal",
        None,
        3,
        0.25,
    )
    common: dict[str, Any] = {
        "problem": ProblemRecord(
            problem, "native", f"{problem}.py", f"digest of {problem}", flaws, "float64"
        ),
        "candidate": CandidateRecord("c", "triton", "ModelNew", "d"),
        "cases": (case,),
        "sandbox": (),
        "environment": ENVIRONMENT,
        "policy": {},
        "state": "none",
        "seconds": {"correctness": 1.0},
        "speed_measurable": True,
    }
    reason = (Finding("wrong_when_timed", "3 of 8 <elements> differ", True, "nominal", "look & see"),)
    census = Census((Share("a_kernel", 1, 90.0, "own"), Share("at::copy", 2, 10.0, "library")), 0.9, "wrong")
    match status:
        case "passed":
            return Passed(**common, findings=(), census=census, margin=0.25, speed=speed(ratio))
        case "wrong":
            return Wrong(**common, findings=reason)
        case "rejected":
            return Rejected(**common, findings=reason)
        case "crashed":
            return Crashed(**common, findings=reason, death="SIGSEGV")
    return BuildFailed(**common, findings=reason, diagnosis="error: <no> such & name")


def write_run(
    path: Path,
    problems: int,
    samples: int,
    turns: int = 1,
    *,
    seed: int = 0,
    flawed: int = 0,
    label: str = "made up",
) -> Path:
    """A run in which easy problems are solved, hard ones never."""
    rng = random.Random(seed)
    with Archive(path, create=True) as archive:
        archive.set_fact("label", label)
        for k in range(problems):
            name = f"level1_problem_{k:03}"
            about = About(CATEGORIES[k % len(CATEGORIES)], "memory", 1 + k % 4)
            archive.add_problem(Listed(name, f"digest of {name}", f"{name}.py", about, f"rows = {k}\n"))
            rate = 0.0 if k % 3 == 0 else rng.random()
            flaws = ("wrong answers pass",) if k < flawed else ()
            for sample in range(samples):
                _write_chain(archive, rng, name, sample, turns, rate, flaws)
    return path


def _write_chain(
    archive: Archive,
    rng: random.Random,
    name: str,
    sample: int,
    turns: int,
    rate: float,
    flaws: tuple[str, ...],
) -> None:
    parent = None
    for turn in range(turns):
        text = SOURCE.format(f"{sample + 1}.{turn}")
        parent = archive.add(Planned(name, sample, turn, f"s{sample}", ".py", text, parent, 0.01))
        status = (
            "passed" if rng.random() < rate else rng.choice(("wrong", "crashed", "build_failed", "rejected"))
        )
        told = verdict(name, status, rng.lognormvariate(0, 0.3), flaws=flaws)
        archive.keep_verdict(parent, told, "w", 2.5)
