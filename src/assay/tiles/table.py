"""`python -m assay.tiles.table`: every row judged by `assay check`, as anybody would run it.

Prints one line for each row (lines of kernel code, the reference, the ratio with its interval, the percent of
the speed of light) and writes all of it, with the environment, into a file, which keeps its other rows: a
table may be measured in pieces. A judge that is kept warm (`assay serve-judge`) is used where there is one.
"""

from __future__ import annotations

import argparse
import ast
import fnmatch
import importlib
import json
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from assay.tiles.table_rows import Missing, Row, rows
from assay.tiles.table_small import small_rows

LINE = "{label:50} {lines:>5}  {reference:24} {ratio:24} {percent}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default="*", help="rows whose label matches")
    parser.add_argument("--out", type=Path, help="a JSON file")
    parser.add_argument("--small", action="store_true", help="every kernel at small sizes, for --deep")
    parser.add_argument(
        "--missing", action="store_true", help="rows that the file lacks, or that lack a baseline of --rungs"
    )
    parser.add_argument("--within", type=seconds, default=math.inf, help="begin no row after so many seconds")
    parser.add_argument("arguments", nargs="*", help="for `assay check`, behind --")
    options = parser.parse_args()
    if options.missing and not options.out:
        parser.error("--missing wants the file: --out")
    try:
        known = had(options.out, options.arguments) if options.out else set()
    except ValueError as error:
        parser.error(str(error))
    wanted = [
        row for row in (small_rows() if options.small else rows()) if fnmatch.fnmatch(row.label, options.only)
    ]
    if not wanted:
        parser.error(f"no row matches {options.only!r}: labels are like 'gemm 1024 1024x1024x1024'")
    ends = time.monotonic() + options.within
    print(LINE.format(label="", lines="lines", reference="against", ratio="ratio", percent="of the limit"))
    for row in wanted:
        if not (options.missing and row.label in known) and time.monotonic() < ends:
            told = _missing(row) if isinstance(row, Missing) else measured(row, options.arguments)
            if options.out:
                keep(told, options.out)


def seconds(text: str) -> float:
    number = float(text)
    if not number >= 0:
        raise ValueError
    return number


def read(path: Path) -> list[dict[str, Any]]:
    """Rows that the file has; none if it is to be made."""
    try:
        if not path.parent.is_dir():
            raise ValueError(f"there is no folder {path.parent}")
        found = json.loads(path.read_text()) if path.exists() else []
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be kept: {error}") from error
    if not isinstance(found, list) or not all(isinstance(row, dict) and "label" in row for row in found):
        raise ValueError(f"{path} is no table of rows: name another file")
    return found


def had(path: Path, arguments: list[str]) -> set[str]:
    """Labels of rows of which the file says what is asked: passed, and timed if times are wanted, against the
    baselines that are named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--no-speed", action="store_true")
    parser.add_argument("--rungs", default="")
    asked, _ = parser.parse_known_args(arguments)
    named = {name.strip() for name in asked.rungs.split(",") if name.strip()}
    passed = [row for row in read(path) if row.get("status") == "passed"]
    return {
        row["label"]
        for row in passed
        if asked.no_speed or (row.get("speed") and named <= raced(row["speed"]))
    }


def raced(speed: dict[str, Any]) -> set[str]:
    """Baselines that were asked for; some of them may have failed."""
    return {rung["name"] for rung in speed["rungs"] if not rung["absent"].startswith("not asked for")}


def keep(told: dict[str, Any], path: Path) -> None:
    """In the place of what the file says of the same row, or behind the others."""
    found = {row["label"]: row for row in read(path)}
    path.write_text(json.dumps(list((found | {told["label"]: told}).values()), indent=1))


def measured(row: Row, arguments: list[str]) -> dict[str, Any]:
    """One row, judged and printed."""
    cost = row.cost()
    with tempfile.TemporaryDirectory() as folder:
        problem, candidate = Path(folder, "problem.py"), Path(folder, "candidate.py")
        for path, text in zip((problem, candidate), row.texts(cost.size_bytes, cost.flops), strict=True):
            path.write_text(text)
        words = [sys.executable, "-m", "assay", "check", str(problem), str(candidate)]
        # Whether a problem can tell one percent is not what a row is about; deep products in bfloat16 cannot.
        words += ["--json", "--allow-flawed", *arguments]
        done = subprocess.run(words, capture_output=True, text=True)
    lines = kernel_lines(*row.modules)
    told: dict[str, Any] = {"label": row.label, "lines": lines, "reference": row.reference}
    try:
        verdict = json.loads(done.stdout)
    except ValueError:
        told |= {"status": "failed", "why": done.stderr.strip().splitlines()[-1:]}
        print(LINE.format(**told, ratio="no verdict", percent=""))
        return told
    speed = verdict.get("speed")
    told |= {"status": verdict["status"], "speed": speed, "environment": verdict["environment"]}
    told["why"] = [f"{found['code']}: {found['message']}" for found in verdict["findings"] if found["fatal"]]
    if speed is None and verdict["status"] == "passed":
        told["why"].append(f"not timed: {verdict['speed_absent']}")
    ratio, percent = str(verdict["status"]), ""
    if speed is not None:
        found = speed["ratio"]
        ratio = f"{found['middle']:.3f} ({found['low']:.3f}-{found['high']:.3f})"
        percent = f"{speed['roofline']['percent']:.0f} %" if speed.get("roofline") else ""
    print(LINE.format(**told, ratio=ratio, percent=percent), *told["why"], sep="\n    ", flush=True)
    return told


def _missing(row: Missing) -> dict[str, Any]:
    print(LINE.format(label=row.label, lines="", reference="", ratio=f"not measured: {row.why}", percent=""))
    return {"label": row.label, "status": "not measured", "why": [row.why]}


def kernel_lines(*modules: str) -> int:
    """Lines of code that run on the device, without comments, docstrings and blank lines."""
    return sum(map(_lines_of, modules))


def _lines_of(name: str) -> int:
    module = importlib.import_module(name)
    text = Path(str(module.__file__)).read_text()
    counted: set[int] = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            inner = node.body if isinstance(node, ast.ClassDef) else [node]
            if any(isinstance(each, ast.FunctionDef) and _runs_there(each) for each in inner):
                counted |= _code(node)
    lines = text.splitlines()
    return sum(1 for k in counted if lines[k - 1].strip() and not lines[k - 1].strip().startswith("#"))


def _runs_there(function: ast.FunctionDef) -> bool:
    return any(ast.unparse(each).rsplit(".", 1)[-1] == "jit" for each in function.decorator_list)


def _code(node: ast.FunctionDef | ast.ClassDef) -> set[int]:
    """Its lines, but for docstrings and what a class computes of its sizes before anything runs."""
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    found = set(range(first, (node.end_lineno or node.lineno) + 1))
    for inner in ast.walk(node):
        if isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Constant):
            found -= set(range(inner.lineno, (inner.end_lineno or inner.lineno) + 1))
        if isinstance(inner, ast.FunctionDef) and "property" in map(ast.unparse, inner.decorator_list):
            found -= set(range(inner.lineno - 1, (inner.end_lineno or inner.lineno) + 1))
    return found


if __name__ == "__main__":
    main()
