"""The parts of the live view besides the tree: each gives lines of one width, at most so many.

Not covered: where they stand, which is live_picture's.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from assay.cli import figures
from assay.cli.live_text import (
    Part,
    Pen,
    amount,
    comparison,
    cost_text,
    duration,
    event_text,
    ratio_text,
    time_text,
    widest,
)
from assay.search.snapshot import BestShown, BudgetShown, Snapshot

_COLOURS = {"faster": "bold green", "slower": "red", "no difference": "yellow"}
_NAME_SHARE = 0.35
"""How much of a chart's width its names may take."""
_COUNTS_IN_FULL_FROM = 100
_LEAST_BAR = 4
_MOST_GAUGE = 24
_CLOSE = 0.9
"""From this share of a budget on, its end is near."""


def header(pen: Pen, snapshot: Snapshot, elapsed_s: float, width: int) -> Text:
    left = pen.line(("assay search ", "bold"), (snapshot.problem, "bold cyan"))
    for text in (snapshot.device, snapshot.strategy):
        if text:
            left.append_text(pen.line(f" {pen.symbols.between} {text}"))
    return pen.ends(left, pen.line((duration(elapsed_s), "bold")), width)


def best_line(pen: Pen, snapshot: Snapshot, width: int) -> Text:
    best = snapshot.best
    if best is None:
        return pen.fit(pen.line(("best ", "bold"), ("nothing right yet", "dim")), width)
    parts: list[Part] = [(f"{pen.symbols.best} best ", "bold")]
    right = pen.line(*_standing(pen, best, snapshot))
    name = pen.cut(f"#{best.id} {best.name}", max(8, width - 8 - right.cell_len))
    return pen.fit(pen.line(*parts, (name, "bold green"), " ").append_text(right), width)


def _standing(pen: Pen, best: BestShown, snapshot: Snapshot) -> list[Part]:
    parts: list[Part] = []
    if best.ratio is not None:
        word = comparison(best.ratio)
        parts += [(f" {ratio_text(best.ratio)}", _COLOURS[word]), (f" {word}", _COLOURS[word])]
    else:
        parts.append((" not timed", "yellow"))
    if best.time_us is not None:
        parts.append(f"  {time_text(best.time_us)}")
    if snapshot.limit is not None and snapshot.limit.percent is not None:
        parts.append((f"  {figures.percent(snapshot.limit.percent)} of the limit", "cyan"))
    return parts


def note_line(pen: Pen, snapshot: Snapshot, width: int) -> Text:
    """How the best was made."""
    best = snapshot.best
    if best is None:
        return pen.fit(pen.line(""), width)
    by = " / ".join(part for part in (best.proposer, best.operator) if part)
    left = pen.line(f"  {best.note}")
    return pen.ends(left, pen.line((f"by {by}" if by else "", "dim")), width)


def counts_line(pen: Pen, snapshot: Snapshot, width: int) -> Text:
    counts = snapshot.counts
    asked = f"asked {counts.asked}, drafted {counts.drafted}"
    if width >= _COUNTS_IN_FULL_FROM:
        asked += f" ({counts.duplicates} duplicates), judged {counts.judged}"
    else:
        asked += f" ({counts.duplicates} twice)"
    parts: list[Part] = [
        f"{asked}: ",
        (f"{counts.right} right", "green"),
        f" ({counts.faster} faster), ",
        (f"{counts.wrong} wrong", "red"),
        ", ",
        (f"{counts.failed} failed", "magenta"),
    ]
    return pen.fit(pen.line(*parts), width)


def device_line(pen: Pen, snapshot: Snapshot, elapsed_s: float, width: int) -> Text:
    activity = snapshot.activity
    left = pen.line(("device ", "bold"), (activity.text or "idle", "cyan" if activity.text else "dim"))
    if activity.text and activity.began_s is not None:
        left.append(f", {max(0.0, elapsed_s - activity.began_s):.1f} s")
    said = [f"{name} {many}" for name, many in activity.queues]
    if activity.busy is not None:
        said.append(f"busy {100 * activity.busy:.0f} %")
    return pen.ends(left, pen.line(f" {pen.symbols.between} ".join(said)), width)


def proposers_line(pen: Pen, snapshot: Snapshot, width: int) -> Text:
    said = [
        f"{one.name} {one.open} open, {one.answered} answered, {cost_text(one.cost_usd)}"
        for one in snapshot.proposers
    ]
    return pen.fit(pen.line(("from ", "bold"), f" {pen.symbols.between} ".join(said) or "nobody yet"), width)


def proposers_block(pen: Pen, snapshot: Snapshot, width: int, height: int) -> list[Text]:
    shown = list(snapshot.proposers)
    names = min(widest([one.name for one in shown]), int(width * _NAME_SHARE))
    lines = []
    for one in shown:
        name = pen.fit(pen.line(one.name), names)
        rest = f"  {one.open} open, {one.answered} answered, {cost_text(one.cost_usd)}"
        lines.append(pen.fit(name.append_text(pen.line(rest)), width))
    return _limited(pen, lines, width, height)


