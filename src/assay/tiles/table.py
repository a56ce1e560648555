"""`python -m assay.tiles.table`: every row judged by `assay check`, as anybody would run it.

Prints one line for each row (lines of kernel code, the reference, the ratio with its interval, the percent of
the speed of light) and writes all of it, with the environment, into a file. A judge that is kept warm
(`assay serve-judge`) is used where there is one.
"""

from __future__ import annotations

import argparse
import ast
import fnmatch
import importlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from assay.tiles.catalog import KERNELS
from assay.tiles.table_rows import Missing, Row, rows

LINE = "{label:44} {lines:>5}  {reference:22} {ratio:24} {percent}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default="*", help="rows whose label matches")
    parser.add_argument("--out", type=Path, help="a JSON file")
    parser.add_argument("arguments", nargs="*", help="for `assay check`, behind --")
    options = parser.parse_args()
    print(LINE.format(label="", lines="lines", reference="against", ratio="ratio", percent="of the limit"))
    told = []
    for row in rows():
        if fnmatch.fnmatch(row.label, options.only):
            told.append(_missing(row) if isinstance(row, Missing) else measured(row, options.arguments))
            if options.out:
                options.out.write_text(json.dumps(told, indent=1))


def measured(row: Row, arguments: list[str]) -> dict[str, Any]:
    """One row, judged and printed."""
    cost = KERNELS[row.kernel].cost(**row.sizes)
    with tempfile.TemporaryDirectory() as folder:
        problem, candidate = Path(folder, "problem.py"), Path(folder, "candidate.py")
        for path, text in zip((problem, candidate), row.texts(cost.size_bytes, cost.flops), strict=True):
            path.write_text(text)
        words = [sys.executable, "-m", "assay", "check", str(problem), str(candidate), "--json", *arguments]
        done = subprocess.run(words, capture_output=True, text=True)
    lines = kernel_lines(row.kernel)
    told: dict[str, Any] = {"label": row.label, "lines": lines, "reference": row.reference}
    try:
        verdict = json.loads(done.stdout)
    except ValueError:
        told |= {"status": "failed", "why": done.stderr.strip().splitlines()[-1:]}
        print(LINE.format(**told, ratio="no verdict", percent=""))
        return told
    speed = verdict.get("speed")
    told |= {"status": verdict["status"], "speed": speed, "environment": verdict["environment"]}
    ratio, percent = str(verdict["status"]), ""
    if speed is not None:
        found = speed["ratio"]
        ratio = f"{found['middle']:.3f} ({found['low']:.3f}-{found['high']:.3f})"
        percent = f"{speed['roofline']['percent']:.0f} %" if speed.get("roofline") else ""
    print(LINE.format(**told, ratio=ratio, percent=percent), flush=True)
    return told


def _missing(row: Missing) -> dict[str, Any]:
    print(LINE.format(label=row.label, lines="", reference="", ratio=f"not measured: {row.why}", percent=""))
    return {"label": row.label, "status": "not measured", "why": row.why}


def kernel_lines(name: str) -> int:
    """Lines of code that run on the device, without comments, docstrings and blank lines."""
    module = importlib.import_module(KERNELS[name].run.__module__)
    text = Path(str(module.__file__)).read_text()
    counted: set[int] = set()
    for node in ast.parse(text).body:
        is_work = isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "Work" for base in node.bases)
        is_kernel = isinstance(node, ast.FunctionDef) and "jit" in map(_last, node.decorator_list)
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and (is_work or is_kernel):
            counted |= _code(node)
    lines = text.splitlines()
    return sum(1 for k in counted if lines[k - 1].strip() and not lines[k - 1].strip().startswith("#"))


def _last(decorator: ast.expr) -> str:
    return ast.unparse(decorator).rsplit(".", 1)[-1]


def _code(node: ast.FunctionDef | ast.ClassDef) -> set[int]:
    """Its lines, but for docstrings."""
    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    found = set(range(first, (node.end_lineno or node.lineno) + 1))
    for inner in ast.walk(node):
        if isinstance(inner, ast.Expr) and isinstance(inner.value, ast.Constant):
            found -= set(range(inner.lineno, (inner.end_lineno or inner.lineno) + 1))
    return found


if __name__ == "__main__":
    main()
