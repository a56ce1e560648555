"""What a child may answer, as records: decoded strictly, because it may be forged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

from assay.records.codec import from_plain
from assay.records.errors import CandidateFailure, UserError

T = TypeVar("T")
MODES = ("cold", "warm", "idle")
"""How a call is timed: see stopwatch.py."""
AN_INPUT = "an input"
MOST_ITEMS = 4096
LONGEST_TEXT = 200
MOST_US = 1e12


@dataclass(frozen=True, slots=True)
class OutputFact:
    """One output tensor as the child describes it; only the mailbox's bytes are evidence."""

    type: str
    plain: bool
    device: str
    shape: tuple[int, ...]
    dtype: str
    delivered: bool
    lazy: bool = False
    """Elements share memory (an expanded view) or are yet to be conjugated: copying it out does the work."""
    aliases: str | None = None
    """What it shares its memory with."""
    as_specified: bool = False
    """It lies in the mailbox with the specification's strides, not in row-major order."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One call by the child's own clock."""

    device_us: float
    launch_us: float
    """Until the call returned."""
    host_us: float
    """Until it was done, where that was waited for; otherwise the same."""
    sm_mhz: float


def decode_sample(plain: Any) -> Sample | None:
    """A sample, or None where the child was given no stopwatch."""
    if plain is None:
        return None
    sample = decode(Sample, plain)
    if not all(
        0 <= value < MOST_US for value in (sample.device_us, sample.launch_us, sample.host_us, sample.sm_mhz)
    ):
        raise forged(f"times of {sample.device_us:g} and {sample.host_us:g} us")
    return sample


@dataclass(frozen=True, slots=True)
class Counted:
    """One operator or kernel that a call ran, as the child tells."""

    name: str
    calls: int
    time_us: float


def decode_counts(plain: Any) -> list[Counted]:
    """Rows of name, calls and microseconds."""
    if not isinstance(plain, list) or len(plain) > MOST_ITEMS:
        raise forged("not a list of counts")
    rows = []
    for row in plain:
        if not isinstance(row, list) or len(row) != 3:
            raise forged("not a count")
        counted = decode(Counted, dict(zip(("name", "calls", "time_us"), row, strict=True)))
        if not (0 <= counted.calls < MOST_US and 0 <= counted.time_us < MOST_US):
            raise forged("a count out of range")
        rows.append(counted)
    return rows


def decode_burst(answers: Any, count: int) -> list[dict[str, Any]]:
    """What is told of each of so many calls."""
    if not isinstance(answers, list) or len(answers) != count:
        raise forged("not an answer for each call")
    if not all(isinstance(answer, dict) for answer in answers):
        raise forged("an answer that is none")
    return answers


def decode(cls: type[T], plain: Any) -> T:
    texts = [v for v in plain.values() if isinstance(v, str)] if isinstance(plain, dict) else []
    if any(len(text) > LONGEST_TEXT or not text.isprintable() for text in texts):
        raise forged("a text that is too long or not printable")
    try:
        return from_plain(cls, plain, "answer")
    except UserError as error:
        raise forged(str(error)[:LONGEST_TEXT]) from error


def decode_list(cls: type[T], plain: Any) -> list[T]:
    if not isinstance(plain, list) or len(plain) > MOST_ITEMS:
        raise forged("not a list")
    return [decode(cls, item) for item in plain]


def decode_names(plain: Any) -> list[str]:
    if not isinstance(plain, list) or len(plain) > MOST_ITEMS:
        raise forged("not a list of names")
    if not all(isinstance(name, str) and len(name) <= LONGEST_TEXT and name.isprintable() for name in plain):
        raise forged("not a list of names")
    return plain


def printable(text: str) -> str:
    """Without control characters: a candidate's words end up on a person's terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


def forged(what: str) -> CandidateFailure:
    return CandidateFailure("rejected", "forged_message", f"the child's answer is malformed: {what}")
