"""The view of a search: what is drawn at which size, and the plain lines where there is no terminal."""

from __future__ import annotations

import io
import queue
import re
from dataclasses import replace

import pytest
from live_demo import FLOOR_US, detail, drawn, search
from rich.console import Console

from assay.cli.live_controls import HELP, Controls
from assay.cli.live_picture import Scene, picture
from assay.cli.live_text import UNICODE, Pen, amount, duration, ratio_text, time_text
from assay.cli.live_tree import Fold, fold, ordered
from assay.cli.live_view import PlainView
from assay.records import Interval
from assay.search.snapshot import (
    CANDIDATE,
    BudgetShown,
    Event,
    Snapshot,
    TreeNode,
)

SIZES = [
    (12, 4),
    (30, 8),
    (50, 14),
    (64, 18),
    (80, 24),
    (100, 30),
    (119, 50),
    (120, 30),
    (160, 50),
    (220, 70),
]
HOSTILE = "a\x1b[2Jb\x07c\nd\u202ee\udcff"


def some_controls() -> Controls:
    return Controls(queue.Queue(), detail, HELP)


def drawn_tree(snapshot: Snapshot, width: int, height: int) -> list[str]:
    """Its lines alone, of a picture in one or in two columns."""
    wide = width >= 120
    lines = [line[: int(width * 0.6)] if wide else line for line in drawn(snapshot, width, height)]
    start = next(k for k, line in enumerate(lines) if line.startswith("ideas and candidates (63)"))
    end = height - 2 if wide else lines.index(next(line for line in lines if line.startswith("events")))
    return [line for line in lines[start + 1 : end] if line.strip()]


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("candidates", [0, 1, 60])
def test_a_picture_is_as_large_as_the_terminal(width: int, height: int, candidates: int) -> None:
    snapshot = search(candidates) if candidates else Snapshot()
    lines = picture(Pen("utf-8"), Scene(snapshot, 0.0, some_controls()), width, height)
    assert len(lines) == height
    assert {line.cell_len for line in lines} == {width}


@pytest.mark.parametrize(("width", "height"), [(80, 24), (160, 50)])
def test_the_best_the_pinned_and_the_newest_stay_and_the_rest_is_counted(width: int, height: int) -> None:
    tree = drawn_tree(search(60), width, height)
    rows = [line for line in tree if "more" not in line]
    best = next(line for line in rows if " best" in line)
    assert best.startswith(UNICODE.best) and re.search(r"\d\.\d\dx \(\d\.\d\d-\d\.\d\d\)", best)
    assert any("#2 softmax_2 " in line and "pinned" in line for line in rows)
    assert any("#60 softmax_60 " in line for line in rows)
    folds = [re.search(r"… (\d+) more: \d", line) for line in tree if "more" in line]
    assert folds and len(rows) + sum(int(found[1]) for found in folds if found) == 63


@pytest.mark.parametrize("height", [3, 4, 7, 8, 20, 62, 63, 64])
def test_folding_loses_nothing_and_keeps_to_its_height(height: int) -> None:
    rows = ordered(search(60).tree)
    shown = fold(rows, height, None)
    assert len(shown) <= height
    assert [row for part in shown for row in (part.rows if isinstance(part, Fold) else (part,))] == rows
    assert any(not isinstance(part, Fold) and part.node.is_best for part in shown)


def test_a_fold_of_one_row_is_never_there_where_the_row_itself_would_fit() -> None:
    shown = fold(ordered(search(60).tree), 20, None)
    assert all(len(part.rows) > 1 for part in shown if isinstance(part, Fold))


def test_the_row_of_the_cursor_is_shown_wherever_it_is() -> None:
    rows = ordered(search(60).tree)
    for row in rows:
        shown = fold(rows, 3, row.node.key)
        assert any(not isinstance(part, Fold) and part.node.key == row.node.key for part in shown)


def test_a_long_chain_and_missing_parents_are_drawn() -> None:
    chain = [TreeNode(k, CANDIDATE, f"step_{k}", (CANDIDATE, k - 1), "passed") for k in range(1, 3000)]
    assert len(ordered(chain)) == len(chain)
    lines = drawn(Snapshot(tree=tuple(chain)), 80, 24)
    assert any("#2999 step_2999" in line for line in lines)


def test_what_is_not_known_is_called_unknown() -> None:
    text = "\n".join(drawn(search(60), 80, 24))
    assert "unknown of $5.00" in text
    assert "6 m 39 s, no limit" in text
    assert "$0.00 of" not in text
    assert "cost unknown" in "\n".join(drawn(search(60), 160, 50))


def test_before_anything_happened_it_says_so() -> None:
    text = "\n".join(drawn(Snapshot(problem="softmax"), 80, 24))
    for words in ("nothing right yet", "nothing yet", "not timed yet", "idle"):
        assert words in text


@pytest.mark.parametrize(("width", "height"), [(80, 24), (160, 50)])
def test_bars_grow_with_time_and_the_limit_is_the_shortest(width: int, height: int) -> None:
    lines = drawn(search(60), width, height)
    times = [re.search(r"(limit|best #\d+|compile|eager) +([\d.]+) us (█+)", line) for line in lines]
    bars = [(float(found[2]), len(found[3]), found[1]) for found in times if found]
    assert bars == sorted(bars) and bars[0][2] == "limit" and bars[0][0] == FLOOR_US
    assert bars[0][1] < bars[-1][1]
    text = "\n".join(lines)
    assert "no such operation" in text if width == 160 else "1 absent" in text


