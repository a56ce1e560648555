"""Every seeded bug. A new check in the judge belongs here with the bug that it would be without."""

from __future__ import annotations

import catalogue_contents
import catalogue_judge
import catalogue_race
import catalogue_speed
import catalogue_tolerance
import catalogue_worker
from mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *catalogue_tolerance.MUTANTS,
    *catalogue_contents.MUTANTS,
    *catalogue_speed.MUTANTS,
    *catalogue_judge.MUTANTS,
    *catalogue_race.MUTANTS,
    *catalogue_worker.MUTANTS,
)
