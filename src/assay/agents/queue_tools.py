"""Tools over the queue of a search: taking the next prompt, handing in an answer."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING

from assay.agents.desk import Answer, Arguments, Desk
from assay.agents.house import Say
from assay.agents.run_tools import submit_to_run
from assay.candidates import Candidate
from assay.records import UserError

if TYPE_CHECKING:
    from assay.search.queue_folder import Question

LOOK_EVERY_S = 1.0


async def queue_next(desk: Desk, arguments: Arguments, say: Say) -> Answer:
    folder = desk.path(arguments, "queue")
    end = time.monotonic() + float(arguments.get("wait_seconds", 0))
    said = False
    while (question := await asyncio.to_thread(_claim, folder)) is None:
        if time.monotonic() >= end:
            return Answer("No prompt is open.", {"request": None})
        if not said:
            said = True
            say("no prompt is open yet")
        await asyncio.sleep(LOOK_EVERY_S)
    data = {"request": question.number, "prompt": question.text}
    return Answer(f"Request {question.number}. Answer it with `submit`.\n\n{question.text}", data)


async def submit(desk: Desk, arguments: Arguments, say: Say) -> Answer:
    if ("queue" in arguments) == ("run" in arguments):
        raise UserError("give queue (the folder of a search) or run (a run's file), and not both")
    if "run" in arguments:
        return await submit_to_run(desk, arguments, say)
    folder = desk.path(arguments, "queue")
    request, note = arguments.get("request"), str(arguments.get("note", ""))
    if arguments.get("skip"):
        if request is None:
            raise UserError("which prompt is declined? give request, its number")
        return await asyncio.to_thread(_decline, folder, int(request), note)
    candidate = desk.read_candidate(arguments)
    return await asyncio.to_thread(_hand_in, folder, request, candidate, note)


# The package of searches imports torch, so that these import it when they are first asked for.


def _claim(folder: Path) -> Question | None:
    from assay.search import queue_folder

    return queue_folder.claim(folder)


def _decline(folder: Path, request: int, why: str) -> Answer:
    from assay.search import queue_folder

    path = queue_folder.decline(folder, request, why)
    return Answer(f"Request {request} is declined.", {"request": request, "file": str(path)})


def _hand_in(folder: Path, request: int | None, candidate: Candidate, note: str) -> Answer:
    from assay.search import queue_folder

    if request is not None and request in queue_folder.open_requests(folder):
        path = queue_folder.answer(folder, request, candidate.source, candidate.suffix, note)
        return Answer(f"Request {request} is answered.", {"request": request, "file": str(path)})
    if not folder.is_dir():
        raise UserError(f"{folder}: no such queue: name the folder that the search was given")
    path = queue_folder.inject(folder, candidate.source, candidate.suffix, candidate.name, note)
    late = f"Nobody waits for request {request} any more. " if request is not None else ""
    return Answer(
        f"{late}Handed in as a candidate that nobody asked for.", {"request": None, "file": str(path)}
    )
