"""What a view of a search is shown, and what its user says back.

Plain data: the driver makes a new snapshot whenever something changed and hands it to a view; commands come
back through a queue. Not covered: how any of it looks.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from assay.records import Interval

IDEA, CANDIDATE = "idea", "candidate"
"""Kinds of nodes. Ideas and candidates are numbered apart."""

PIN, UNPIN, BAN, UNBAN, INJECT, STOP = "pin", "unpin", "ban", "unban", "inject", "stop"
"""Kinds of commands."""

NodeKey = tuple[str, int]
"""The kind of a node and its number."""


@dataclass(frozen=True, slots=True)
class Command:
    """What the user asks of the driver."""

    kind: str
    candidate: int | None = None
    """Which one to pin, unpin, ban or unban."""
    path: str = ""
    """Which file to inject, as it was typed."""


@dataclass(frozen=True, slots=True)
class RungShown:
    """A baseline."""

    name: str
    time_us: float | None
    absent: str = ""
    """Why there is no time."""


@dataclass(frozen=True, slots=True)
class LimitShown:
    """What the device cannot go below."""

    floor_us: float
    percent: float | None = None
    """How much of it the best reaches; None where there is no best, or no time of it."""


@dataclass(frozen=True, slots=True)
class BestShown:
    """The fastest candidate that is right."""

    id: int
    name: str
    ratio: Interval | None
    """The best baseline's time over its own."""
    time_us: float | None
    note: str = ""
    proposer: str = ""
    operator: str = ""


@dataclass(frozen=True, slots=True)
class BudgetShown:
    """One budget."""

    name: str
    used: float | None
    """None where it is not known."""
    limit: float | None
    """None where there is none."""
    unit: str = ""
    """"s", "$" and "%" are written as such; any other word follows its number."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many of each so far."""

    asked: int = 0
    drafted: int = 0
    duplicates: int = 0
    judged: int = 0
    right: int = 0
    faster: int = 0
    wrong: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Activity:
    """What the device does now."""

    text: str = ""
    """Such as "judging #12 softmax_3"; empty while it does nothing."""
    began_s: float | None = None
    """Seconds into the search; the view counts on from there."""
    queues: tuple[tuple[str, int], ...] = ()
    """What waits, by name: ("to judge", 3)."""
    busy: float | None = None
    """Which share of the search so far the device was at work."""


@dataclass(frozen=True, slots=True)
class ProposerShown:
    """One proposer."""

    name: str
    open: int
    answered: int
    cost_usd: float | None
    """None where it is not known."""


@dataclass(frozen=True, slots=True)
class TreeNode:
    """An idea or a candidate."""

    id: int
    kind: str
    label: str
    parent: NodeKey | None = None
    """One whose parent is not in the tree stands at its root."""
    status: str = ""
    """A verdict's status, or "waiting", "judging", "duplicate"; for an idea any few words."""
    ratio: Interval | None = None
    pinned: bool = False
    banned: bool = False
    is_best: bool = False
    age_s: float | None = None
    """How long ago it was made; None where nobody knows."""
    note: str = ""
    """An idea's hypothesis; what is different about a candidate."""

    @property
    def key(self) -> NodeKey:
        return self.kind, self.id


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened."""

    number: int
    """Counts all events of the search, so that a view knows which ones it has shown."""
    elapsed_s: float
    text: str
    """One line, such as "#4 softmax_vector: passed, 1.31x (1.29-1.33) of compile, new best"."""


@dataclass(frozen=True)
class Snapshot:
    """A search at one moment."""

    problem: str = ""
    device: str = ""
    strategy: str = ""
    elapsed_s: float = 0.0
    ladder: tuple[RungShown, ...] = ()
    limit: LimitShown | None = None
    best: BestShown | None = None
    budgets: tuple[BudgetShown, ...] = ()
    counts: Counts = field(default_factory=Counts)
    activity: Activity = field(default_factory=Activity)
    proposers: tuple[ProposerShown, ...] = ()
    tree: tuple[TreeNode, ...] = ()
    """Siblings in the order in which they are shown."""
    events: tuple[Event, ...] = ()
    """The most recent ones, the newest last."""
    message: str = ""
    """What the driver says to the user, such as what became of a command."""
