"""Candidates: source text in one of the languages, read without running it."""

from __future__ import annotations

from assay.candidates.candidate import ENTRIES, LANGUAGES, Candidate
from assay.candidates.reading import PYTHON_ENTRIES, SUFFIXES, candidate_from_source, read_candidate

__all__ = [
    "ENTRIES",
    "LANGUAGES",
    "PYTHON_ENTRIES",
    "SUFFIXES",
    "Candidate",
    "candidate_from_source",
    "read_candidate",
]
