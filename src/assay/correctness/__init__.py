"""Gate 1: is it right? Oracles, tolerances, mutants. Pure of processes: inputs and outputs are tensors."""

from assay.correctness.calibrate import Calibration, calibrate
from assay.correctness.fingerprint import Fingerprinter
from assay.correctness.mutants import PRECISION, REQUIRED
from assay.correctness.reference import Reference, pinned_precision, tensors_of
from assay.correctness.tolerance import Report
from assay.correctness.touching import one_changed, touched
from assay.correctness.weights import nudged, perturbed
from assay.correctness.yardstick import TaskYardstick, Yardstick, check_outputs, make_yardstick

MUTANTS = (*REQUIRED, *PRECISION)
"""Everything a case is put before."""

__all__ = [
    "MUTANTS",
    "Calibration",
    "Fingerprinter",
    "Reference",
    "Report",
    "TaskYardstick",
    "Yardstick",
    "calibrate",
    "check_outputs",
    "make_yardstick",
    "nudged",
    "one_changed",
    "perturbed",
    "pinned_precision",
    "tensors_of",
    "touched",
]
