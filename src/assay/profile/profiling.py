"""A candidate judged and profiled in one go: the verdict, and what follows from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assay.profile.advice import advise
from assay.profile.counters import measure_counters
from assay.records import Counters, Passed, Profile, Verdict

if TYPE_CHECKING:
    from assay.candidates import Candidate
    from assay.judge import Judge
    from assay.problems import Problem


def profile_candidate(
    judge: Judge, problem: Problem, candidate: Candidate, *, counters: bool = True
) -> tuple[Verdict, Profile | None]:
    """The verdict and the profile; none of a candidate that did not pass: its time means nothing.

    Args:
        counters: read the device's counters as well, where there are any.
    """
    verdict = judge.evaluate(problem, candidate)
    if not isinstance(verdict, Passed):
        return verdict, None
    if counters:
        counted = measure_counters(judge, problem, candidate)
    else:
        counted = Counters(absent="not asked for")
    return verdict, Profile(advise(verdict, counted), counted)
