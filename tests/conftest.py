"""Shared by all tests: where candidates run, and the corpora that the GPU tests use as well."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

# tests/gpu runs the same walks as tests/hostile and tests/exploits, on another device.
for _folder in ("hostile", "exploits"):
    sys.path.insert(0, str(Path(__file__).parent / _folder))


@pytest.fixture(scope="module")
def device() -> str:
    """The device candidates are judged on; tests/gpu overrides it."""
    return "cpu"


@pytest.fixture
def known_bug(request: pytest.FixtureRequest, device: str) -> Callable[[str | None], None]:
    """Expect this test to fail for a reason, if there is one; on the CPU a bug that is gone fails too."""

    def expect(reason: str | None) -> None:
        if reason is not None:
            request.node.add_marker(pytest.mark.xfail(strict=device == "cpu", reason=reason))

    return expect
