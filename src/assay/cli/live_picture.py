"""The whole live view as lines: which parts there are, and where, for the size of the terminal.

Parts are left out in a fixed order where there is no room, the tree takes what is left over. Not covered:
when it is drawn.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

from assay.cli import live_parts
from assay.cli.live_controls import Controls, Page
from assay.cli.live_text import Pen, widest
from assay.cli.live_tree import SMALLEST, ordered, tree_lines
from assay.search.snapshot import Snapshot

_WIDE, _TALL = 120, 30
"""From this size on there are two columns."""
_PAIR_FROM = 60
"""From this width on times and budgets stand side by side."""
_LEFT_SHARE = 0.6
_GAP = 2
_LEAST_CHART, _MOST_CHART = 4, 9
"""Lines of times and budgets, their heading among them."""
_LEAST_EVENTS, _MOST_EVENTS = 3, 6
_TOP = ("header", "best", "note", "counts", "device", "proposers")
_SHOWN_ORDER = (*_TOP, "charts", "times", "tree", "events", "message", "keys")


@dataclass(frozen=True, slots=True)
class Scene:
    """All that one picture shows."""

    snapshot: Snapshot
    elapsed_s: float
    controls: Controls
    has_keys: bool = True


def picture(pen: Pen, scene: Scene, width: int, height: int) -> list[Text]:
    """Exactly so many lines of exactly this width."""
    if width >= _WIDE and height >= _TALL and scene.controls.page is None:
        lines = _columns(pen, scene, width, height)
    else:
        lines = _stack(pen, scene, width, height)
    return [pen.fit(line, width) for line in lines]


def _columns(pen: Pen, scene: Scene, width: int, height: int) -> list[Text]:
    """The tree on the left, numbers and events on the right."""
    snapshot = scene.snapshot
    single = {name: line for name, line in _single_lines(pen, scene, width).items() if name != "proposers"}
    top = [single[name] for name in _TOP if name in single]
    body = height - len(top) - len(("message", "keys"))
    left_width = int(width * _LEFT_SHARE)
    right_width = width - left_width - _GAP
    rows = ordered(snapshot.tree)
    left = [_tree_heading(pen, len(rows), left_width)]
    left += tree_lines(pen, rows, left_width, body - 1, scene.controls.cursor)
    right = [pen.heading("time per call", right_width)]
    right += live_parts.ladder_block(pen, snapshot, right_width, max(3, body // 4))
    right += [pen.heading("budgets", right_width)]
    right += live_parts.budgets_block(pen, snapshot, right_width, max(3, body // 4))
    right += [pen.heading("proposers", right_width)]
    right += live_parts.proposers_block(pen, snapshot, right_width, max(2, body // 8))
    right += [pen.heading("events", right_width)]
    right += live_parts.events_block(pen, snapshot, right_width, body - len(right))
    middle = _beside(pen, left, right, left_width, right_width)
    return [*top, *_filled(pen, middle, body), single["message"], single["keys"]]


def _stack(pen: Pen, scene: Scene, width: int, height: int) -> list[Text]:
    """One part under the other."""
    heights = _heights(scene, width, height)
    single = _single_lines(pen, scene, width)
    lines: list[Text] = []
    for name in _SHOWN_ORDER:
        if name not in heights:
            continue
        if name == "keys" and "message" not in heights and _has_message(scene):
            name = "message"
        lines += [single[name]] if name in single else _block(pen, scene, name, width, heights[name])
    return lines


def _heights(scene: Scene, width: int, height: int) -> dict[str, int]:
    """How many lines each part has that there is room for; first come those one misses most."""
    chart = "charts" if width >= _PAIR_FROM else "times"
    is_low = height < _TALL
    wanted = [("best", 1), ("keys", 1), ("tree", 1 + SMALLEST), ("device", 1), ("header", 1)]
    if scene.controls.page is None:
        wanted += [(chart, _LEAST_CHART), ("counts", 1), ("events", _LEAST_EVENTS), ("note", 1)]
    if not is_low:
        wanted += [("message", 1), ("proposers", 1)]
    heights: dict[str, int] = {}
    for name, least in wanted:
        if sum(heights.values()) + least <= height:
            heights[name] = least
    spare = height - sum(heights.values())
    most_events = _LEAST_EVENTS if is_low else _MOST_EVENTS
    growing = {chart: min(_MOST_CHART, 1 + _chart_rows(scene.snapshot)), "events": most_events}
    for name, most in growing.items():
        if name in heights:
            more = max(0, min(most - heights[name], spare // 3))
            heights[name] += more
            spare -= more
    if "tree" in heights:
        heights["tree"] += spare
    return heights


def _chart_rows(snapshot: Snapshot) -> int:
    return max(len(snapshot.ladder) + 2, len(snapshot.budgets))


def _single_lines(pen: Pen, scene: Scene, width: int) -> Mapping[str, Text]:
    snapshot = scene.snapshot
    return {
        "header": live_parts.header(pen, snapshot, scene.elapsed_s, width),
        "best": live_parts.best_line(pen, snapshot, width),
        "note": live_parts.note_line(pen, snapshot, width),
        "counts": live_parts.counts_line(pen, snapshot, width),
        "device": live_parts.device_line(pen, snapshot, scene.elapsed_s, width),
        "proposers": live_parts.proposers_line(pen, snapshot, width),
        "message": _message_line(pen, scene, width),
        "keys": _keys_line(pen, scene, width),
    }


def _block(pen: Pen, scene: Scene, name: str, width: int, height: int) -> list[Text]:
    snapshot, page = scene.snapshot, scene.controls.page
    if name == "charts":
        left, right = (width - _GAP) // 2, width - _GAP - (width - _GAP) // 2
        times = [pen.heading("time per call", left)]
        times += live_parts.ladder_block(pen, snapshot, left, height - 1)
        spent = [pen.heading("budgets", right)]
        spent += live_parts.budgets_block(pen, snapshot, right, height - 1)
        lines = _beside(pen, times, spent, left, right)
    elif name == "times":
        bars = live_parts.ladder_block(pen, snapshot, width, height - 1)
        lines = [pen.heading("time per call", width), *bars]
    elif name == "events":
        lines = [pen.heading("events", width), *live_parts.events_block(pen, snapshot, width, height - 1)]
    elif page is not None:
        lines = _page_lines(pen, page, width, height)
    else:
        rows = ordered(snapshot.tree)
        lines = [_tree_heading(pen, len(rows), width)]
        lines += tree_lines(pen, rows, width, height - 1, scene.controls.cursor)
    return _filled(pen, lines, height)


def _tree_heading(pen: Pen, rows: int, width: int) -> Text:
    return pen.heading(f"ideas and candidates ({rows})", width)


def _page_lines(pen: Pen, page: Page, width: int, height: int) -> list[Text]:
    wrapped = [
        piece for line in page.lines[page.top :] for piece in textwrap.wrap(line, max(8, width - 2)) or [""]
    ]
    room = height - 1
    if len(wrapped) > room:
        wrapped = [*wrapped[: room - 1], f"{pen.symbols.more} further down"]
    return [pen.heading(page.title, width), *(pen.line(f"  {text}") for text in wrapped)]


def _has_message(scene: Scene) -> bool:
    return bool(scene.controls.question or scene.controls.message(scene.snapshot))


def _message_line(pen: Pen, scene: Scene, width: int) -> Text:
    controls = scene.controls
    if not controls.question:
        return pen.fit(pen.line((controls.message(scene.snapshot), "yellow")), width)
    typed = pen.clean(controls.typed)
    # The end of what is typed is what the eye is on.
    room = max(1, width - len(controls.question) - 2)
    while widest([typed]) > room:
        typed = typed[1:]
    parts = (controls.question, "bold yellow"), f" {typed}", (pen.symbols.caret, "bold")
    return pen.fit(pen.line(*parts), width)


def _keys_line(pen: Pen, scene: Scene, width: int) -> Text:
    hints: Sequence[str] = scene.controls.hints if scene.has_keys else ("no keys: input is not a terminal",)
    return pen.fit(pen.line((f" {pen.symbols.between} ".join(hints), "dim")), width)


def _filled(pen: Pen, lines: list[Text], height: int) -> list[Text]:
    return [*lines, *[pen.line("")] * (height - len(lines))]


def _beside(pen: Pen, left: list[Text], right: list[Text], left_width: int, right_width: int) -> list[Text]:
    lines = []
    for k in range(max(len(left), len(right))):
        first = left[k] if k < len(left) else pen.line("")
        second = right[k] if k < len(right) else pen.line("")
        line = pen.fit(first, left_width).append(" " * _GAP)
        lines.append(line.append_text(pen.fit(second, right_width)))
    return lines
