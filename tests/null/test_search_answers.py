"""Answers of a model in a search: edits, files and ideas, taken from whatever it says."""

from __future__ import annotations

import contextlib
import math
import random

import pytest

from assay.search.answers import (
    MOST_IDEAS,
    NOTE_CHARACTERS,
    Unusable,
    edited,
    ideas_in,
    plan_line,
    read_gain,
    whole_file,
)

PARENT = (
    "import torch\n\n\ndef forward(x):\n    y = x + 1\n    \n    return y\n\n\ndef other(x):\n    return x\n"
)


def edit(old: str, new: str) -> str:
    return f"@@ SEARCH\n{old}\n@@ REPLACE\n{new}\n@@ END\n"


def test_edits_are_made_in_order_and_nothing_else_changes() -> None:
    text = f"Change: more.\n```\n{edit('    y = x + 1', '    y = x + 2')}```\n" + edit(
        "    y = x + 2\n\n    return y", "    y = x + 3\n    return y * 2"
    )
    made = edited(text, PARENT, ".py")
    assert made.suffix == ".py"
    assert made.source == PARENT.replace(
        "    y = x + 1\n    \n    return y\n", "    y = x + 3\n    return y * 2\n"
    )


def test_lines_can_be_deleted_and_fences_inside_an_edit_are_not_part_of_it() -> None:
    text = "@@ SEARCH\n```python\n\n\ndef other(x):\n    return x\n```\n@@ REPLACE\n@@ END"
    assert "other" not in edited(text, PARENT, ".py").source


def test_edits_in_the_style_with_arrows_are_read_as_well() -> None:
    text = "<<<<<<< SEARCH\n    y = x + 1\n=======\n    y = x\n>>>>>>> REPLACE\n"
    assert "    y = x\n" in edited(text, PARENT, ".py").source


def test_a_ruler_in_the_file_is_no_marker() -> None:
    parent = f"# =====\n# title\n=====\n{PARENT}".replace("\n=====\n", "\n======\n")
    text = edit("# title\n======", "# other\n======")
    assert edited(text, parent, ".py").source == parent.replace("# title", "# other")


@pytest.mark.parametrize(
    "text, why",
    [
        (
            edit("    z = x + 1", "    pass"),
            r"edit 1 of 1: the lines from 'z = x \+ 1' on are not in the file",
        ),
        (edit("y = x + 1", "pass"), "they are, with other spacing"),
        (edit("    y = x + ", "pass"), "are not in the file"),
        (edit("(x):", "pass"), "are not in the file"),
        (edit("", "pass"), "searches for nothing"),
        (edit("def forward(x):", "def backward(x):"), "no kernel in the answer: .* defines no entry"),
        (
            edit("    y = x + 1", "    y = x") + "@@ SEARCH\n    return y\n",
            "edit 2 of 2 is cut short.* no REPLACE",
        ),
        ("@@ SEARCH\n    return y\n@@ REPLACE\n    return", "edit 1 of 1 is cut short: it has no END"),
        ("@@ SEARCH\n@@ SEARCH\n", "edit 1 of 2 is cut short"),
        ("I would rather not.", "no kernel in the answer"),
    ],
)
def test_an_edit_that_does_not_fit_says_why(text: str, why: str) -> None:
    with pytest.raises(Unusable, match=why) as raised:
        edited(text, PARENT, ".py")
    assert "\n" not in str(raised.value)


def test_lines_that_are_there_twice_are_not_replaced() -> None:
    with pytest.raises(Unusable, match="are in the file more than once"):
        edited(edit("    return y", "    pass"), PARENT + "\n\ndef third(y):\n    return y\n", ".py")


def test_a_whole_file_may_stand_in_for_edits() -> None:
    text = "Change: all.\n```python\ndef forward(x):\n    return x\n```\n"
    assert edited(text, PARENT, ".py").source == "def forward(x):\n    return x\n"


