"""Tools that judge: check, bench and profile; and explain, which says what a verdict means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from assay.agents.desk import Answer, Arguments, Desk
from assay.agents.explanations import CODES, explain, listed
from assay.agents.house import Say
from assay.agents.summary import ladder_data, ladder_text, profile_text, verdict_data, verdict_text
from assay.records import Verdict


async def check(desk: Desk, arguments: Arguments, say: Say) -> Answer:
    verdict = await _verdict(desk, arguments, policy_of(desk, arguments), say)
    return Answer(verdict_text(verdict), verdict_data(verdict))


async def bench(desk: Desk, arguments: Arguments, say: Say) -> Answer:
    problem = desk.problem(arguments)
    ladder = await desk.judge(lambda: desk.house.bench(problem, say), say)
    return Answer(ladder_text(ladder), ladder_data(ladder))


async def profile(desk: Desk, arguments: Arguments, say: Say) -> Answer:
    verdict = await _verdict(desk, arguments, desk.house.policy, say)
    text = profile_text(verdict)
    return Answer(text, {**verdict_data(verdict), "feedback": text})


async def explain_code(_desk: Desk, arguments: Arguments, _say: Say) -> Answer:
    code = str(arguments.get("code", ""))
    if not code:
        return Answer(listed(), {"codes": sorted(CODES)})
    told = explain(code)
    data = {"code": code, "meaning": told.meaning, "advice": told.advice}
    return Answer(f"{code}: {told.meaning}\nWhat to do: {told.advice}", data)


def policy_of(desk: Desk, arguments: Arguments) -> Mapping[str, Any]:
    """The server's; an agent may leave timing out, and loosen nothing."""
    return desk.house.policy if arguments.get("speed", True) else {**desk.house.policy, "speed": False}


async def _verdict(desk: Desk, arguments: Arguments, policy: Mapping[str, Any], say: Say) -> Verdict:
    problem, candidate = desk.problem(arguments), desk.candidate(arguments)
    return await desk.judge(lambda: desk.house.check(problem, candidate, policy, say), say)
