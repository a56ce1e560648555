"""The folder through which a search asks people and coding agents, and they answer.

    0007-prompt.md      what is asked, and the name of the file to answer with
    0007-answer.py      the answer; .cu or .cpp as well; it stays here when it is taken
    0007-skip           nobody will answer; its first line may say why
    0007-claimed        an agent is at work on it
    0007-withdrawn.md   the prompt, once nobody waits for its answer any more
    inject/NAME.py      a candidate that nobody asked for, at any time
    taken/NAME.py       the same, once it is taken

An answer is taken when it has something in it and has lain unchanged for a second. That is one rule for
editors, copies and our own tools, which write under a hidden name and rename. Not covered: a copy that
pauses for longer than a second half way, and two searches in one folder at once.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from assay.candidates import SUFFIXES
from assay.records import UserError
from assay.search.protocol import Draft

SETTLED_S = 1.0
CLAIMED_S = 3600.0
"""How long an agent may be at work before others are shown the same prompt."""
MOST_BYTES = 1_000_001
"""One byte more than a candidate may have: what is longer is read so far, and refused by the judge."""
INJECT, TAKEN = "inject", "taken"
NOTE_CHARACTERS = 200
_PROMPT = re.compile(r"(\d{4,9})-prompt\.md")
_PLAIN_NAME = re.compile(r"[^\w.-]+")


@dataclass(frozen=True, slots=True)
class Declined:
    """Somebody says that there will be no answer."""

    why: str


@dataclass(frozen=True, slots=True)
class Question:
    """An open prompt."""

    number: int
    text: str


def open_folder(folder: Path) -> Path:
    """Make it if need be; told before anything is asked where it cannot be used."""
    try:
        (folder / INJECT).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise UserError(f"cannot use {folder} as a queue: {error.strerror}; name another folder") from error


# ---- the side that asks


def ask(folder: Path, number: int, text: str) -> None:
    """Write a prompt; its first line says which it is. One that was withdrawn is open again."""
    if asked_before(folder, number).partition("\n")[0] != text.partition("\n")[0]:
        _part(folder, number, "claimed").unlink(missing_ok=True)  # that was work on another prompt
    _write_whole(_part(folder, number, "prompt.md"), text)
    _part(folder, number, "withdrawn.md").unlink(missing_ok=True)


def asked_before(folder: Path, number: int) -> str:
    """The text of the prompt that an answer with this number belongs to; empty if there is none."""
    for name in ("prompt.md", "withdrawn.md"):
        with contextlib.suppress(FileNotFoundError):
            return _read(_part(folder, number, name))
    return ""


def has_end(folder: Path, number: int) -> bool:
    """Whether an answer or a refusal lies there, complete or not."""
    return _part(folder, number, "skip").exists() or any(_answers(folder, number))


def look(folder: Path, number: int) -> Draft | Declined | None:
    """What has become of a prompt; None while it is open."""
    for path in _answers(folder, number):
        if _is_settled(path):
            return _draft(path, f"queue_{number:04d}")
    with _usable(folder), contextlib.suppress(FileNotFoundError):
        said = _read(_part(folder, number, "skip")).strip().splitlines()
        return Declined(said[0].strip()[:NOTE_CHARACTERS] if said else "")
    return None


def withdraw(folder: Path, number: int) -> None:
    """Nobody waits for an answer any more."""
    with _usable(folder), contextlib.suppress(FileNotFoundError):  # somebody has cleared the folder
        os.replace(_part(folder, number, "prompt.md"), _part(folder, number, "withdrawn.md"))


def injected(folder: Path) -> list[Draft]:
    """Candidates that nobody asked for: each is returned once, and lies in `taken` afterwards."""
    place = folder / INJECT
    if not place.is_dir():
        return []
    with _usable(folder):
        found = [path for path in sorted(place.iterdir()) if _is_candidate(path) and _is_settled(path)]
        return [_draft(_set_aside(path, folder / TAKEN), path.stem) for path in found]


# ---- the side that answers


def open_requests(folder: Path) -> list[int]:
    """Numbers of prompts without an answer, in order."""
    if not folder.is_dir():
        raise UserError(f"{folder}: no such queue: name the folder that the search was given")
    found = (_PROMPT.fullmatch(path.name) for path in folder.iterdir() if path.is_file())
    return sorted(number for one in found if one and not has_end(folder, number := int(one[1])))


def claim(folder: Path) -> Question | None:
    """The first open prompt that nobody else is at work on; it is the caller's for CLAIMED_S."""
    for number in open_requests(folder):
        if not _mark(_part(folder, number, "claimed")):
            continue
        with contextlib.suppress(FileNotFoundError):  # withdrawn meanwhile
            return Question(number, _read(_part(folder, number, "prompt.md")))
    return None


