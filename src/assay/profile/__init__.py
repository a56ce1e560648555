"""Profiles: which regime a right candidate is in, the numbers that matter, and what to try."""

from assay.profile.advice import advice_lines, advise
from assay.profile.counters import find_ncu, measure_counters, parse_ncu_csv
from assay.profile.profiling import profile_candidate

__all__ = [
    "advice_lines",
    "advise",
    "find_ncu",
    "measure_counters",
    "parse_ncu_csv",
    "profile_candidate",
]
