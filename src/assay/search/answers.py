"""What is taken from a model's answer in a search: a file, edits of a file, or ideas.

Answers are texts of strangers. Whatever they hold, these functions return something that can be written down,
of bounded size, or raise `Unusable` with one line that says why. Not covered: whether a kernel is any good.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.candidates import candidate_from_source
from assay.llm import extract
from assay.records import UserError
from assay.search.protocol import NewIdea

MOST_IDEAS = 8
TITLE_CHARACTERS, FIELD_CHARACTERS, NOTE_CHARACTERS = 120, 1000, 200
LEAST_GAIN, MOST_GAIN = 0.01, 1000.0
"""A prediction outside is none."""
_MOST_WORDS = 4 * FIELD_CHARACTERS
_MOST_ENTRIES = 8 * MOST_IDEAS
_MOST_BLANK_LINES = 100
_MOST_FENCE_CHARACTERS = 200
_WIDE_CHARACTERS = 200
_WIDE = re.compile(rf"[ \t]{{{_WIDE_CHARACTERS},}}")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]+")


class Unusable(Exception):
    """Nothing can be made of this answer; the message says why, in one line."""


@dataclass(frozen=True, slots=True)
class Written:
    """A candidate that can be read, and the suffix of its file."""

    source: str
    suffix: str


def storable(text: str) -> str:
    """UTF-8 cannot write half of a surrogate pair."""
    return text.encode("utf-8", "replace").decode()


def one_line(text: str, most: int) -> str:
    """Without line breaks and control characters, at most so long."""
    line = " ".join(storable(text[: 4 * most]).translate(_SPACED).split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


_SPACED = dict.fromkeys([*range(32), *range(127, 160)], " ")


def plain(text: str) -> str:
    """Without control characters, and without what no file needs: hundreds of blank lines or of spaces, and
    fences as long as books. The patterns that look for kernels take the square of their length.
    """
    kept, blank = [], 0
    for line in _CONTROL.sub("", storable(text)).split("\n"):
        blank = 0 if line.strip() else blank + 1
        too_long = len(line) > _MOST_FENCE_CHARACTERS and line.lstrip().startswith(("```", "~~~"))
        if blank <= _MOST_BLANK_LINES and not too_long:
            line = line if len(line) < _WIDE_CHARACTERS else _WIDE.sub(" ", line)
            kept.append(line if not blank else "")
    return "\n".join(kept)


def whole_file(text: str) -> Written:
    """The kernel of an answer that holds all of it."""
    found = extract(plain(text))
    return _readable(found.source, found.suffix)


def _readable(source: str, suffix: str) -> Written:
    try:
        candidate_from_source(source, "the answer", suffix)
    except UserError as error:
        raise Unusable(one_line(f"no kernel in the answer: {error}", FIELD_CHARACTERS)) from error
    return Written(source, suffix)


_MARKERS = {
    "lines": re.compile(r"@@ ?(?P<name>search|replace|end)(?: ?@@)?", re.IGNORECASE),
    "arrows": re.compile(
        r"<{5,9} ?(?P<search>search)|(?P<replace>={5,9})|(?P<end>>{5,9}) ?\w*", re.IGNORECASE
    ),
}
"""Ours, and one that many models know from elsewhere. An edit ends in the style it began in."""
_LONGEST_MARKER = 40


@dataclass(slots=True)
class _Edit:
    style: str
    old: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    part: str = "search"
    """Which of its markers came last."""


def edited(text: str, parent: str, suffix: str) -> Written:
    """The parent with the answer's edits, or the whole file that the answer holds instead of them."""
    edits = list(_edits(plain(text).split("\n")))
    if not edits:
        return whole_file(text)
    lines = parent.replace("\r\n", "\n").split("\n")
    for number, edit in enumerate(edits, 1):
        if edit.part != "end":
            missing = "REPLACE" if edit.part == "search" else "END"
            raise Unusable(f"edit {number} of {len(edits)} is cut short: it has no {missing}")
        lines = _applied(lines, edit, f"edit {number} of {len(edits)}")
    return _readable("\n".join(lines), suffix)


def _edits(lines: list[str]) -> Iterator[_Edit]:
    current: _Edit | None = None
    for line in lines:
        style, marker = _marker(line)
        if current is not None and style != current.style:
            marker = ""
        if marker == "search":
            if current is not None:
                yield current
            current = _Edit(style)
        elif current is None:
            continue
        elif marker == "replace" and current.part == "search":
            current.part = "replace"
        elif marker == "end" and current.part == "replace":
            current.part = "end"
            yield current
            current = None
        else:
            (current.old if current.part == "search" else current.new).append(line)
    if current is not None:
        yield current


