"""The archive as a view: what strategies and proposers are shown."""

from __future__ import annotations

from dataclasses import replace

from assay.archive import Answered, Asked, Drafted, KeptIdea, Planned, SearchArchive
from assay.problems import Problem
from assay.search.novelty import normal_form
from assay.search.protocol import Draft, Idea, Member, NewIdea, Operator, Reply, Request, View


class Memory:
    """Reads a search back; a verdict is decoded once."""

    def __init__(self, archive: SearchArchive, problem: Problem, device: str) -> None:
        self._archive = archive
        self._problem = problem
        self._device = device
        self._judged: dict[int, Member] = {}

    def view(self) -> View:
        asked = [one for one in self._archive.requests() if one.problem == self._problem.name]
        operators = {one.id: Operator(one.proposer, one.operator, one.needs) for one in asked}
        requests = {one.id: Request(one.id, operators[one.id], one.parents, one.idea) for one in asked}
        drafted = [one for one in self._archive.drafted() if one.request in requests]
        return View(
            problem=self._problem,
            device=self._device,
            members=tuple(self._member(one, requests[one.request]) for one in drafted),
            ideas=tuple(_idea(one) for one in self._archive.ideas() if one.request in requests),
            asked=tuple(requests.values()),
            exhausted=frozenset(one.id for one in asked if one.exhausted),
            open=frozenset(one.id for one in asked if not one.answered),
            costs={one.id: one.cost_usd for one in asked if one.answered},
            waits={one.id: one.seconds for one in asked if one.answered},
            learned=self._archive.learned(),
            pinned=self._archive.orders("pin"),
            banned=self._archive.orders("ban"),
        )

    def _member(self, one: Drafted, request: Request) -> Member:
        number = one.candidate.id
        if number in self._judged:
            return self._judged[number]
        text = one.candidate
        draft = Draft(text.source, text.suffix, text.name, one.actions, one.note)
        member = Member(
            id=number,
            request=one.request,
            operator=request.operator,
            parents=request.parents,
            idea=one.idea,
            draft=draft,
            normal=one.normal,
            duplicate_of=one.duplicate_of,
        )
        judged = None if one.duplicate_of is not None else self._archive.judged_if_any(number)
        if judged is None:
            return member
        member = replace(
            member,
            status=judged.status,
            record=judged.record,
            verdict=judged.verdict(),
            seconds=judged.seconds,
        )
        self._judged[number] = member
        return member


def _idea(one: KeptIdea) -> Idea:
    new = NewIdea(one.title, one.hypothesis, one.mechanism, one.predicted_gain)
    return Idea(one.id, one.request, one.parent, new)


def asked(problem: Problem, request: Request) -> Asked:
    """A request as the archive keeps it."""
    operator = request.operator
    who = (request.id, problem.name, operator.proposer, operator.name, operator.needs)
    return Asked(*who, request.parents, request.idea)


def answered(problem: Problem, request: Request, reply: Reply, seconds: float) -> Answered:
    """A reply as the archive keeps it."""
    parent = request.parents[0] if request.parents else None
    drafts = [
        Drafted(
            Planned(problem.name, request.id, turn, one.name, one.suffix, one.source, parent),
            request.id,
            request.idea,
            one.actions,
            one.note,
            normal_form(one.source, one.suffix),
        )
        for turn, one in enumerate(reply.drafts)
    ]
    ideas = [
        KeptIdea(request.id, request.idea, new.title, new.hypothesis, new.mechanism, new.predicted_gain)
        for new in reply.ideas
    ]
    return Answered(
        drafts=drafts,
        ideas=ideas,
        exchange=reply.exchange,
        cost_usd=reply.cost_usd,
        trouble=reply.trouble,
        exhausted=reply.exhausted,
        seconds=seconds if reply.seconds is None else reply.seconds,
        learned=reply.learned,
    )
