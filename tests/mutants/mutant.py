"""One seeded bug: a few words of our own source replaced, and the tests that must notice."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


class BadMutant(Exception):
    """The catalogue no longer fits the source it speaks of."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bug that a judge could have, as one replacement in one file."""

    name: str
    file: str
    """Below src/assay."""
    old: str
    """Occurs exactly once in the file."""
    new: str
    tests: tuple[str, ...]
    """Files or node ids below tests/, as pytest takes them."""
    stands_for: str = ""
    """The bug of a real checker, or the cheat that it would let through, numbered as in tests/exploits. Bugs:
    D12 NaN blindness, D16 only the last output checked, D17 dropped tolerance, D18 failure scored as a pass,
    D19 skip as pass, F12 tolerance under a dead key, F13 fixed atol, F20 tolerance of the wrong argument."""

    @property
    def selectors(self) -> tuple[str, ...]:
        return tuple(f"tests/{test}" for test in self.tests)

    def mutated(self, package: Path) -> str:
        """The text of the file with the bug in it; `package` is the folder assay/."""
        text = (package / self.file).read_text(encoding="utf-8")
        count = text.count(self.old)
        if count != 1:
            raise BadMutant(f"{self.name}: the old text occurs {count} times in {self.file}")
        changed = text.replace(self.old, self.new)
        try:
            same = ast.dump(ast.parse(changed)) == ast.dump(ast.parse(text))
        except SyntaxError as error:
            raise BadMutant(f"{self.name}: the new text is no Python: {error}") from error
        if same:
            raise BadMutant(f"{self.name}: the new text means the same as the old")
        return changed