def test_a_terminal_without_unicode_gets_ascii() -> None:
    snapshot = search(60)
    first = replace(snapshot.tree[-1], label="größe", pinned=True)
    snapshot = replace(snapshot, tree=(*snapshot.tree[:-1], first))
    for width, height in SIZES:
        for line in picture(Pen("ascii"), Scene(snapshot, 0.0, some_controls()), width, height):
            assert line.plain.isascii() and line.cell_len == width
    assert not Pen("utf-8").is_ascii and Pen("latin-1").is_ascii and Pen("no such encoding").is_ascii


def test_names_from_anywhere_cannot_steer_the_terminal() -> None:
    node = TreeNode(1, CANDIDATE, HOSTILE, status=HOSTILE, note=HOSTILE, is_best=True)
    snapshot = replace(
        search(3), tree=(node,), message=HOSTILE, events=(Event(1, 1.0, HOSTILE),), problem=HOSTILE
    )
    for width, height in SIZES:
        for line in picture(Pen("utf-8"), Scene(snapshot, 0.0, some_controls()), width, height):
            assert line.plain.isprintable() and line.cell_len == width
    out = io.StringIO()
    PlainView(Console(file=out)).show(snapshot)
    assert out.getvalue() == "[   1.0 s] a?[2Jb?c d?e?\n"


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        ((1.234, 1.211, 1.25), "1.23x (1.21-1.25)"),
        ((1.0041, 1.002, 1.006), "1.004x (1.002-1.006)"),
        ((12.34, 12.0, 13.0), "12.3x (12.0-13.0)"),
        ((345.6, 340.0, 350.0), "346x (340-350)"),
        ((0.5, 0.4, 0.6), "0.50x (0.40-0.60)"),
    ],
)
def test_ratios(ratio: tuple[float, float, float], text: str) -> None:
    assert ratio_text(Interval(*ratio)) == text


def test_times_and_amounts() -> None:
    assert [time_text(us) for us in (4.2, 42.13, 999.0, 1234.0, 2.5e6)] == [
        "4.200 us",
        "42.13 us",
        "999.0 us",
        "1.234 ms",
        "2.50 s",
    ]
    assert [duration(s) for s in (0.4, 59.9, 60, 723, 3600, 3720)] == [
        "0 s",
        "59 s",
        "1 m",
        "12 m 03 s",
        "1 h",
        "1 h 02 m",
    ]
    assert [
        amount(*pair) for pair in ((1.5, "$"), (72.4, "%"), (12.0, ""), (12345.0, "tokens"), (2e6, ""))
    ] == [
        "$1.50",
        "72 %",
        "12",
        "12.3k tokens",
        "2.00M",
    ]


def test_a_spent_budget_does_not_grow_out_of_its_line() -> None:
    budgets = (BudgetShown("evaluations", 500, 50), BudgetShown("nothing", 0, 0, "s"))
    lines = drawn(replace(search(3), budgets=budgets), 160, 50)
    assert any("1000 %" in line for line in lines) and any("0 s of 0 s" in line for line in lines)


def plain(*snapshots: Snapshot) -> list[str]:
    out = io.StringIO()
    with PlainView(Console(file=out, width=40)) as view:
        for snapshot in snapshots:
            view.show(snapshot)
    assert "\x1b" not in out.getvalue()
    return out.getvalue().splitlines()


def test_plain_lines_one_for_each_event_and_none_twice() -> None:
    text = "#4 softmax_vector: passed, 1.31x (1.29-1.33) of compile, new best"
    events = (Event(1, 1.0, "ladder timed"), Event(2, 12.34, text))
    shown = plain(Snapshot(events=events[:1]), Snapshot(events=events), Snapshot(events=events))
    assert shown == ["[   1.0 s] ladder timed", f"[  12.3 s] {text}"]


def test_plain_lines_sum_up_every_half_minute() -> None:
    steps = [replace(search(20), elapsed_s=100.0 + 10 * k, events=()) for k in range(8)]
    lines = plain(*steps)
    assert [line[:11] for line in lines] == ["[ 130.0 s] ", "[ 160.0 s] "]
    best = steps[0].best
    assert best is not None and best.ratio is not None
    assert f"best #{best.id} {best.name}, {ratio_text(best.ratio)}" in lines[0]
    assert "17 judged" in lines[0] and "cost unknown of $5.00" in lines[0]


def test_plain_lines_are_plain_on_a_terminal_too_and_in_any_encoding() -> None:
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, encoding="latin-1", write_through=True)
    view = PlainView(Console(file=out, force_terminal=True, color_system="truecolor"))
    view.show(Snapshot(events=(Event(1, 1.0, "[bold]größe[/] :smile: 1.5 漢 https://x.y"),)))
    assert raw.getvalue() == "[   1.0 s] [bold]größe[/] :smile: 1.5 ? https://x.y\n".encode("latin-1")
