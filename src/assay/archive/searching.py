"""A search in its file: what was asked for, what was answered, and how every candidate came to be.

A request is written before anybody is asked, its answer in one piece with everything it brought: whenever the
process ends, what is on disk is a state the search has been in.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from assay.archive.archive import Archive, Planned, Transcript


@dataclass(frozen=True, slots=True)
class Asked:
    """A request and how it ended."""

    id: int
    problem: str
    proposer: str
    operator: str
    needs: str
    """What the operator starts from."""
    parents: tuple[int, ...]
    idea: int | None
    answered: bool = False
    trouble: str = ""
    exhausted: bool = False
    cost_usd: float | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class KeptIdea:
    """An idea; the archive gives the number."""

    request: int
    parent: int | None
    title: str
    hypothesis: str
    mechanism: str
    predicted_gain: float | None
    id: int = 0


@dataclass(frozen=True, slots=True)
class Drafted:
    """A candidate with its lineage."""

    candidate: Planned
    request: int
    idea: int | None
    actions: tuple[str, ...]
    note: str
    normal: str
    duplicate_of: int | None = None


@dataclass(frozen=True, slots=True)
class Answered:
    """Everything an answer brings; drafts and ideas are numbered by the archive."""

    drafts: Sequence[Drafted] = ()
    ideas: Sequence[KeptIdea] = ()
    exchange: Transcript | None = None
    cost_usd: float | None = 0.0
    trouble: str = ""
    exhausted: bool = False
    seconds: float = 0.0
    learned: Mapping[str, str] = field(default_factory=dict)


class SearchArchive(Archive):
    """An open search."""

    def add_request(self, asked: Asked) -> None:
        """Before anybody is asked."""
        who = (asked.id, asked.problem, asked.proposer, asked.operator, asked.needs)
        self._db.execute(
            "INSERT INTO requests (id, problem, proposer, operator, needs, parents, idea, asked_at) "
            "VALUES (?,?,?,?,?,?,?,?)",
            (*who, json.dumps(asked.parents), asked.idea, _now()),
        )

    def next_request(self) -> int:
        """The number of the next request."""
        return 1 + int(self._db.execute("SELECT coalesce(max(id), 0) FROM requests").fetchone()[0])

    def requests(self) -> list[Asked]:
        rows = self._db.execute(
            "SELECT id, problem, proposer, operator, needs, parents, idea, answered_at IS NOT NULL, trouble, "
            "exhausted, cost_usd, seconds FROM requests ORDER BY id"
        )
        return [
            Asked(
                n, problem, who, how, needs, tuple(json.loads(of)), idea, bool(done), why, bool(end), usd, s
            )
            for n, problem, who, how, needs, of, idea, done, why, end, usd, s in rows
        ]

    def keep_answer(self, request: int, answer: Answered) -> list[Drafted]:
        """All of an answer or nothing; returns the drafts with their numbers, duplicates marked.

        Drafts without an idea belong to the first of the answer's own, if it brings any.
        """
        with self._together():
            ideas = [self._keep_idea(idea) for idea in answer.ideas]
            drafts = [self._keep_draft(d, ideas[0] if ideas else None) for d in answer.drafts]
            if answer.exchange is not None:
                self._keep_exchange(request, answer.exchange)
            for entry in answer.learned.items():
                self._db.execute("INSERT OR REPLACE INTO learned VALUES (?, ?)", entry)
            end = (_now(), answer.trouble, answer.exhausted, answer.cost_usd, answer.seconds, request)
            self._db.execute(
                "UPDATE requests SET answered_at=?, trouble=?, exhausted=?, cost_usd=?, seconds=? WHERE id=?",
                end,
            )
        return drafts

    def _keep_idea(self, idea: KeptIdea) -> int:
        row = (idea.request, idea.parent, idea.title, idea.hypothesis, idea.mechanism, idea.predicted_gain)
        added = self._db.execute(
            "INSERT INTO ideas (request, parent, title, hypothesis, mechanism, predicted_gain) "
            "VALUES (?,?,?,?,?,?)",
            row,
        )
        return int(added.lastrowid or 0)

    def _keep_draft(self, draft: Drafted, idea: int | None) -> Drafted:
        one = draft.candidate
        added = self._db.execute(
            "INSERT INTO candidates (problem, sample, turn, parent, name, suffix, source) "
            "VALUES (?,?,?,?,?,?,?)",
            (one.problem, one.sample, one.turn, one.parent, one.name, one.suffix, self._keep(one.source)),
        )
        number = int(added.lastrowid or 0)
        idea = draft.idea if draft.idea is not None else idea
        twin = self._twin(one.problem, draft.normal)
        row = (number, draft.request, idea, json.dumps(draft.actions), draft.note, draft.normal, twin)
        self._db.execute("INSERT INTO lineage VALUES (?,?,?,?,?,?,?)", row)
        return replace(draft, candidate=replace(one, id=number), idea=idea, duplicate_of=twin)

    def _twin(self, problem: str, normal: str) -> int | None:
        """The candidate that is the same but for names, spacing and comments."""
        row = self._db.execute(
            "SELECT min(l.candidate) FROM lineage l JOIN candidates c ON c.id = l.candidate "
            "WHERE l.normal = ? AND c.problem = ?",
            (normal, problem),
        ).fetchone()
        return None if row[0] is None else int(row[0])

    def _keep_exchange(self, request: int, said: Transcript) -> None:
        texts = (self._keep(said.system), self._keep(said.prompt))
        row = (request, said.model, *texts, said.answer, said.tokens_in, said.tokens_out, said.seconds)
        self._db.execute("INSERT INTO exchanges VALUES (?,?,?,?,?,?,?,?)", row)

    def exchange(self, request: int) -> Transcript | None:
        """What was said for a request; None where nobody was asked in words."""
        row = self._db.execute(
            "SELECT model, s.text, p.text, answer, tokens_in, tokens_out, seconds FROM exchanges e "
            "JOIN sources s ON s.digest = e.system JOIN sources p ON p.digest = e.prompt WHERE request = ?",
            (request,),
        ).fetchone()
        return None if row is None else Transcript(*row)

    def tokens(self) -> tuple[int, int]:
        """Known tokens of all exchanges, and how many exchanges did not say."""
        query = (
            "SELECT coalesce(sum(coalesce(tokens_in, 0) + coalesce(tokens_out, 0)), 0), "
            "count(*) FILTER (WHERE tokens_in IS NULL OR tokens_out IS NULL) FROM exchanges"
        )
        known, unknown = self._db.execute(query).fetchone()
        return int(known), int(unknown)

    def drafted(self) -> Iterator[Drafted]:
        """Every candidate in the order they came, duplicates among them."""
        rows = self._db.execute(
            "SELECT c.id, c.problem, c.sample, c.turn, c.parent, c.name, c.suffix, s.text, c.cost_usd, "
            "l.request, l.idea, l.actions, l.note, l.normal, l.duplicate_of FROM lineage l "
            "JOIN candidates c ON c.id = l.candidate JOIN sources s ON s.digest = c.source ORDER BY c.id"
        )
        for *planned, request, idea, actions, note, normal, twin in rows:
            made = tuple(json.loads(actions))
            yield Drafted(self._planned(planned), request, idea, made, note, normal, twin)

    def ideas(self) -> list[KeptIdea]:
        rows = self._db.execute(
            "SELECT request, parent, title, hypothesis, mechanism, predicted_gain, id FROM ideas ORDER BY id"
        )
        return [KeptIdea(*row) for row in rows]

    def learned(self) -> dict[str, str]:
        return dict(self._db.execute("SELECT name, text FROM learned"))

    def keep_build(self, candidate: int, artefact: str, record: str) -> int | None:
        """What it was compiled to; returns an earlier candidate of the problem with the same artefact."""
        with self._together():
            twin = self._db.execute(
                "SELECT min(b.candidate) FROM builds b JOIN candidates c ON c.id = b.candidate "
                "WHERE b.artefact = ? AND b.candidate != ? "
                "AND c.problem = (SELECT problem FROM candidates WHERE id = ?)",
                (artefact, candidate, candidate),
            ).fetchone()[0]
            self._db.execute("INSERT OR IGNORE INTO builds VALUES (?,?,?)", (candidate, artefact, record))
        return None if twin is None else int(twin)

    def builds(self) -> dict[int, str]:
        """Artefacts by candidate."""
        return dict(self._db.execute("SELECT candidate, artefact FROM builds"))

    def order(self, kind: str, candidate: int, *, holds: bool) -> None:
        """Pin or ban a candidate, or take that back."""
        with self._together():
            self._db.execute("DELETE FROM orders WHERE kind = ? AND candidate = ?", (kind, candidate))
            if holds:
                self._db.execute("INSERT INTO orders (kind, candidate) VALUES (?, ?)", (kind, candidate))

    def orders(self, kind: str) -> frozenset[int]:
        rows = self._db.execute("SELECT candidate FROM orders WHERE kind = ?", (kind,))
        return frozenset(row[0] for row in rows)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
