"""Runs over many problems: candidates from a source, judged by workers, kept in an archive."""

from assay.evaluation.crew import Crew
from assay.evaluation.devices import Described, describe_device
from assay.evaluation.line import Done, Task
from assay.evaluation.model_source import Complete, ModelSource
from assay.evaluation.run import Progress, Run, Workers, keep_done
from assay.evaluation.sources import FolderSource, ReplaySource, RunSource, Source
from assay.evaluation.suite import Suite, read_suite

__all__ = [
    "Complete",
    "Crew",
    "Described",
    "Done",
    "FolderSource",
    "ModelSource",
    "Progress",
    "ReplaySource",
    "Run",
    "RunSource",
    "Source",
    "Suite",
    "Task",
    "Workers",
    "describe_device",
    "keep_done",
    "read_suite",
]
