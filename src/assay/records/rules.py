"""What a problem allows, and what a candidate was seen to run: the facts that rules are applied to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rules:
    """What a candidate for this problem may do. Shown in every verdict."""

    library_calls: bool = True
    """torch's operators and vendor libraries may do the work."""
    calls_per_weights: int = 0
    """How many calls share the cost of preparing new weights; 0 if preparing them is free."""
    keeps_state: bool = False
    """What a call leaves in the specification's buffers is part of the answer."""
    any_stream: bool = False
    """Calls may come on any CUDA stream, right behind work that they depend on."""
    allow_tf32: bool = False
    slack: float = 1.0
    """Multiplies the calibrated tolerance."""
    deterministic: bool = False
    """Equal inputs must give equal bits."""


@dataclass(frozen=True, slots=True)
class Share:
    """One operator or kernel that ran in one call."""

    name: str
    calls: int
    time_us: float
    kind: str
    """"own", "library" or "housekeeping" (allocation, views, copies)."""


@dataclass(frozen=True, slots=True)
class Census:
    """What one call ran."""

    shares: tuple[Share, ...]
    own_share: float | None
    """Of the time; None where nothing was timed."""
    replay: str
    """Its answer with its own kernels left out: "wrong", "right" or "failed", or why that was not tried."""
    absent: str = ""
    """Why nothing could be counted; empty if something was."""
