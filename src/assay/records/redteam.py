"""A corpus of attacks and honest kernels, and what the judge made of it."""

from __future__ import annotations

from dataclasses import dataclass

from assay.records.environment import Environment


@dataclass(frozen=True, slots=True)
class RedteamRow:
    """One candidate of the corpus."""

    name: str
    catalogue: str
    honest: bool
    expected: str
    status: str
    """The verdict's; "not run" where it is not for this device, "no verdict" where the judge failed."""
    outcome: str
    """Of the speed gate, where it was timed."""
    findings: tuple[str, ...]
    """Codes of the fatal ones."""
    ok: bool
    open: str
    """Why the judge is known to be fooled by it, if it is."""
    why: str
    """What was not as expected; empty if everything was."""
    seconds: float

    @property
    def fooled(self) -> bool:
        """An attack that passed, however well known."""
        return not self.honest and not self.ok and self.status == "passed"


@dataclass(frozen=True, slots=True)
class RedteamMatrix:
    """The whole corpus."""

    rows: tuple[RedteamRow, ...]
    environment: Environment
    seconds: float

    def ran(self, *, honest: bool) -> list[RedteamRow]:
        return [row for row in self.rows if row.honest is honest and row.status != "not run"]
