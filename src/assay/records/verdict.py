"""The verdict: six kinds, and the kind decides which fields exist.

Only `Passed` has a margin and a speed: the speed of a wrong kernel cannot be written down. The JSON form is
documented in docs/records.md; `schema` counts its changes.

Schema history
  1  first version
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from assay.records.about import About
from assay.records.environment import Environment
from assay.records.layers import Layer
from assay.records.profile import KernelResources
from assay.records.rules import Census, Rules
from assay.records.speed import Speed

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing the judge has to say, with a stable code."""

    code: str
    message: str
    fatal: bool
    """A fatal finding is why the verdict is not `passed`; the others are notes."""
    case: str | None = None
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One element outside its tolerance."""

    output: int
    index: tuple[int, ...]
    expected: float
    got: float
    tolerance: float


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What happened on one case."""

    name: str
    outcome: str
    """"passed", "wrong", "rejected", "refused", "crashed", "timed_out" or "not_run"."""
    hidden: bool
    derived: bool
    sizes: Mapping[str, Any]
    layout: str
    distribution: str
    dtype: str | None
    calls: int
    """Verified calls, each on contents drawn for it alone."""
    worst_ratio: float | None = None
    """Largest error over its tolerance; at most 1 on a passed case."""
    wrong_elements: int = 0
    elements: int = 0
    message: str = ""
    mismatches: tuple[Mismatch, ...] = ()


@dataclass(frozen=True, slots=True)
class ProblemRecord:
    """Which problem was judged, and whether it can tell right from wrong."""

    name: str
    kind: str
    path: str
    digest: str
    flaws: tuple[str, ...]
    oracle: str
    """"float64", or why the oracle had to run in another precision."""
    rules: Rules = field(default_factory=Rules)
    about: About = field(default_factory=About)


@dataclass(frozen=True, slots=True)
class CandidateRecord:
    """Which candidate was judged."""

    name: str
    language: str
    entry: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What every verdict carries."""

    status: ClassVar[str] = ""
    problem: ProblemRecord
    candidate: CandidateRecord
    findings: tuple[Finding, ...]
    cases: tuple[CaseResult, ...]
    sandbox: tuple[Layer, ...]
    environment: Environment
    policy: Mapping[str, Any]
    state: str
    """How weights were matched: "by name", "by seed" or "none"."""
    seconds: Mapping[str, float]
    """Wall time of each phase of this judgement; says nothing about the candidate's speed."""
    speed_measurable: bool
    """False where times would mean nothing, such as Triton through its interpreter."""
    census: Census | None = None
    """What one call ran; None where the run ended before that."""
    output_tail: str = ""
    """The end of what the candidate printed. Never parsed."""
    resources: tuple[KernelResources, ...] = ()
    """What its compiled code takes, as far as it is known. Partly its own word; no verdict depends on it."""
    schema: int = field(default=SCHEMA)


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed(Verdict):
    """Every declared case right, nothing fatal found."""

    status: ClassVar[str] = "passed"
    margin: float
    """Largest error over tolerance across all cases: 1 would be just inside."""
    speed: Speed | None = None
    speed_absent: str = ""
    """Why there is no speed; empty if there is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrong(Verdict):
    """At least one output was not what the specification says."""

    status: ClassVar[str] = "wrong"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected(Verdict):
    """The numbers may be right, the way they were made is not acceptable."""

    status: ClassVar[str] = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFailed(Verdict):
    """It did not compile, import or construct."""

    status: ClassVar[str] = "build_failed"
    diagnosis: str
    """The compiler's or interpreter's words, shortened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashed(Verdict):
    """It raised, died or ran out of memory."""

    status: ClassVar[str] = "crashed"
    death: str
    """How: the exception with the candidate's own frames, the signal, or the exit code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedOut(Verdict):
    """It did not answer within its limit."""

    status: ClassVar[str] = "timed_out"
    phase: str
    limit_s: float


VERDICTS: tuple[type[Verdict], ...] = (Passed, Wrong, Rejected, BuildFailed, Crashed, TimedOut)
