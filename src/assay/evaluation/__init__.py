"""Runs over many problems: candidates from a source, judged by workers, kept in an archive."""

from assay.evaluation.crew import Crew, Task
from assay.evaluation.run import Progress, Run
from assay.evaluation.sources import FolderSource, ReplaySource, RunSource, Source
from assay.evaluation.suite import Suite, read_suite

__all__ = [
    "Crew",
    "FolderSource",
    "Progress",
    "ReplaySource",
    "Run",
    "RunSource",
    "Source",
    "Suite",
    "Task",
    "read_suite",
]
