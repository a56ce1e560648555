"""The problems of a suite as candidates for themselves: plain torch, which the judge must pass.

    python benchmarks/as_written.py SUITE FOLDER
    assay eval SUITE --candidates FOLDER

What does not pass is a fault of the problem or of the judge; what is called faster is a fault of the clock.
"""

from __future__ import annotations

import argparse
import ast
import sys
from pathlib import Path

from assay.problems import load_problem, problem_paths

LEFT_OUT = ("get_inputs", "get_init_inputs", "cases", "cost", "ABOUT", "PRECISION", "RULES")


def as_written(text: str) -> str:
    """The specification without what only a problem has, its Model called ModelNew."""
    tree = ast.parse(text)
    lines = text.splitlines()
    for node in reversed(tree.body):
        if _name(node) in LEFT_OUT:
            del lines[node.lineno - 1 : node.end_lineno]
    return (
        "\n".join(lines).replace("class Model(", "class ModelNew(").replace("super(Model,", "super(ModelNew,")
    )


def _name(node: ast.stmt) -> str:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("suite", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for path in problem_paths(options.suite):
        problem = load_problem(path)
        source = as_written(problem.specification().source)
        (options.folder / f"{problem.name}.py").write_text(source + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