def _marker(line: str) -> tuple[str, str]:
    """Style and name of the marker that the line is; empty if it is none."""
    if not line.lstrip().startswith(("@@", "<", "=", ">")):
        return "", ""
    words = " ".join(line[:_LONGEST_MARKER].split())
    for style, pattern in _MARKERS.items():
        if found := pattern.fullmatch(words):
            named = found.groupdict()
            return style, (named.get("name") or next(name for name, text in named.items() if text)).lower()
    return "", ""


def _applied(lines: list[str], edit: _Edit, which: str) -> list[str]:
    old, new = _unfenced(edit.old), _unfenced(edit.new)
    if not any(line.strip() for line in old):
        raise Unusable(f"{which} searches for nothing")
    place = _place(lines, old)
    quoted = one_line(next(line for line in old if line.strip()), 80)
    if place is None:
        loose = _place([line.strip() for line in lines], [line.strip() for line in old])
        hint = "" if loose is None else " (they are, with other spacing)"
        raise Unusable(f"{which}: the lines from {quoted!r} on are not in the file{hint}")
    if _place(lines, old, place + 1) is not None:
        raise Unusable(f"{which}: the lines from {quoted!r} on are in the file more than once")
    return [*lines[:place], *new, *lines[place + len(old) :]]


def _place(lines: list[str], old: list[str], start: int = 0) -> int | None:
    """The line they begin at. Lines of spaces alone are empty ones, as in `plain`."""
    whole = "".join(f"\n{line if line.strip() else ''}" for line in lines[start:]) + "\n"
    at = whole.find("".join(f"\n{line if line.strip() else ''}" for line in old) + "\n")
    return None if at < 0 else start + whole.count("\n", 0, at)


def _unfenced(lines: list[str]) -> list[str]:
    """Without a fence around all of it."""
    if len(lines) >= 2 and lines[0].lstrip().startswith("```") and lines[-1].strip() == "```":
        return lines[1:-1]
    return lines


_PLAN = re.compile(r"(?:change|plan|summary|note) ?: ?(.+)", re.IGNORECASE)
_DECORATION = "#*_->` \t"
_PLAN_CHARACTERS, _PLAN_LINES = 20_000, 200


def plan_line(text: str) -> str:
    """The line of an answer that says what it does; empty where none does."""
    first = ""
    fence = ""
    for line in plain(text[:_PLAN_CHARACTERS]).split("\n")[:_PLAN_LINES]:
        stripped = line.strip()
        if fence:
            fence = "" if stripped.startswith(fence) else fence
        elif stripped.startswith(("```", "~~~")):
            fence = stripped[:3]
        elif _marker(line)[1]:
            break
        else:
            words = one_line(stripped.strip(_DECORATION).replace("**", ""), _MOST_WORDS)
            if said := _PLAN.fullmatch(words):
                return one_line(said[1], NOTE_CHARACTERS)
            first = first or (words if " " in words and not words.endswith(":") else "")
    return one_line(first, NOTE_CHARACTERS)


def ideas_in(text: str) -> tuple[NewIdea, ...]:
    """As JSON, or as a list with fields; at most MOST_IDEAS, those with the same title once."""
    clean = plain(text)
    found = _json_ideas(clean) or _listed_ideas(clean)
    ideas: dict[str, NewIdea] = {}
    for entry in found:
        idea = _idea(entry)
        if idea is not None:
            ideas.setdefault(title_key(idea.title), idea)
    return tuple(ideas.values())[:MOST_IDEAS]


def title_key(title: str) -> str:
    """Equal for titles that differ in spelling alone."""
    return re.sub(r"\W+", " ", title).strip().lower()


_FIELDS = {
    "title": ("title", "name", "idea"),
    "hypothesis": ("hypothesis", "claim", "why", "rationale"),
    "mechanism": ("mechanism", "how", "change", "implementation", "description", "approach"),
    "gain": ("predicted gain", "predicted speedup", "expected gain", "expected speedup", "gain", "speedup"),
    "risk": ("risk", "risks"),
}
_FIELD_OF = {word: name for name, words in _FIELDS.items() for word in words}


def _idea(entry: Mapping[str, str]) -> NewIdea | None:
    title = one_line(entry.get("title", "").strip(_DECORATION), TITLE_CHARACTERS)
    said = {
        name: one_line(entry.get(name, ""), FIELD_CHARACTERS) for name in ("hypothesis", "mechanism", "risk")
    }
    body = said["hypothesis"] or said["mechanism"] or one_line(entry.get("rest", ""), FIELD_CHARACTERS)
    title = title or one_line(body, TITLE_CHARACTERS)
    if not title_key(title) or not any(letter.isalpha() for letter in title):
        return None
    if not body and "gain" not in entry:
        return None
    risk = f" Risk: {said['risk']}" if said["risk"] else ""
    mechanism = one_line(f"{said['mechanism']}{risk}".strip(), FIELD_CHARACTERS)
    return NewIdea(title, body or title, mechanism, read_gain(entry.get("gain", "")))


