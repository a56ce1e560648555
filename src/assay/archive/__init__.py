"""Runs on disk: problems, candidates, sources and verdicts in one SQLite file that outlives its process."""

from assay.archive.archive import NO_VERDICT, UNREADABLE, Archive, Judged, Listed, Planned

__all__ = ["NO_VERDICT", "UNREADABLE", "Archive", "Judged", "Listed", "Planned"]
