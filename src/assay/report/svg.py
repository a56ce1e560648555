"""Charts as SVG: lines, points, bars and cells, coloured by classes that the page's style sheet knows.

Sizes are in the units of the drawing, which the page scales to its width. Not covered: interaction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 14, 40
SERIES = 6
"""Colours there are; further lines begin again, dashed."""
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Axis:
    """One direction of a chart."""

    low: float
    high: float
    title: str
    form: Callable[[float], str] = "{:g}".format
    logarithmic: bool = False
    whole: bool = False
    """Only whole numbers have a meaning."""

    def place(self, value: float) -> float:
        """From 0 to 1."""
        if self.logarithmic:
            low, high = math.log10(self.low), math.log10(self.high)
            return (math.log10(max(value, self.low)) - low) / (high - low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        if self.logarithmic:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            return [10.0**k for k in range(first, last + 1) if self.low <= 10.0**k <= self.high]
        step = _round_step((self.high - self.low) / 5)
        step = max(1.0, math.ceil(step)) if self.whole else step
        first = math.ceil(self.low / step - 1e-9)
        return [k * step for k in range(first, math.floor(self.high / step + 1e-9) + 1)]


@dataclass(frozen=True, slots=True)
class Line:
    """A series of points."""

    name: str
    points: Sequence[Point]
    steps: bool = False
    """Holds its value until the next point."""
    band: Sequence[tuple[float, float, float]] = field(default_factory=tuple)
    """x, low and high of an interval around it."""
    dashed: bool = False


def percent(value: float) -> str:
    return f"{value:.0%}"


def line_chart(lines: Sequence[Line], x: Axis, y: Axis, title: str) -> str:
    """Lines over common axes, with a legend where there are several."""
    parts = _frame(x, y)
    for k, line in enumerate(lines):
        if line.band:
            edge = [(px, high) for px, _, high in line.band] + [
                (px, low) for px, low, _ in reversed(line.band)
            ]
            parts.append(f'<polygon class="band s{k % SERIES}" points="{_path(edge, x, y)}"/>')
        points = _stepped(line.points, x) if line.steps else list(line.points)
        style = ' stroke-dasharray="5 4"' if line.dashed or k >= SERIES else ""
        parts.append(f'<polyline class="line s{k % SERIES}"{style} points="{_path(points, x, y)}"/>')
    return _legend([line.name for line in lines]) + _drawing(parts, title)


def scatter(
    groups: Sequence[tuple[str, Sequence[tuple[float, float, str]]]], x: Axis, y: Axis, title: str
) -> str:
    """Points with a text each, in groups of one colour; a line at y = 1 where that is inside."""
    parts = _frame(x, y)
    if y.low < 1 < y.high:
        level = _down(y.place(1.0))
        parts.append(
            f'<line class="even" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{level:.1f}" y2="{level:.1f}"/>'
        )
    for k, (_, points) in enumerate(groups):
        for px, py, text in points:
            place = f'cx="{_along(x.place(px)):.1f}" cy="{_down(y.place(py)):.1f}"'
            parts.append(
                f'<circle class="dot s{k % SERIES}" {place} r="4"><title>{escape(text)}</title></circle>'
            )
    return _legend([name for name, _ in groups]) + _drawing(parts, title)


def heat_map(
    rows: Sequence[str], columns: Sequence[str], cells: Sequence[Sequence[float | None]], title: str
) -> str:
    """Shares from 0 to 1 as shades, each with its number."""
    left, top, wide, high = 120, 22, max(44, min(90, 500 // max(len(columns), 1))), 24
    parts = []
    for k, name in enumerate(columns):
        place = f'x="{left + (k + 0.5) * wide:.0f}" y="{top - 7}" text-anchor="middle"'
        parts.append(f'<text class="tick" {place}>{escape(name)}</text>')
    for r, (name, values) in enumerate(zip(rows, cells, strict=True)):
        y = top + r * high
        parts.append(
            f'<text class="tick" x="{left - 8}" y="{y + 16}" text-anchor="end">{escape(name)}</text>'
        )
        for k, value in enumerate(values):
            place = f'x="{left + k * wide}" y="{y}" width="{wide - 2}" height="{high - 2}"'
            if value is None:
                parts.append(f'<rect class="none" {place}/>')
                continue
            parts.append(f'<rect class="cell" fill-opacity="{0.06 + 0.94 * value:.2f}" {place}/>')
            tone = "light" if value > 0.45 else "tick"
            middle = f'x="{left + (k + 0.5) * wide - 1:.0f}" y="{y + 16}" text-anchor="middle"'
            parts.append(f'<text class="{tone}" {middle}>{value:.0%}</text>')
    size = (left + len(columns) * wide + 8, top + len(rows) * high + 6)
    return _drawing(parts, title, size)


def bars(rows: Sequence[tuple[str, float, float | None, float | None, str]], title: str) -> str:
    """Horizontal bars with an interval each and a text behind: name, value, low, high, text."""
    left, high, room = 190, 24, 130
    most = max((value for _, value, *_ in rows), default=1.0) or 1.0
    scale = (WIDTH - left - room) / most
    parts = []
    for k, (name, value, low, top, text) in enumerate(rows):
        y = 4 + k * high
        parts.append(
            f'<text class="tick" x="{left - 8}" y="{y + 15}" text-anchor="end">{escape(name)}</text>'
        )
        mark = "own" if k == 0 else "other"
        parts.append(
            f'<rect class="{mark}" x="{left}" y="{y}" width="{value * scale:.1f}" height="{high - 6}"/>'
        )
        if low is not None and top is not None:
            ends = f'x1="{left + low * scale:.1f}" x2="{left + min(top, most) * scale:.1f}"'
            parts.append(f'<line class="error" {ends} y1="{y + 9}" y2="{y + 9}"/>')
        at = left + value * scale + 8
        parts.append(f'<text class="tick" x="{at:.1f}" y="{y + 15}">{escape(text)}</text>')
    return _drawing(parts, title, (WIDTH, 8 + len(rows) * high))


def _frame(x: Axis, y: Axis) -> list[str]:
    parts = []
    for value in y.ticks():
        level = _down(y.place(value))
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{level:.1f}" y2="{level:.1f}"/>'
        )
        text = f'x="{LEFT - 6}" y="{level + 4:.1f}" text-anchor="end"'
        parts.append(f'<text class="tick" {text}>{escape(y.form(value))}</text>')
    for value in x.ticks():
        at = _along(x.place(value))
        text = f'x="{at:.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle"'
        parts.append(f'<text class="tick" {text}>{escape(x.form(value))}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(
        f'<text class="title" x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x.title)}</text>'
    )
    turned = f'transform="translate(13 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)"'
    parts.append(f'<text class="title" {turned} text-anchor="middle">{escape(y.title)}</text>')
    return parts


def _legend(names: Sequence[str]) -> str:
    """Beside the drawing, so that it covers no line and wraps on a phone."""
    keys = (
        f'<span class="key s{k % SERIES}{" again" if k >= SERIES else ""}"></span>{escape(name)}'
        for k, name in enumerate(names)
    )
    return f'<p class="keys">{" ".join(keys)}</p>' if len(names) > 1 else ""


def _drawing(parts: Sequence[str], title: str, size: tuple[float, float] = (WIDTH, HEIGHT)) -> str:
    box = f'viewBox="0 0 {size[0]:g} {size[1]:g}"'
    return f'<svg {box} role="img" aria-label="{escape(title, quote=True)}">{"".join(parts)}</svg>'


def _stepped(points: Sequence[Point], x: Axis) -> list[Point]:
    found: list[Point] = []
    for px, py in points:
        if px > x.high:
            break
        if found:
            found.append((px, found[-1][1]))
        found.append((px, py))
    if found and found[-1][0] < x.high:
        found.append((x.high, found[-1][1]))
    return found


def _path(points: Sequence[Point], x: Axis, y: Axis) -> str:
    inside = ((min(max(x.place(px), 0.0), 1.0), min(max(y.place(py), 0.0), 1.0)) for px, py in points)
    return " ".join(f"{_along(px):.1f},{_down(py):.1f}" for px, py in inside)


def _along(share: float) -> float:
    return LEFT + share * (WIDTH - LEFT - RIGHT)


def _down(share: float) -> float:
    return HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)


def _round_step(rough: float) -> float:
    size = 10.0 ** math.floor(math.log10(rough))
    return next(size * k for k in (1, 2, 2.5, 5, 10) if size * k >= rough - 1e-12)