def ladder_block(pen: Pen, snapshot: Snapshot, width: int, height: int) -> list[Text]:
    """Times as bars, the shortest first: the limit, the best and the baselines."""
    timed = [(rung.time_us, rung.name, " ", "") for rung in snapshot.ladder if rung.time_us is not None]
    opponent = min(timed, default=None)
    timed = [(*row[:2], pen.symbols.cursor, "bold") if row == opponent else row for row in timed]
    own = []
    if snapshot.limit is not None:
        own.append((snapshot.limit.floor_us, "limit", " ", "cyan"))
    if snapshot.best is not None and snapshot.best.time_us is not None:
        own.append((snapshot.best.time_us, f"best #{snapshot.best.id}", pen.symbols.best, "bold green"))
    absent = [rung for rung in snapshot.ladder if rung.time_us is None]
    kept = sorted(timed)[: max(0, height - len(own))]
    if len(kept) < len(timed) or (absent and len(own) + len(timed) >= height):
        kept = kept[: max(1, height - len(own) - 1)]
    lines = _bars(pen, sorted([*own, *kept], key=lambda row: row[0]), width)
    slower, room = len(timed) - len(kept), height - len(lines)
    if slower or len(absent) > room:
        said = [f"{slower} slower"] * bool(slower) + [f"{len(absent)} absent"] * bool(absent)
        return [*lines, pen.fit(pen.line((f"  {pen.symbols.more} {', '.join(said)}", "dim")), width)][:height]
    gone = [pen.line((f"  {rung.name} absent: {rung.absent or 'not said'}", "dim")) for rung in absent]
    return [*lines, *(pen.fit(line, width) for line in gone)] or [
        pen.fit(pen.line(("  not timed yet", "dim")), width)
    ]


def _bars(pen: Pen, rows: Sequence[tuple[float, str, str, str]], width: int) -> list[Text]:
    times = [time_text(row[0]) for row in rows]
    names = min(widest([row[1] for row in rows]), max(6, int(width * _NAME_SHARE)))
    room = width - 2 - names - 1 - widest(times) - 1
    largest = max((row[0] for row in rows), default=0.0)
    lines = []
    for (time_us, name, mark, style), text in zip(rows, times, strict=True):
        line = pen.line(f"{mark} ").append_text(pen.fit(pen.line(name), names))
        line.append(f" {text:>{widest(times)}} ")
        if room >= _LEAST_BAR:
            line.append(pen.bar(time_us, largest, room))
        line.stylize(style)
        lines.append(pen.fit(line, width))
    return lines


def budgets_block(pen: Pen, snapshot: Snapshot, width: int, height: int) -> list[Text]:
    shown = list(snapshot.budgets)
    names = min(widest([budget.name for budget in shown]), max(6, int(width * _NAME_SHARE)))
    texts = [spent(budget) for budget in shown]
    room = width - names - 1 - widest(texts) - 1 - 6
    lines = []
    for budget, text in zip(shown, texts, strict=True):
        line = pen.fit(pen.line(budget.name), names).append(" ")
        line.append_text(pen.line((text.ljust(widest(texts)), "dim" if budget.used is None else "")))
        if budget.used is not None and budget.limit:
            share = budget.used / budget.limit
            gauge = pen.gauge(share, min(room, _MOST_GAUGE)) + " " if room >= _LEAST_BAR else ""
            percent = pen.line((f" {gauge}{100 * share:3.0f} %", "yellow" if share >= _CLOSE else ""))
            if line.cell_len + percent.cell_len <= width:
                line.append_text(percent)
        lines.append(pen.fit(line, width))
    return _limited(pen, lines, width, height) or [pen.fit(pen.line(("none", "dim")), width)]


def spent(budget: BudgetShown) -> str:
    """What is used of a budget, in words."""
    unit = "" if budget.unit == budget.name else budget.unit
    used = "unknown" if budget.used is None else amount(budget.used, unit)
    return f"{used} of {amount(budget.limit, unit)}" if budget.limit is not None else f"{used}, no limit"


def events_block(pen: Pen, snapshot: Snapshot, width: int, height: int) -> list[Text]:
    """The newest ones, the newest last."""
    shown = snapshot.events[-height:] if height > 0 else ()
    return [pen.fit(pen.line(event_text(event.elapsed_s, event.text)), width) for event in shown]


def _limited(pen: Pen, lines: list[Text], width: int, height: int) -> list[Text]:
    if len(lines) <= height:
        return lines
    if height <= 0:
        return []
    more = pen.line((f"{pen.symbols.more} {len(lines) - height + 1} more", "dim"))
    return [*lines[: height - 1], pen.fit(more, width)]