def answer(folder: Path, number: int, source: str, suffix: str, note: str = "") -> Path:
    """Hand in an answer to an open prompt."""
    _require_open(folder, number)
    path = _part(folder, number, f"answer{_known(suffix)}")
    _write_whole(path, _with_note(source, path.suffix, note))
    return path


def decline(folder: Path, number: int, why: str = "") -> Path:
    """Say that there will be no answer to an open prompt."""
    _require_open(folder, number)
    path = _part(folder, number, "skip")
    _write_whole(path, f"{why}\n")
    return path


def inject(folder: Path, source: str, suffix: str, name: str, note: str = "") -> Path:
    """Hand in a candidate that nobody asked for."""
    open_folder(folder)
    plain = _PLAIN_NAME.sub("-", name).strip("-.") or "candidate"
    path = folder / INJECT / f"{plain}-{secrets.token_hex(3)}{_known(suffix)}"
    _write_whole(path, _with_note(source, path.suffix, note))
    return path


# ---- files


def _part(folder: Path, number: int, name: str) -> Path:
    return folder / f"{number:04d}-{name}"


def _answers(folder: Path, number: int) -> list[Path]:
    places = (_part(folder, number, f"answer{suffix}") for suffix in SUFFIXES)
    return [path for path in places if path.is_file()]


def _is_candidate(path: Path) -> bool:
    return path.suffix in SUFFIXES and not path.name.startswith(".") and path.is_file()


def _is_settled(path: Path) -> bool:
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    # A clock ahead of ours, on another machine say, must not keep an answer waiting for ever.
    return found.st_size > 0 and abs(time.time() - found.st_mtime) >= SETTLED_S


def _read(path: Path) -> str:
    """At most so much; what is no UTF-8 is left to the judge to complain about."""
    with path.open("rb") as stream:
        return stream.read(MOST_BYTES).decode("utf-8-sig", "replace")


def _draft(path: Path, name: str) -> Draft:
    with _usable(path):
        source = _read(path)
    return Draft(source, SUFFIXES[path.suffix], name, note=_note(source, path.suffix))


def _note(source: str, suffix: str) -> str:
    """The first line if it is a comment that is meant for people."""
    first = source.lstrip("\n").split("\n", 1)[0].strip()
    mark = "#" if suffix == ".py" else "//"
    said = first.removeprefix(mark).strip()
    if not first.startswith(mark) or first.startswith("#!") or said.startswith(("assay:", "-*-")):
        return ""
    return said[:NOTE_CHARACTERS]


def _with_note(source: str, suffix: str, note: str) -> str:
    words = " ".join(note.split())[:NOTE_CHARACTERS]
    return f"{'#' if suffix == '.py' else '//'} {words}\n{source}" if words else source


def _known(suffix: str) -> str:
    if suffix not in SUFFIXES:
        raise UserError(f"{suffix!r} is no suffix of a candidate: give one of {', '.join(SUFFIXES)}")
    return suffix


def _require_open(folder: Path, number: int) -> None:
    if number not in open_requests(folder):
        raise UserError(f"{folder}: request {number} is not open: it was answered, declined or withdrawn")


def _set_aside(path: Path, place: Path) -> Path:
    place.mkdir(exist_ok=True)
    target = place / path.name
    while target.exists():
        target = place / f"{path.stem}-{secrets.token_hex(3)}{path.suffix}"
    return path.rename(target)


def _mark(path: Path) -> bool:
    """Whether the mark is ours now; one that is too old is taken over."""
    with contextlib.suppress(FileNotFoundError):
        if time.time() - path.stat().st_mtime > CLAIMED_S:
            path.unlink()
    with _usable(path):
        try:
            path.touch(exist_ok=False)
        except FileExistsError:
            return False
    return True


def _write_whole(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with _usable(path):
        try:
            temporary.write_bytes(text.encode("utf-8", "replace"))
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _usable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"{path} cannot be used ({error.strerror}): check the queue folder") from error
