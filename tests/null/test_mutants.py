"""The catalogue of seeded bugs fits the source: otherwise its score would speak of code that is gone."""

from __future__ import annotations

import ast
from collections import Counter

import pytest
from catalogue import MUTANTS
from mutant import ROOT, BadMutant, Mutant

FEWEST = 40
PACKAGE = ROOT / "src" / "assay"
PARTS = ("correctness", "speed", "judge", "worker", "records")


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_old_text_occurs_once_and_the_new_one_means_something_else(mutant: Mutant) -> None:
    assert mutant.mutated(PACKAGE)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_tests_that_must_notice_exist(mutant: Mutant) -> None:
    assert mutant.tests
    for selector in mutant.selectors:
        file, _, rest = selector.partition("::")
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert not rest or rest.partition("[")[0] in names, selector


def test_names_are_unique_and_can_be_folders() -> None:
    assert len(MUTANTS) >= FEWEST
    assert [name for name, count in Counter(m.name for m in MUTANTS).items() if count > 1] == []
    assert all(mutant.name.replace("-", "").isalnum() for mutant in MUTANTS)


def test_every_part_of_the_judge_has_some() -> None:
    counts = Counter(mutant.file.partition("/")[0] for mutant in MUTANTS)
    assert all(counts[part] >= 5 for part in PARTS), counts


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("no such text", "x", "occurs 0 times"),
        ("import", "x", "occurs"),
        ("THROTTLED = 0.9\n", "THROTTLED = (0.9\n", "no Python"),
        ("THROTTLED = 0.9\n", "THROTTLED = 0.90  # the same\n", "means the same"),
    ],
)
def test_a_mutant_that_does_not_fit_is_refused(old: str, new: str, words: str) -> None:
    with pytest.raises(BadMutant, match=words):
        Mutant("one", "speed/disturbance.py", old, new, ("null",)).mutated(PACKAGE)
