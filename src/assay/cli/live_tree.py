"""The tree of ideas and candidates in as many lines as there are.

What does not fit is folded: the row of the cursor, the best, pinned ones and the newest stay, the rest is
counted where it would stand. Not covered: where the tree stands.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.text import Text

from assay.cli.live_text import Pen, Symbols, comparison, duration, ratio_text, widest
from assay.search.snapshot import IDEA, NodeKey, TreeNode

SMALLEST = 3
"""Lines that show one row of a long tree: what is before it, itself, what is after it."""
_NEWEST = 3
_AROUND_CURSOR = 2
_DEEPEST_SHARE = 0.4
"""How much of a label's room its branches may take."""
_INTERVALS_FROM, _WORDS_FROM, _NOTES_FROM = 44, 64, 84
"""From which width on there is room for these."""
_BROKEN = frozenset({"build_failed", "crashed", "timed_out", "failed", "no_verdict"})
_WRONG = frozenset({"wrong", "rejected", "refused"})
_COLOURS = {"faster": "green", "slower": "red", "no difference": "yellow"}


@dataclass(frozen=True, slots=True)
class Row:
    """A node and where it hangs."""

    node: TreeNode
    above: Row | None
    """Its parent's."""
    place: int
    """Among all rows."""
    depth: int
    is_last: bool
    """No sibling follows."""


@dataclass(frozen=True, slots=True)
class Fold:
    """Rows that are not shown."""

    rows: tuple[Row, ...]


def ordered(tree: Sequence[TreeNode]) -> list[Row]:
    """Every node after its parent, siblings as they come."""
    known = {node.key for node in tree}
    children: dict[NodeKey | None, list[TreeNode]] = {}
    for node in tree:
        parent = node.parent if node.parent in known and node.parent != node.key else None
        children.setdefault(parent, []).append(node)
    rows: list[Row] = []
    # Chains of improvements grow longer than Python's stack.
    ahead: list[tuple[TreeNode, Row | None, bool]] = [
        (n, None, False) for n in reversed(children.get(None, []))
    ]
    while ahead:
        node, above, is_last = ahead.pop()
        row = Row(node, above, len(rows), 0 if above is None else above.depth + 1, is_last)
        rows.append(row)
        below = children.get(node.key, [])
        ahead += [(child, row, child is below[-1]) for child in reversed(below)]
    return rows


def fold(rows: Sequence[Row], height: int, cursor: NodeKey | None) -> list[Row | Fold]:
    """At most so many lines."""
    kept: list[int] = []
    lines = 1 if rows else 0
    for place in _by_importance(rows, cursor):
        at = bisect_left(kept, place)
        if at < len(kept) and kept[at] == place:
            continue
        before = kept[at - 1] if at > 0 else -1
        after = kept[at] if at < len(kept) else len(rows)
        added = 1 + (place - before > 1) + (after - place > 1) - (after - before > 1)
        if lines + added <= height:
            insort(kept, place)
            lines += added
    return list(_with_folds(rows, kept))


def _with_folds(rows: Sequence[Row], kept: Sequence[int]) -> Iterator[Row | Fold]:
    done = 0
    for place in kept:
        if place > done:
            yield Fold(tuple(rows[done:place]))
        yield rows[place]
        done = place + 1
    if done < len(rows):
        yield Fold(tuple(rows[done:]))


def _by_importance(rows: Sequence[Row], cursor: NodeKey | None) -> Iterator[int]:
    selected = next((k for k, row in enumerate(rows) if row.node.key == cursor), None)
    if selected is not None:
        yield selected
    newest = sorted(range(len(rows)), key=lambda k: (*_age(rows[k].node), -k))
    bests = [k for k, row in enumerate(rows) if row.node.is_best]
    yield from bests
    yield from (k for k in newest if rows[k].node.pinned)
    yield from newest[:_NEWEST]
    if selected is not None:
        for distance in range(1, _AROUND_CURSOR + 1):
            yield from (k for k in (selected - distance, selected + distance) if 0 <= k < len(rows))
    for best in bests:
        above = rows[best].above
        while above is not None:
            yield above.place
            above = above.above
    for place in newest:
        yield place
        above = rows[place].above
        if above is not None:
            yield above.place


def _age(node: TreeNode) -> tuple[bool, float]:
    """For sorting: what has no age counts as old."""
    return node.age_s is None, node.age_s or 0.0


def tree_lines(pen: Pen, rows: Sequence[Row], width: int, height: int, cursor: NodeKey | None) -> list[Text]:
    """The tree, folded to at most so many lines."""
    if not rows:
        return [pen.fit(pen.line(("nothing yet", "dim")), width)]
    shown = fold(rows, max(height, SMALLEST), cursor)
    columns = _columns([row.node for row in shown if isinstance(row, Row)], width)
    return [
        _row_line(pen, row, columns, width, is_selected=row.node.key == cursor)
        if isinstance(row, Row)
        else _fold_line(pen, row, width)
        for row in shown
    ]