def test_the_suffix_of_an_edited_file_stays() -> None:
    parent = "// assay: call f(x)\n// assay: return x\n#include <cmath>\n"
    made = edited(edit("#include <cmath>", "#include <cstdint>"), parent, ".cc")
    assert (made.suffix, "cstdint" in made.source) == (".cc", True)


@pytest.mark.parametrize(
    "text",
    ["", "no code", "```python\nx = 1\n```", "```cpp\nint x;\n```", "\0\0", "#" * 2_000_000],
    ids=["empty", "words", "no entry", "no directives", "binary", "too large"],
)
def test_an_answer_without_a_kernel_is_unusable(text: str) -> None:
    with pytest.raises(Unusable, match="no kernel in the answer"):
        whole_file(text)


@pytest.mark.parametrize(
    "text, note",
    [
        ("Let us see:\n\nChange: wider loads.\n```python\nx\n```", "wider loads."),
        ("## Plan\n\nUse **two** passes.\n```\nChange: not this\n```", "Use two passes."),
        ("**Change:** split the rows", "split the rows"),
        ("```python\nx = 1\n```", ""),
        ("@@ SEARCH\nChange: no\n", ""),
        pytest.param(
            "Change: " + "long " * 1000, ("long " * 1000)[: NOTE_CHARACTERS - 3] + "...", id="too long"
        ),
    ],
)
def test_the_note_is_the_line_that_says_what_is_different(text: str, note: str) -> None:
    assert plan_line(text) == note


LISTED = """Some words before.

## Idea 1: Wider loads
Hypothesis: loads of four bytes
  do not fill the bus
**Mechanism:** in steps
1. load sixteen bytes
2. store sixteen
Predicted gain (over the best): 1.3x
Risk: tails

Idea 2 - Split rows
- **Hypothesis**: too few blocks
- Mechanism: two kernels
- Expected speedup: 20 %
"""


def test_ideas_are_read_from_the_form_that_is_asked_for() -> None:
    first, second = ideas_in(LISTED)
    assert (first.title, first.predicted_gain) == ("Wider loads", 1.3)
    assert first.hypothesis == "loads of four bytes do not fill the bus"
    assert first.mechanism == "in steps 1. load sixteen bytes 2. store sixteen Risk: tails"
    assert (second.title, second.hypothesis, second.mechanism) == (
        "Split rows",
        "too few blocks",
        "two kernels",
    )
    assert second.predicted_gain == pytest.approx(1.2)


@pytest.mark.parametrize(
    "text, titles, gains",
    [
        (
            "1. **Wide loads** - use 128 bits\n2. Persistent: stay\n   gain: 1.2\n",
            ["Wide loads", "Persistent"],
            [None, 1.2],
        ),
        ("Title: A b\nHypothesis: c\nTitle: D e\nHypothesis: f\nGain: 2x", ["A b", "D e"], [None, 2.0]),
        ("1) Title: A b\nWhy: c\n2) Title: D e\nWhy: f", ["A b", "D e"], [None, None]),
        (
            '[{"title": "A b", "gain": NaN, "why": "c"}, {"name": "D", "how": "e", "gain": 1.5}, 7]',
            ["A b", "D"],
            [None, 1.5],
        ),
        (
            '```json\n{"ideas": [{"title": "A", "hypothesis": "b", "predicted_gain": "30%"}]}\n```',
            ["A"],
            [1.3],
        ),
        ('{"title": "A", "mechanism": "b", "predicted_gain": 1e999}', ["A"], [None]),
        ("1. Same - a\n2. same! - b\n", ["Same"], [None]),
        ("I cannot help with that.", [], []),
        ("1.\n2.\n- Hypothesis:\n", [], []),
        pytest.param("[" * 100_000, [], [], id="deep"),
        ("", [], []),
    ],
)
def test_ideas_are_read_from_other_forms(text: str, titles: list[str], gains: list[float | None]) -> None:
    found = ideas_in(text)
    assert [idea.title for idea in found] == titles
    assert [idea.predicted_gain for idea in found] == [g if g is None else pytest.approx(g) for g in gains]


