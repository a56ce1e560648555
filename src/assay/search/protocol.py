"""What proposers, strategies and the driver of a search say to each other.

A strategy decides what to ask for, a proposer answers with drafts, the judge says what they are worth. All of
it is plain data, and everything a strategy decides follows from the view and the number of the request: a
search that was killed is in the same state again when its archive is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from assay.archive import Transcript
from assay.problems import Problem
from assay.records import Interval, Passed, Verdict

NOTHING, RIGHT_PARENT, FAILED_PARENT, TWO_PARENTS, IDEA = "nothing", "right", "failed", "two", "idea"
"""What an operator starts from: nothing at all, a candidate that is right, one that is not, two that are
right, or an idea."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One way in which a proposer makes candidates."""

    proposer: str
    name: str
    needs: str

    @property
    def key(self) -> str:
        return f"{self.proposer}/{self.name}"


@dataclass(frozen=True, slots=True)
class Request:
    """What a strategy asks for."""

    id: int
    operator: Operator
    parents: tuple[int, ...] = ()
    """Numbers of candidates, in order; one where the operator needs a parent, two where it needs two."""
    idea: int | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """A candidate as proposed."""

    source: str
    suffix: str
    name: str
    actions: tuple[str, ...] = ()
    """How it was made, as a list that can be carried out again; empty where somebody wrote it."""
    note: str = ""
    """In a few words, what is different about it."""


@dataclass(frozen=True, slots=True)
class NewIdea:
    """A hypothesis in plain words."""

    title: str
    hypothesis: str
    mechanism: str
    predicted_gain: float | None
    """Of speed, over what it starts from: 1.3 is 30 % faster. None where nobody said."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What a proposer made of a request."""

    drafts: tuple[Draft, ...] = ()
    ideas: tuple[NewIdea, ...] = ()
    """Drafts of the same reply belong to the idea of the request, or to the first of these."""
    exchange: Transcript | None = None
    cost_usd: float | None = 0.0
    """None where it is not known."""
    trouble: str = ""
    """Why there is less than was asked for."""
    exhausted: bool = False
    """There is nothing more of this kind, from these parents."""
    learned: Mapping[str, str] = field(default_factory=dict)
    """Texts to be kept by name, handed back in every later view."""
    seconds: float | None = None
    """How long it took, where that is not what the driver sees."""


@dataclass(frozen=True, slots=True)
class Idea:
    """An idea of the archive."""

    id: int
    request: int
    parent: int | None
    new: NewIdea


@dataclass(frozen=True, eq=False)
class Member:
    """A candidate of the search with all that is known of it."""

    id: int
    request: int
    operator: Operator
    parents: tuple[int, ...]
    idea: int | None
    draft: Draft
    normal: str
    """A digest that comments, spacing and names do not change."""
    duplicate_of: int | None = None
    status: str | None = None
    """None until it is judged."""
    record: Mapping[str, Any] = field(default_factory=dict)
    verdict: Verdict | None = None
    seconds: float = 0.0

    @property
    def is_right(self) -> bool:
        return isinstance(self.verdict, Passed)

    @cached_property
    def ratio(self) -> Interval | None:
        """The best baseline's time over its own; None where it was not timed."""
        if isinstance(self.verdict, Passed) and self.verdict.speed is not None:
            return self.verdict.speed.ratio
        return None

    @property
    def middle(self) -> float:
        """What others have to beat: its ratio, or what it is ranked by where it has none."""
        return self.speed if self.ratio is None else self.ratio.middle

    @property
    def speed(self) -> float:
        """For ranking: the lower end of its ratio, so that noise wins nothing. 0 for what is not right, a
        little for what is right and untimed."""
        if self.ratio is not None:
            return self.ratio.low
        return 1e-6 if self.is_right else 0.0


@dataclass(frozen=True, eq=False)
class View:
    """A search as it stands. Nobody changes it; the driver makes a new one."""

    problem: Problem
    device: str
    """"cpu" or "cuda:0"."""
    members: tuple[Member, ...] = ()
    """In the order they came, duplicates among them."""
    ideas: tuple[Idea, ...] = ()
    asked: tuple[Request, ...] = ()
    """Every request so far, those without an answer among them."""
    exhausted: frozenset[int] = frozenset()
    """Numbers of requests whose answer said that there is nothing more."""
    open: frozenset[int] = frozenset()
    """Numbers of requests that have no answer yet."""
    costs: Mapping[int, float | None] = field(default_factory=dict)
    """What each answered request cost, in dollars."""
    waits: Mapping[int, float] = field(default_factory=dict)
    """How many seconds each answer took."""
    learned: Mapping[str, str] = field(default_factory=dict)
    pinned: frozenset[int] = frozenset()
    banned: frozenset[int] = frozenset()

    @cached_property
    def by_id(self) -> Mapping[int, Member]:
        return {member.id: member for member in self.members}

    @cached_property
    def judged(self) -> tuple[Member, ...]:
        return tuple(member for member in self.members if member.status is not None)

    @cached_property
    def ranked(self) -> tuple[Member, ...]:
        """Those that are right, not banned and no duplicates: the fastest first."""
        right = [m for m in self.judged if m.is_right and m.id not in self.banned]
        return tuple(sorted(right, key=lambda m: (-m.speed, m.id)))

    @property
    def best(self) -> Member | None:
        return self.ranked[0] if self.ranked else None

    def children(self, member: int) -> tuple[Member, ...]:
        return tuple(m for m in self.members if member in m.parents)

    def ancestry(self, member: Member) -> tuple[Member, ...]:
        """It and its first parents, back to where it began."""
        line = [member]
        while line[-1].parents:
            line.append(self.by_id[line[-1].parents[0]])
        return tuple(line)


class Proposer(Protocol):
    """Whoever makes candidates. `propose` is called from threads, several at once."""

    name: str
    operators: tuple[Operator, ...]

    def propose(self, request: Request, view: View) -> Reply: ...


class Strategy(Protocol):
    """Whoever decides what is asked for next."""

    name: str

    def next(self, number: int, view: View, operators: tuple[Operator, ...]) -> Request | None:
        """The request with this number; None if there is none until something ends."""
        ...
