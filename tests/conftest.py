"""Shared by all tests: where candidates run, and the corpora that the GPU tests use as well."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

# tests/gpu runs the same walks as tests/hostile and tests/exploits, on another device; tests/null looks at
# the catalogue of seeded bugs; tests/cpu asks the model server of tests/null.
for _folder in ("hostile", "exploits", "mutants", "null"):
    sys.path.insert(0, str(Path(__file__).parent / _folder))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first: two workers that take a file at a time then end together."""
    items.sort(key=lambda item: item.path.parent.name not in ("exploits", "hostile"))


@pytest.fixture(scope="module")
def device() -> str:
    """The device candidates are judged on; tests/gpu overrides it."""
    return "cpu"
