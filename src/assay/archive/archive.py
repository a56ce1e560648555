"""One run's file, read and written.

Verdicts are kept as the records they are; columns beside them are for looking things up. Not covered: two
drivers writing at once.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import fcntl
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from assay.archive.schema import bring_up_to_date
from assay.records import About, UserError, Verdict, digest, to_json
from assay.records.decoding import decode_verdict

NO_VERDICT = "no_verdict"
"""The status of a candidate on which the judge itself failed; its record says how."""
TABLES = (
    *("facts", "sources", "problems", "candidates", "verdicts", "transcripts"),
    *("requests", "ideas", "exchanges", "lineage", "builds", "orders", "learned"),
)
UNREADABLE = "unreadable"
"""The status of a text that is no candidate."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A problem of the run."""

    name: str
    digest: str
    path: str
    about: About
    source: str
    trouble: str = ""
    """Why it cannot be judged; empty if it can."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """How a model came to say what it said."""

    model: str
    system: str
    prompt: str
    answer: str
    """In full; where the endpoint refused the prompt, its words."""
    tokens_in: int | None
    tokens_out: int | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Planned:
    """A candidate before it is judged."""

    problem: str
    sample: int
    turn: int
    name: str
    suffix: str
    source: str
    parent: int | None = None
    cost_usd: float | None = None
    id: int = 0
    """Given by the archive."""
    transcript: Transcript | None = None
    """Where a model wrote it; not read back with it, see `Archive.transcript`."""


@dataclass(frozen=True, slots=True)
class Judged:
    """A candidate and what became of it."""

    candidate: Planned
    judged_at: str
    worker: str
    seconds: float
    status: str
    record: Mapping[str, Any]

    def checked(self) -> Judged:
        """This, if what it says it is and what its record says agree; else a ValueError."""
        known = self.status in (NO_VERDICT, UNREADABLE)
        if not isinstance(self.record, dict) or (not known and self.record.get("status") != self.status):
            raise ValueError(f"called {self.status}, its record says otherwise")
        return self

    def verdict(self) -> Verdict | None:
        """None where there is none."""
        return None if self.status in (NO_VERDICT, UNREADABLE) else decode_verdict(self.record)


class Archive:
    """An open run."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        if not create and (not path.is_file() or not path.stat().st_size):
            raise UserError(f"{path}: there is no run: name a file of `assay eval` or `assay search`")
        self.path = path
        self._lock: IO[str] | None = None
        if create:
            self._lock = _alone(path)
        self._db = sqlite3.connect(path, isolation_level=None)
        try:
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA foreign_keys = ON")
            bring_up_to_date(self._db, str(path))
            self._check_whole()
        except (sqlite3.DatabaseError, ValueError) as error:
            self.close()
            raise UserError(f"{path}: is no run, or is damaged ({error}): restore it from a copy") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()
        if self._lock is not None:
            self._lock.close()

    def _check_whole(self) -> None:
        told = self._db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if told != "ok":
            raise sqlite3.DatabaseError(told)
        for name in TABLES:
            self._db.execute(f"SELECT 1 FROM {name} LIMIT 1")
        self.facts()

    def facts(self) -> dict[str, Any]:
        """What is known of the run as a whole."""
        return {name: json.loads(value) for name, value in self._db.execute("SELECT name, value FROM facts")}

    def set_fact(self, name: str, value: Any) -> None:
        self._db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, json.dumps(value)))

    def add_problem(self, problem: Listed) -> None:
        """Once; the same name with another digest is another problem, and refused."""
        known = self._db.execute("SELECT digest FROM problems WHERE name = ?", (problem.name,)).fetchone()
        if known is not None and known[0] != problem.digest:
            raise UserError(f"{self.path}: {problem.name} has changed since the run began: start a new run")
        if known is None:
            about = problem.about
            row = (problem.name, problem.digest, problem.path, about.category, about.regime, about.level)
            with self._together():
                source = self._keep(problem.source)
                self._db.execute(
                    "INSERT INTO problems VALUES (?,?,?,?,?,?,?,?)", (*row, source, problem.trouble)
                )

    def problems(self) -> list[Listed]:
        rows = self._db.execute(
            "SELECT p.name, p.digest, path, category, regime, level, s.text, trouble FROM problems p "
            "JOIN sources s ON s.digest = p.source ORDER BY p.rowid"
        )
        return [Listed(n, d, path, About(c, r, lv), text, t) for n, d, path, c, r, lv, text, t in rows]

    def add(self, candidate: Planned) -> int:
        """The candidate's number; one that is known already keeps its own."""
        place = (candidate.problem, candidate.sample, candidate.turn)
        with self._together():
            source = self._keep(candidate.source)
            known = self._db.execute(
                "SELECT id, source FROM candidates WHERE problem = ? AND sample = ? AND turn = ?", place
            ).fetchone()
            if known is not None:
                if known[1] != source:
                    which = f"sample {candidate.sample}, turn {candidate.turn} of {candidate.problem}"
                    raise UserError(f"{self.path}: {which} has changed since the run began: start a new run")
                return int(known[0])
            row = (*place, candidate.parent, candidate.name, candidate.suffix, source, candidate.cost_usd)
            added = self._db.execute(
                "INSERT INTO candidates (problem, sample, turn, parent, name, suffix, source, cost_usd) "
                "VALUES (?,?,?,?,?,?,?,?)",
                row,
            )
            number = int(added.lastrowid or 0)
            if candidate.transcript is not None:
                self._keep_transcript(number, candidate.transcript)
        return number

    def _keep_transcript(self, candidate: int, said: Transcript) -> None:
        texts = (self._keep(said.system), self._keep(said.prompt))
        row = (candidate, said.model, *texts, said.answer, said.tokens_in, said.tokens_out, said.seconds)
        self._db.execute("INSERT INTO transcripts VALUES (?,?,?,?,?,?,?,?)", row)

    def transcript(self, candidate: int) -> Transcript | None:
        """How a model came to write it; None where no model did."""
        row = self._db.execute(
            "SELECT model, s.text, p.text, answer, tokens_in, tokens_out, seconds FROM transcripts t "
            "JOIN sources s ON s.digest = t.system JOIN sources p ON p.digest = t.prompt WHERE candidate = ?",
            (candidate,),
        ).fetchone()
        return None if row is None else Transcript(*row)

    def waiting(self) -> list[Planned]:
        """Candidates without a verdict, in the order they came."""
        return [self._planned(row) for row in self._db.execute(_WAITING)]

    def keep_verdict(self, candidate: int, verdict: Verdict, worker: str, seconds: float) -> bool:
        """False if there is one already: it stays, and this one is not counted."""
        return self._keep_record(candidate, verdict.status, to_json(verdict), worker, seconds)

    def keep_failure(self, candidate: int, why: str, worker: str, seconds: float) -> bool:
        """The judge itself failed on it: no verdict, and told as such."""
        return self._keep_record(candidate, NO_VERDICT, json.dumps({"message": why}), worker, seconds)

    def keep_unreadable(self, candidate: int, why: str, worker: str, seconds: float) -> bool:
        """It is no candidate at all, a text without a kernel, say: that is its own doing."""
        return self._keep_record(candidate, UNREADABLE, json.dumps({"message": why}), worker, seconds)

    def failures(self) -> int:
        """On how many the judge failed."""
        query = "SELECT count(*) FROM verdicts WHERE status = ?"
        return int(self._db.execute(query, (NO_VERDICT,)).fetchone()[0])

    def forget_failures(self) -> int:
        """Candidates on which the judge failed wait again; returns how many."""
        return self._db.execute("DELETE FROM verdicts WHERE status = ?", (NO_VERDICT,)).rowcount

    def _keep_record(self, candidate: int, status: str, record: str, worker: str, seconds: float) -> bool:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        row = (candidate, now, worker, seconds, status, record)
        return self._db.execute("INSERT OR IGNORE INTO verdicts VALUES (?,?,?,?,?,?)", row).rowcount == 1

    def judged(self) -> Iterator[Judged]:
        """All that have an end, by problem, sample and turn."""
        for row in self._db.execute(f"{_JUDGED} ORDER BY p.rowid, c.sample, c.turn"):
            yield self._judged(row)

    def judged_one(self, candidate: int) -> Judged:
        return self._judged(self._db.execute(f"{_JUDGED} AND c.id = ?", (candidate,)).fetchone())

    def judged_if_any(self, candidate: int) -> Judged | None:
        """None while it waits."""
        row = self._db.execute(f"{_JUDGED} AND c.id = ?", (candidate,)).fetchone()
        return None if row is None else self._judged(row)

    def counts(self) -> tuple[int, int]:
        """Candidates, and how many of them are judged."""
        query = "SELECT (SELECT count(*) FROM candidates), (SELECT count(*) FROM verdicts)"
        planned, judged = self._db.execute(query).fetchone()
        return planned, judged

    @contextlib.contextmanager
    def _together(self) -> Iterator[None]:
        """All of it or nothing."""
        with self._db:  # ends what was begun
            self._db.execute("BEGIN IMMEDIATE")
            yield

    def _keep(self, text: str) -> str:
        name = digest(text)
        self._db.execute("INSERT OR IGNORE INTO sources VALUES (?, ?)", (name, text))
        return name

    def _judged(self, row: Any) -> Judged:
        *planned, judged_at, worker, seconds, status, record = row
        candidate = self._planned(planned)
        try:
            return Judged(candidate, judged_at, worker, seconds, status, json.loads(record)).checked()
        except ValueError as error:
            where = f"{candidate.problem}, sample {candidate.sample}, turn {candidate.turn}"
            raise UserError(f"{self.path}: the verdict on {where} is damaged ({error})") from error

    def _planned(self, row: Any) -> Planned:
        number, problem, sample, turn, parent, name, suffix, text, cost_usd = row
        return Planned(problem, sample, turn, name, suffix, text, parent, cost_usd, number)


def _alone(path: Path) -> IO[str]:
    """Whoever writes to a run does so alone; the lock goes with its process."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        lock = open(path.with_name(f"{path.name}.lock"), "w")  # noqa: SIM115 - held until the run is closed
    except OSError as error:
        raise UserError(f"{path} cannot be written ({error.strerror}): name another with --run") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise UserError(f"{path}: somebody else is writing to this run: wait, or name another") from None
    return lock


_COLUMNS = "c.id, c.problem, c.sample, c.turn, c.parent, c.name, c.suffix, s.text, c.cost_usd"
_TABLES = (
    "candidates c JOIN sources s ON s.digest = c.source JOIN problems p ON p.name = c.problem "
    "LEFT JOIN verdicts v ON v.candidate = c.id LEFT JOIN lineage l ON l.candidate = c.id"
)
_WAITING = (
    f"SELECT {_COLUMNS} FROM {_TABLES} WHERE v.candidate IS NULL AND l.duplicate_of IS NULL "
    "ORDER BY c.turn, p.rowid, c.sample"
)
_JUDGED = (
    f"SELECT {_COLUMNS}, v.judged_at, v.worker, v.seconds, v.status, v.record FROM {_TABLES} "
    "WHERE v.candidate IS NOT NULL"
)
