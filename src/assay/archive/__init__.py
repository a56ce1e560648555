"""Runs on disk: problems, candidates, sources and verdicts in one SQLite file that outlives its process."""

from assay.archive.archive import NO_VERDICT, UNREADABLE, Archive, Judged, Listed, Planned, Transcript
from assay.archive.bundle import Bundle, read_bundle, write_bundle
from assay.archive.searching import Answered, Asked, Drafted, KeptIdea, SearchArchive
from assay.archive.writing import write_whole

__all__ = [
    "NO_VERDICT",
    "UNREADABLE",
    "Answered",
    "Archive",
    "Asked",
    "Bundle",
    "Drafted",
    "Judged",
    "KeptIdea",
    "Listed",
    "Planned",
    "SearchArchive",
    "Transcript",
    "read_bundle",
    "write_bundle",
    "write_whole",
]
