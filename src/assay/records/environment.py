"""Where something was measured."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Environment:
    """What must match before two verdicts may be compared."""

    assay: str
    python: str
    torch: str
    triton: str | None
    cuda: str | None
    driver: str | None
    device: str
    device_name: str
    host_kernel: str