def symbol(symbols: Symbols, node: TreeNode) -> tuple[str, str]:
    """A character and a style for what is known of a node."""
    if node.kind == IDEA:
        return symbols.idea, "cyan"
    if node.status == "passed":
        return symbols.right, "green"
    if node.status in _WRONG:
        return symbols.wrong, "red"
    if node.status in _BROKEN:
        return symbols.broken, "magenta"
    if node.status.startswith("duplicate"):
        return symbols.duplicate, "dim"
    if node.status in ("", "waiting"):
        return symbols.waiting, "dim"
    return symbols.busy, "bold cyan"


def label(node: TreeNode) -> str:
    return f"idea {node.id}: {node.label}" if node.kind == IDEA else f"#{node.id} {node.label}"


def _columns(nodes: Sequence[TreeNode], width: int) -> Mapping[str, int]:
    """How wide each column right of the labels is; a column that is not there has no room."""
    columns = {"speed": widest([_speed(node, width) for node in nodes])}
    columns["marks"] = widest([_marks(node, width) for node in nodes])
    if width >= _WORDS_FROM:
        columns["status"] = min(widest([_status(node) for node in nodes]), width // 4)
    if width >= _NOTES_FROM:
        columns["age"] = widest([_age_text(node) for node in nodes])
    return {name: size for name, size in columns.items() if size}


def _row_line(pen: Pen, row: Row, columns: Mapping[str, int], width: int, *, is_selected: bool) -> Text:
    node = row.node
    sign, sign_style = symbol(pen.symbols, node)
    right = Text()
    cells = {
        "status": (_status(node), sign_style),
        "speed": (_speed(node, width), _COLOURS[comparison(node.ratio)] if node.ratio is not None else ""),
        "marks": (_marks(node, width), "bold"),
        "age": (_age_text(node), "dim"),
    }
    for name, cell in cells.items():
        if name in columns:
            right.append(" ").append_text(pen.fit(pen.line(cell), columns[name]))
    room = max(8, width - 4 - right.cell_len)
    branches = _branches(pen.symbols, row, int(room * _DEEPEST_SHARE))
    name_style = "bold green" if node.is_best else "dim" if node.banned else ""
    note = f"  {node.note}" if width >= _NOTES_FROM else ""
    left = pen.line((branches, "dim"), (label(node), name_style), (note, "dim"))
    mark = pen.symbols.cursor if is_selected else pen.symbols.best if node.is_best else " "
    line = pen.line((mark, "bold"), (sign, sign_style), " ").append_text(pen.fit(left, room))
    line = pen.fit(line.append_text(right), width)
    if is_selected:
        line.stylize("reverse")
    return line


def _fold_line(pen: Pen, hidden: Fold, width: int) -> Text:
    kinds = Counter(_status(row.node) for row in hidden.rows if row.node.kind != IDEA)
    kinds.pop("", None)
    ideas = sum(row.node.kind == IDEA for row in hidden.rows)
    count = f"{pen.symbols.more} {len(hidden.rows)} more"
    said = [f"{many} {kind}" for kind, many in kinds.most_common()]
    said += [f"{ideas} idea{'s' if ideas > 1 else ''}"] if ideas else []
    which = ", ".join(said)
    depth = min(hidden.rows[0].depth, int(width * _DEEPEST_SHARE) // 2)
    return pen.fit(pen.line(("   " + "  " * depth + count + (f": {which}" if which else ""), "dim")), width)


def _branches(symbols: Symbols, row: Row, most: int) -> str:
    """The lines of the tree in front of a label; of deep ones the nearest, and how deep it is."""
    if row.above is None:
        return ""
    levels = max(1, most // 2)
    is_deep = row.depth > levels
    pieces = [symbols.last if row.is_last else symbols.branch]
    above: Row = row.above
    while above.above is not None and len(pieces) < (max(1, levels - 1) if is_deep else levels):
        pieces.append("  " if above.is_last else symbols.through)
        above = above.above
    return (f"{row.depth} " if is_deep else "") + "".join(reversed(pieces))


def _status(node: TreeNode) -> str:
    return node.status.replace("_", " ")


def _age_text(node: TreeNode) -> str:
    return "" if node.age_s is None else duration(node.age_s)


def _speed(node: TreeNode, width: int) -> str:
    if node.ratio is None:
        return ""
    text = ratio_text(node.ratio)
    return text if width >= _INTERVALS_FROM else text.split(" ")[0]


def _marks(node: TreeNode, width: int) -> str:
    marks = (("best", "*", node.is_best), ("pinned", "P", node.pinned), ("banned", "X", node.banned))
    if width < _WORDS_FROM:
        return "".join(letter for _, letter, holds in marks if holds)
    return " ".join(word for word, _, holds in marks if holds)
