"""Problems: PyTorch modules as specification, oracle and baseline at once, read from three formats."""

from __future__ import annotations

from assay.problems.derive import input_bytes, reduced_nominal
from assay.problems.loading import load_problem, load_problems, problem_paths
from assay.problems.parcel import Parcel, pack
from assay.problems.problem import (
    DISTRIBUTIONS,
    LAYOUTS,
    Case,
    Cost,
    Instance,
    Precision,
    Problem,
    Specification,
)
from assay.problems.source import PROBLEM_CODE_ERRORS, ModuleSource

__all__ = [
    "DISTRIBUTIONS",
    "LAYOUTS",
    "PROBLEM_CODE_ERRORS",
    "Case",
    "Cost",
    "Instance",
    "ModuleSource",
    "Parcel",
    "Precision",
    "Problem",
    "Specification",
    "input_bytes",
    "load_problem",
    "load_problems",
    "pack",
    "problem_paths",
    "reduced_nominal",
]
