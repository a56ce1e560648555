"""Names nobody has an honest reason to replace: clocks, synchronisation, comparisons.

A tripwire, not a defence: the judge uses none of these in the child's process, so replacing them gains
nothing. It only says what the candidate tried. Code that avoids this check is caught by measurement alone.
"""

from __future__ import annotations

import importlib
from typing import Any

WATCHED = (
    "time.perf_counter", "time.perf_counter_ns", "time.time", "time.time_ns", "time.monotonic",
    "torch.cuda.Event", "torch.cuda.Event.elapsed_time", "torch.cuda.Event.record",
    "torch.cuda.Event.synchronize", "torch.cuda.synchronize", "torch.allclose", "torch.isclose",
    "torch.equal", "torch.testing.assert_close", "torch.Tensor.allclose", "torch.Tensor.equal",
)  # fmt: skip


def snapshot() -> dict[str, tuple[int, int]]:
    """What each watched name stands for now: the object, and the code behind it."""
    return {name: _identity(_resolve(name)) for name in WATCHED}


def changed(before: dict[str, tuple[int, int]]) -> list[str]:
    now = snapshot()
    return [name for name in WATCHED if now[name] != before[name]]


def _resolve(name: str) -> Any:
    parts = name.split(".")
    for split in range(len(parts) - 1, 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:split]))
        except ImportError:
            continue
        for part in parts[split:]:
            value = getattr(value, part, None)
        return value
    return None


def _identity(value: Any) -> tuple[int, int]:
    code = getattr(value, "__code__", None)
    # A method descriptor is made anew at each look, its underlying function is not.
    return (hash(value) if code is None else id(code)), id(code)
