"""How long one correctness verdict takes on a warm judge, for four cases from a tiny to a 6 GiB problem.

    python benchmarks/verdict_time.py [--device cuda] [--repeat 3] [--out results/FILE.json]

Cold is the first verdict on a problem by this judge: it chooses and calibrates the cases. Warm is what every
further candidate pays: build (from the cache), a confined process, all cases, all checks. On a CPU the two
large problems are judged at sizes that fit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

from assay.candidates import read_candidate
from assay.judge import Judge, read_environment
from assay.problems import load_problem
from assay.records import to_plain

CASES = Path(__file__).parent / "cases"
PAIRS = (
    ("layernorm", "layernorm_kernel.cu", "cuda"),
    ("add", "add_kernel.py", "any"),
    ("matmul", "matmul_kernel.py", "any"),
    ("softmax", "softmax_kernel.py", "cuda"),
)
LIMIT_S = 3.0


def measure(judge: Judge, problem_name: str, candidate_name: str, repeat: int) -> dict[str, object]:
    problem, candidate = load_problem(CASES / f"{problem_name}.py"), read_candidate(CASES / candidate_name)
    times, verdict = [], None
    for _ in range(repeat + 1):
        start = time.monotonic()
        verdict = judge.evaluate(problem, candidate)
        times.append(time.monotonic() - start)
    assert verdict is not None
    return {
        "problem": problem_name,
        "candidate": candidate_name,
        "status": verdict.status,
        "cold_s": round(times[0], 3),
        "warm_s": round(statistics.median(times[1:]), 3),
        "warm_all_s": [round(t, 3) for t in times[1:]],
        "phases_s": dict(verdict.seconds),
        "calls": sum(case.calls for case in verdict.cases),
        "findings": [to_plain(finding) for finding in verdict.findings],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--inline", action="store_true", help="also one that builds for a minute")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with Judge(options.device) as judge:
        pairs = [p for p in PAIRS if p[2] in ("any", judge.device.type)]
        if options.inline:
            pairs.append(("layernorm", "layernorm_inline.py", "cuda"))
        rows = [measure(judge, name, candidate, options.repeat) for name, candidate, _ in pairs]
        environment = to_plain(read_environment(judge.device))
    print(f"{'candidate':22}{'status':10}{'cold s':>8}{'warm s':>8}{'calls':>7}")
    for row in rows:
        print(f"{row['candidate']:22}{row['status']:10}{row['cold_s']:8}{row['warm_s']:8}{row['calls']:7}")
    if environment["device"] != "cpu":
        worst = max(float(str(row["warm_s"])) for row in rows)
        print(f"slowest warm verdict {worst:.2f} s; the aim is {LIMIT_S:g} s or less")
    if options.out:
        options.out.write_text(json.dumps({"environment": environment, "rows": rows}, indent=1) + "\n")
    return 0 if all(row["status"] == "passed" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
