"""Numbers and bars as text: as many digits as mean something, bars in eighths of a character."""

from __future__ import annotations

import math

from assay.records import Interval

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_PREFIXES = ("", "k", "M", "G", "T", "P")


def digits(value: float, count: int) -> str:
    """So many significant digits, never in powers of ten."""
    if not math.isfinite(value) or value == 0:
        return str(value)
    decimals = count - 1 - math.floor(math.log10(abs(value)))
    return f"{value:.{max(0, decimals)}f}"


def microseconds(time_us: float) -> str:
    return f"{digits(time_us, 4)} us"


def milliseconds(time_ms: float) -> str:
    return f"{digits(time_ms, 3)} ms" if time_ms < 1000 else f"{time_ms / 1000:.1f} s"


def percent(value: float) -> str:
    return f"{value:.0f} %" if value >= 10 else f"{value:.1f} %"


def amount(value: int, unit: str) -> str:
    """1230000, "B" as 1.23 MB."""
    power = 0 if value <= 0 else min(int(math.log10(value)) // 3, len(_PREFIXES) - 1)
    text = str(value) if power == 0 else digits(value / 1000**power, 3)
    return f"{text} {_PREFIXES[power]}{unit}"


def span(interval: Interval, count: int = 4) -> str:
    return f"{digits(interval.low, count)} to {digits(interval.high, count)}"


def bar(value: float, largest: float, width: int) -> str:
    """A bar of at most `width` characters; never empty, since nothing takes no time."""
    eighths = max(1, round(8 * width * value / largest)) if largest > 0 else 1
    full, rest = divmod(min(eighths, 8 * width), 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")