def _json_ideas(text: str) -> list[dict[str, str]]:
    for opening, closing in ("[]", "{}"):
        start, end = text.find(opening), text.rfind(closing)
        if start < 0 or end < start:
            continue
        try:
            value = json.loads(text[start : end + 1])
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            value = next((inner for inner in value.values() if _holds_objects(inner)), [value])
        found = [_json_idea(entry) for entry in value[:_MOST_ENTRIES] if isinstance(entry, dict)]
        if any(found):
            return found
    return []


def _holds_objects(value: Any) -> bool:
    return isinstance(value, list) and any(isinstance(item, dict) for item in value)


def _json_idea(entry: dict[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in entry.items():
        name = _FIELD_OF.get(key.replace("_", " ").strip().lower())
        if name is not None and name not in found and isinstance(value, str | int | float):
            found[name] = str(value)
    return found


_HEADING = re.compile(r"idea ?(?:#? ?\d{1,4} ?[.):\u2013\u2014-]*|:) ?(.*)", re.IGNORECASE)
_NUMBERED = re.compile(r"\d{1,4} ?[.):] ?(.+)")
_FIELD_WORDS = "|".join(sorted(_FIELD_OF.keys() - {"idea"}, key=len, reverse=True))
_NAMED = re.compile(rf"({_FIELD_WORDS}) ?(?:\([^()]{{0,60}}\))? ?[:=] ?(.*)", re.IGNORECASE)
_AFTER_TITLE = re.compile(r": | [\u2013\u2014-] ")


def _listed_ideas(text: str) -> list[dict[str, str]]:
    """Entries begin with `Idea 3: ...`; where no line does, with `3. ...`, or with a field seen before."""
    lines = [_bare(line) for line in text.split("\n")]
    headed = any(_HEADING.fullmatch(line) for line in lines)
    entries: list[dict[str, str]] = []
    current = "rest"
    for line in lines:
        begun = (_HEADING if headed else _NUMBERED).fullmatch(line)
        named = _NAMED.fullmatch(begun[1] if begun else line)
        if named:
            current = _FIELD_OF[named[1].lower()]
        if begun and not named:
            entries.append(_titled(begun[1], whole=headed))
            current = "rest"
        elif named and (begun or not entries or (not headed and entries[-1].get(current))):
            entries.append({current: named[2]})
        elif entries:
            said = named[2] if named else line
            before = entries[-1].get(current, "")
            entries[-1][current] = f"{before} {said}".strip() if len(before) < _MOST_WORDS else before
        if len(entries) > _MOST_ENTRIES:
            break
    return entries


def _bare(line: str) -> str:
    """Without marks of lists, headings and emphasis, and with single spaces."""
    words = " ".join(line[:_MOST_WORDS].split()).lstrip(_DECORATION)
    return words.replace("**", "").replace("__", "")


def _titled(text: str, *, whole: bool) -> dict[str, str]:
    """A title, and what is said behind it on the same line."""
    parts = [text] if whole else _AFTER_TITLE.split(text, maxsplit=1)
    return {"title": parts[0], "rest": parts[1] if len(parts) > 1 else ""}


_NUMBER = r"([+-]?\d{1,9}(?:[.,]\d{1,9})?)"
_UNIT = r"(%|percent|x|\u00d7|times)?"
_GAIN = re.compile(
    rf"{_NUMBER} ?{_UNIT}(?: ?(?:-|\u2013|to) ?{_NUMBER})? ?{_UNIT}",
    re.IGNORECASE,
)
_EXPONENT = re.compile(r"\d*e[+-]?\d", re.IGNORECASE)


def read_gain(text: str) -> float | None:
    """Of speed: 1.3, 1.3x, 30 %, 1.2 to 1.5; the middle of a range. None where nothing finite is said."""
    words = one_line(text, _MOST_WORDS)
    found = _GAIN.search(words)
    if found is None or _EXPONENT.match(words, found.end(1)):
        return None
    low, high = found[1], found[3] or found[1]
    percent = (found[4] or found[2] or "").lower() in ("%", "percent")
    numbers = [float(number.replace(",", ".")) for number in (low, high)]
    gains = [1 + number / 100 for number in numbers] if percent else numbers
    if not all(LEAST_GAIN <= gain <= MOST_GAIN for gain in gains):
        return None
    return math.sqrt(gains[0] * gains[1])