def test_there_are_only_so_many_ideas() -> None:
    assert len(ideas_in("".join(f"{k}. title {k}: text\n" for k in range(5000)))) == MOST_IDEAS


@pytest.mark.parametrize(
    "text, gain",
    [
        ("1.3", 1.3),
        ("about 1.3x faster", 1.3),
        ("+30 %", 1.3),
        ("-10%", 0.9),
        ("1.2 to 1.5", (1.2 * 1.5) ** 0.5),
        ("20-30 percent", (1.2 * 1.3) ** 0.5),
        ("1.1x\u20131.3x", (1.1 * 1.3) ** 0.5),
        ("1,25", 1.25),
        ("1.15 (15 %)", 1.15),
        ("nan", None),
        ("inf", None),
        ("1e400", None),
        ("2.5e3", None),
        pytest.param("9" * 5000, None, id="digits"),
        ("0", None),
        ("-3", None),
        ("much", None),
        ("", None),
    ],
)
def test_gains_are_read_or_not_known(text: str, gain: float | None) -> None:
    assert read_gain(text) == (gain if gain is None else pytest.approx(gain))


@pytest.mark.parametrize(
    "junk",
    [
        "\n" * 300_000,
        " \u2028\n" * 100_000,
        "```" + "a" * 300_000 + "`",
        "// assay: a" + " " * 300_000 + "x\n#include <cmath>\n",
        "idea" + " " * 300_000 + ":",
        "@@ SEARCH\n" * 30_000,
        "1. a - b\n" * 30_000,
    ],
    ids=["blank", "separators", "fence", "directive", "heading", "edits", "ideas"],
)
def test_long_runs_end(junk: str) -> None:
    """Where a pattern takes the square of its length, each of these takes until the test is killed."""
    ideas_in(junk)
    plan_line(junk)
    with contextlib.suppress(Unusable):
        whole_file(junk)
    with contextlib.suppress(Unusable):
        edited(junk, PARENT, ".py")


PIECES = (
    edit("    y = x + 1", "    y = x + 2"),
    f"```python\n{PARENT}```\n",
    "1. Vector loads\n   Hypothesis: loads are narrow.\n   Predicted gain: 1.1x\n",
    '```json\n[{"title": "A", "hypothesis": "b", "predicted_gain": 1e999}]\n```',
    "<<<<<<< SEARCH\n",
    "=======\n",
    ">>>>>>> REPLACE\n",
    "@@ END\n",
    "```",
    '{"ideas": [[[',
    "Change: ",
    "\0",
    "\ud800",
    "\u2028",
    "é",
    " " * 40,
)


def fuzzed(draw: random.Random) -> str:
    """Pieces of answers in any order, then some characters lost, doubled or exchanged."""
    letters = list("".join(draw.choices(PIECES, k=draw.randrange(12))))
    for _ in range(draw.randrange(20) if letters else 0):
        at = draw.randrange(len(letters))
        letters[at] = draw.choice(("", letters[at] * 2, draw.choice(letters)))
    return "".join(letters)


def test_five_hundred_malformed_answers_are_read_or_called_unusable() -> None:
    draw, made = random.Random(11), 0
    for _ in range(500):
        text = fuzzed(draw)
        for idea in ideas_in(text):
            assert idea.title and (idea.predicted_gain is None or math.isfinite(idea.predicted_gain))
            f"{idea.title}{idea.hypothesis}{idea.mechanism}".encode()
        assert len(plan_line(text)) <= NOTE_CHARACTERS
        for read in (whole_file, lambda text: edited(text, PARENT, ".py")):
            with contextlib.suppress(Unusable):
                written = read(text)
                made += 1
                assert written.source.encode() and written.suffix in (".py", ".cu", ".cpp")
    assert 50 < made < 950
