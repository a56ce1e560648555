"""The narrow waist: `evaluate(problem, candidate, policy) -> Verdict`. Nothing above knows anything below."""

from assay.judge.building import Builder
from assay.judge.decide import Evidence, decide
from assay.judge.devices import device_memory, read_device, resolve_device
from assay.judge.environment import read_environment
from assay.judge.judge import Judge, default_cache, evaluate
from assay.judge.policy import Policy
from assay.judge.prepare import prepare, scored_case

__all__ = [
    "Builder",
    "Evidence",
    "Judge",
    "Policy",
    "decide",
    "default_cache",
    "device_memory",
    "evaluate",
    "prepare",
    "read_device",
    "read_environment",
    "resolve_device",
    "scored_case",
]
