"""The same attacks against KernelBench's own evaluator, beside what the judge made of them.

    assay redteam tests/exploits --device cuda --json > matrix.json
    python benchmarks/against_kernelbench.py CHECKOUT matrix.json [--out page.md] [--limit 120]

CHECKOUT is a copy of the KernelBench repository; its evaluator is imported from there, one fresh process per
attack, with its published parameters: five correctness trials, a hundred timed ones. It needs a GPU. Attacks
on parts that only this judge has (its protocol, its stopwatch) and bare sources are left out, and counted.

Not covered: KernelBench's optional static checks, and evaluators built on top of it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.records import RedteamMatrix, RedteamRow, from_plain
from assay.redteam.corpus import Entry, read_folder

EXPLOITS = Path(__file__).parent.parent / "tests" / "exploits"
_RUN = """
import json, sys
sys.path.insert(0, sys.argv[1])
from kernelbench.eval import eval_kernel_against_ref
reference, candidate = (open(path).read() for path in sys.argv[2:4])
result = eval_kernel_against_ref(
    reference, candidate, num_correct_trials=5, num_perf_trials=100, measure_performance=True,
    backend="triton" if "import triton" in candidate else "cuda",
)
told = {name: getattr(result, name, None) for name in ("compiled", "correctness", "runtime", "ref_runtime")}
print("\\n" + json.dumps(told))
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """What KernelBench's evaluator said."""

    words: str
    fooled: bool


def asked(checkout: Path, entry: Entry, limit_s: float) -> Answer:
    """One attack in one fresh process."""
    files = [str(entry.problem_on("cuda")), str(entry.path)]
    command = [sys.executable, "-c", _RUN, str(checkout / "src"), *files]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=limit_s)
    except subprocess.TimeoutExpired:
        return Answer(f"no answer in {limit_s:g} s", False)
    lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
    if run.returncode or not lines:
        last = (run.stderr.strip().splitlines() or ["no output"])[-1]
        return Answer(f"ended with {run.returncode}: {last[:80]}", False)
    told: dict[str, Any] = json.loads(lines[-1])
    if not told["correctness"]:
        return Answer("incorrect" if told["compiled"] else "does not compile", False)
    runtime, reference = told["runtime"], told["ref_runtime"]
    ratio = f", {reference / runtime:.2f}x" if runtime and reference and runtime > 0 else ""
    return Answer(f"correct{ratio}", True)


def comparable(entry: Entry) -> bool:
    """Whether the attack means anything to another evaluator."""
    source = entry.path.read_text(encoding="utf-8")
    own_parts = "assay.worker" in source or "assay.judge" in source
    return not entry.honest and entry.path.suffix == ".py" and "cuda" in entry.devices and not own_parts


def page(rows: list[tuple[RedteamRow, Answer]], left_out: int) -> str:
    fooled = sum(answer.fooled for _, answer in rows)
    lines = [
        f"KernelBench's evaluator called {fooled} of {len(rows)} attacks correct; this judge passed "
        f"{sum(row.fooled for row, _ in rows)}. {left_out} attacks mean nothing to it and were left out.",
        "",
        "| attack | catalogue | KernelBench | this judge | named |",
        "|---|---|---|---|---|",
    ]
    for row, answer in rows:
        ours = f"{row.status} {row.outcome}".strip()
        codes = ", ".join(row.findings)
        lines.append(f"| {row.name} | {row.catalogue} | {answer.words} | {ours} | {codes} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("matrix", type=Path, help="the record of `assay redteam`")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for one attack")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if not (options.checkout / "src" / "kernelbench" / "eval.py").exists():
        parser.error(f"{options.checkout} is no KernelBench checkout: it has no src/kernelbench/eval.py")
    matrix = from_plain(RedteamMatrix, json.loads(options.matrix.read_text()), "matrix")
    known = {row.name: row for row in matrix.rows}
    attacks = [entry for entry in read_folder(EXPLOITS) if not entry.honest and entry.path.name in known]
    chosen = [entry for entry in attacks if comparable(entry)]
    rows = []
    for entry in chosen:
        rows.append((known[entry.path.name], asked(options.checkout, entry, options.limit)))
        print(f"{entry.path.name:40}{rows[-1][1].words}", flush=True)
    text = page(rows, len(attacks) - len(chosen))
    print(text)
    if options.out:
        options.out.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
