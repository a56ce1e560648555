"""Lines of the live view: cleaned, cut to a width, in characters that the terminal can show.

Candidates and their names come from anywhere: nothing of theirs reaches the terminal as a control code. Not
covered: what the lines say.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.cells import cell_len
from rich.text import Text

from assay.cli import figures
from assay.records import Interval

Part = str | tuple[str, str]
"""Text, or text and a style."""

_MINUTE, _HOUR = 60, 3600
_NARROW_INTERVAL = 0.015
"""Below it, two decimals would show both ends of an interval as one number."""


@dataclass(frozen=True, slots=True)
class Symbols:
    """Single characters, but for `more`."""

    cursor: str
    best: str
    right: str
    wrong: str
    broken: str
    busy: str
    waiting: str
    duplicate: str
    idea: str
    more: str
    through: str
    branch: str
    last: str
    rule: str
    full: str
    empty: str
    between: str
    caret: str


UNICODE = Symbols(
    cursor="▸",
    best="★",
    right="✓",
    wrong="✗",
    broken="!",
    busy="▶",
    waiting="·",
    duplicate="=",
    idea="◇",
    more="…",
    through="│ ",
    branch="├╴",
    last="└╴",
    rule="─",
    full="█",
    empty="░",
    between="·",
    caret="▏",
)
ASCII = Symbols(
    cursor=">",
    best="*",
    right="+",
    wrong="x",
    broken="!",
    busy="~",
    waiting=".",
    duplicate="=",
    idea="o",
    more="...",
    through="| ",
    branch="|-",
    last="`-",
    rule="-",
    full="#",
    empty=".",
    between="|",
    caret="_",
)


class Pen:
    """Writes lines for one terminal."""

    def __init__(self, encoding: str) -> None:
        self.is_ascii = not _can_show(encoding)
        self.symbols = ASCII if self.is_ascii else UNICODE

    def clean(self, text: str) -> str:
        """One line without control codes, in characters that can be shown."""
        plain = clean(text)
        return plain.encode("ascii", "replace").decode() if self.is_ascii else plain

    def line(self, *parts: Part, style: str = "") -> Text:
        line = Text(style=style, no_wrap=True, end="")
        for part in parts:
            text, own = (part, "") if isinstance(part, str) else part
            line.append(self.clean(text), own or None)
        return line

    def fit(self, line: Text, width: int) -> Text:
        """Exactly so many cells: cut with a mark, or filled up with spaces."""
        fitted = line.copy()
        if fitted.cell_len > width:
            mark = self.symbols.more if width > len(self.symbols.more) else ""
            fitted.truncate(width - len(mark), overflow="crop")
            fitted.append(mark)
        return fitted.append(" " * (width - fitted.cell_len))

    def cut(self, text: str, width: int) -> str:
        return self.fit(self.line(text), width).plain.rstrip() if width > 0 else ""

    def ends(self, left: Text, right: Text, width: int) -> Text:
        """One text at each end of a line; the left one gives way."""
        room = max(0, width - right.cell_len - 1)
        return self.fit(self.fit(left, room).append(" ").append_text(right), width)

    def heading(self, title: str, width: int) -> Text:
        line = self.line((title, "bold"), " ")
        return self.fit(line.append(self.symbols.rule * max(0, width - line.cell_len), "dim"), width)

    def bar(self, value: float, largest: float, width: int) -> str:
        """Never empty, since nothing takes no time."""
        if not self.is_ascii:
            return figures.bar(value, largest, width)
        share = value / largest if largest > 0 else 0.0
        return self.symbols.full * min(width, max(1, round(width * share)))

    def gauge(self, share: float, width: int) -> str:
        full = min(width, max(0, int(width * share)))
        return self.symbols.full * full + self.symbols.empty * (width - full)


def clean(text: str) -> str:
    """One line that holds no control codes."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "?" for c in text)


def ratio_text(ratio: Interval) -> str:
    """1.23x (1.21-1.25), with as many decimals as tell the ends apart."""
    decimals = 2 if ratio.middle < 10 else 1 if ratio.middle < 100 else 0
    if ratio.middle < 10 and ratio.high - ratio.low < _NARROW_INTERVAL:
        decimals = 3
    middle, low, high = (f"{value:.{decimals}f}" for value in (ratio.middle, ratio.low, ratio.high))
    return f"{middle}x ({low}-{high})"


def comparison(ratio: Interval) -> str:
    """What an interval says against the best baseline."""
    if ratio.low > 1:
        return "faster"
    return "slower" if ratio.high < 1 else "no difference"


def time_text(time_us: float) -> str:
    if time_us < 1e3:
        return figures.microseconds(time_us)
    return f"{figures.digits(time_us / 1e3, 4)} ms" if time_us < 1e6 else f"{time_us / 1e6:.2f} s"


def duration(seconds: float) -> str:
    whole = int(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        minutes, rest = divmod(whole, _MINUTE)
        return f"{minutes} m {rest:02} s" if rest else f"{minutes} m"
    hours, rest = divmod(whole // _MINUTE, _MINUTE)
    return f"{hours} h {rest:02} m" if rest else f"{hours} h"


def amount(value: float, unit: str) -> str:
    """A number with its unit, the way each unit is read."""
    if unit == "s":
        return duration(value)
    if unit == "$":
        return f"${value:.2f}"
    if unit == "%":
        return figures.percent(value)
    for size, prefix in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            scale = 1e3 if prefix == "k" else size
            return f"{figures.digits(value / scale, 3)}{prefix} {unit}".rstrip()
    return f"{value:g} {unit}".rstrip()


def cost_text(cost_usd: float | None) -> str:
    return "cost unknown" if cost_usd is None else f"${cost_usd:.2f}"


def event_text(elapsed_s: float, text: str) -> str:
    return f"[{elapsed_s:6.1f} s] {text}"


def widest(texts: list[str]) -> int:
    return max((cell_len(text) for text in texts), default=0)


def _can_show(encoding: str) -> bool:
    shown = "".join(getattr(UNICODE, name) for name in Symbols.__slots__) + figures.bar(1, 3, 5)
    try:
        shown.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
