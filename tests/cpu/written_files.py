"""Files that were written by lifting, imported as a judge would."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from pathlib import Path
from typing import Any

BESIDE_A_TASK = ("reference", "task", "utils")
"""Modules that a submission finds beside it, under names that other folders have as well."""
_numbers = itertools.count()


def module_from(text: str, folder: Path) -> Any:
    path = folder / f"candidate{next(_numbers)}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    finally:
        for name in BESIDE_A_TASK:
            sys.modules.pop(name, None)
    return module
