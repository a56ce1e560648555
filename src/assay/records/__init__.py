"""Plain records and their JSON form. Imports the standard library alone."""

from assay.records.codec import digest, from_plain, to_json, to_plain
from assay.records.errors import AssayError, CandidateFailure, FlawedProblem, JudgeFault, UserError
from assay.records.layers import Layer
from assay.records.verdict import (
    VERDICTS,
    BuildFailed,
    CandidateRecord,
    CaseResult,
    Crashed,
    Environment,
    Finding,
    Mismatch,
    Passed,
    ProblemRecord,
    Rejected,
    TimedOut,
    Verdict,
    Wrong,
)

__all__ = [
    "VERDICTS",
    "AssayError",
    "BuildFailed",
    "CandidateFailure",
    "CandidateRecord",
    "CaseResult",
    "Crashed",
    "Environment",
    "Finding",
    "FlawedProblem",
    "JudgeFault",
    "Layer",
    "Mismatch",
    "Passed",
    "ProblemRecord",
    "Rejected",
    "TimedOut",
    "UserError",
    "Verdict",
    "Wrong",
    "digest",
    "from_plain",
    "to_json",
    "to_plain",
]
