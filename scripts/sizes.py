"""House style in numbers: files up to 400 lines, functions up to 50, broad excepts only at process edges."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

FILE_LINES, FUNCTION_LINES = 400, 50
EDGES = {"src/assay/worker/child.py", "src/assay/cli/main.py"}


def complaints(path: Path) -> list[str]:
    text = path.read_text()
    found = []
    if text.count("\n") > FILE_LINES:
        found.append(f"{path}: {text.count(chr(10))} lines (limit {FILE_LINES})")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                found.append(f"{path}:{node.lineno} {node.name} has {length} lines (limit {FUNCTION_LINES})")
        if isinstance(node, ast.ExceptHandler) and str(path) not in EDGES and _catches_all(node):
            found.append(f"{path}:{node.lineno} catches everything")
    return found


def _catches_all(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or getattr(handler.type, "id", "") in ("Exception", "BaseException")


def main() -> int:
    found = [line for path in sorted(Path("src").rglob("*.py")) for line in complaints(path)]
    print("\n".join(found) or "sizes: ok")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
