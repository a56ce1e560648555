"""Strategies, the driver and its archive: what is asked, kept, resumed and stopped."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from pathlib import Path

import pytest
from scripted_search import PROBLEM, Believing, Scripted, drive, source

from assay.archive import SearchArchive
from assay.evaluation import Done, Task
from assay.problems import load_problem
from assay.records import UserError
from assay.search import Limits, read_recording
from assay.search.budget import since_progress
from assay.search.driver import Status
from assay.search.memory import Memory
from assay.search.protocol import NOTHING, RIGHT_PARENT, Draft, Operator, Reply, Request, View
from assay.search.snapshot import BAN, INJECT, PIN, STOP, Command


def told(view: View) -> list[tuple]:
    return [(m.id, m.operator.key, m.parents, m.draft.source, m.status, m.duplicate_of) for m in view.members]


@pytest.mark.parametrize("strategy", ["independent", "serial", "evolution"])
def test_a_search_spends_its_evaluations_and_no_more(strategy: str, tmp_path: Path) -> None:
    workers = Believing()
    reason, view = drive(tmp_path / "s", strategy=strategy, workers=workers)
    assert reason == "the evaluations are spent"
    assert len(view.judged) == len(workers.judged) == 30
    assert view.best is not None and view.best.speed == max(m.speed for m in view.judged)


def test_independent_samples_start_from_nothing_or_an_idea(tmp_path: Path) -> None:
    _, view = drive(tmp_path / "s", strategy="independent")
    assert {request.operator.name for request in view.asked} == {"begin", "think", "write"}
    assert all(not request.parents for request in view.asked)


def test_serial_repairs_what_failed_and_improves_the_best(tmp_path: Path) -> None:
    _, view = drive(tmp_path / "s", strategy="serial")
    for request in view.asked[1:]:
        earlier = [m for m in view.members if m.request < request.id]
        if request.operator.name == "mend":
            assert request.parents == (earlier[-1].id,) and not earlier[-1].is_right
        if request.operator.name == "step":
            right = [m for m in earlier if m.is_right]
            assert view.by_id[request.parents[0]].speed == max(m.speed for m in right)


def test_evolution_beats_independent_samples_and_uses_every_operator(tmp_path: Path) -> None:
    _, alone = drive(tmp_path / "a", strategy="independent")
    _, evolved = drive(tmp_path / "b", limits=Limits(evaluations=60))
    assert evolved.best and alone.best and evolved.best.speed > alone.best.speed * 1.1
    used = Counter(request.operator.name for request in evolved.asked)
    assert set(used) == {operator.name for operator in Scripted.operators}


class DeadEnd:
    """Its fastest candidate allows no step; a much slower one allows many."""

    name = "script"
    operators = (Operator("script", "begin", NOTHING), Operator("script", "step", RIGHT_PARENT))

    def propose(self, request: Request, view: View) -> Reply:
        if not request.parents:
            drafts = [Draft(source(speed), ".py", f"at {speed}", (), "") for speed in (2.0, 0.5)]
            return Reply(tuple(drafts), exhausted=True)
        start = view.by_id[request.parents[0]].speed
        if start > 1.5:
            return Reply(exhausted=True)
        return Reply((Draft(source(0.5 + request.id / 100), ".py", f"c{request.id}", (), "a step"),))


def test_where_the_best_allows_nothing_more_the_others_are_gone_on_with(tmp_path: Path) -> None:
    reason, view = drive(tmp_path / "s", proposers=[DeadEnd()])
    assert reason == "the evaluations are spent"
    assert len(view.judged) == 30


def test_requests_follow_from_the_archive_alone(tmp_path: Path) -> None:
    assert told(drive(tmp_path / "a")[1]) == told(drive(tmp_path / "b")[1])


def test_killed_twenty_times_it_ends_as_if_never_killed(tmp_path: Path) -> None:
    """At random points and by a signal that nobody handles, answers and verdicts from a recording."""
    _, expected = drive(tmp_path / "recorded")
    rng = random.Random(11)
    resumed, stages = tmp_path / "resumed", set()
    for _ in range(20):
        _killed_after(rng.randint(1, 2), rng.uniform(0, 0.004), tmp_path / "recorded", resumed)
        stages.add(_stage(resumed))
    assert len(stages) > 10
    recording = read_recording(tmp_path / "recorded", expected.problem)
    reason, view = drive(resumed, proposers=list(recording.proposers), workers=recording.workers)
    assert reason == "the evaluations are spent"
    assert told(view) == told(expected)
    assert view.best and expected.best and view.best.id == expected.best.id


def _killed_after(events: int, delay_s: float, recorded: Path, resumed: Path) -> None:
    """A search in a process of its own, killed a moment after so many events.

    By its own timer: whoever else is to kill it may wait for a processor while it goes on to its end.
    """
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        left = iter(range(events))

        def watch(status: Status) -> None:
            if status.event and next(left, None) == events - 1:
                signal.setitimer(signal.ITIMER_REAL, delay_s)

        recording = read_recording(recorded, load_problem(PROBLEM))
        drive(resumed, proposers=list(recording.proposers), workers=recording.workers, watch=watch)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), "it ended before it could be killed"


def _stage(path: Path) -> tuple[int, int]:
    """How many requests and verdicts a file holds."""
    if not path.exists() or not path.stat().st_size:
        return 0, 0
    with SearchArchive(path) as archive:
        return len(archive.requests()), archive.counts()[1]


def test_a_request_without_answer_is_asked_again_and_nothing_is_judged_twice(tmp_path: Path) -> None:
    class Dies(Scripted):
        def propose(self, request, view):
            if request.id == 6:
                raise UserError("the endpoint is dead")
            return super().propose(request, view)

    reason, view = drive(tmp_path / "s", proposers=[Dies()])
    assert "dead" in reason and view.best is not None
    script, workers = Scripted(), Believing()
    _, view = drive(tmp_path / "s", proposers=[script], workers=workers)
    assert script.asked[0].id == 6
    assert len(view.judged) == 30 and len(set(workers.judged)) == len(workers.judged) < 30


def test_the_same_program_twice_is_judged_once(tmp_path: Path) -> None:
    class Repeats(Scripted):
        def propose(self, request, view):
            reply = super().propose(request, view)
            text = source(1.1).replace("    speed", f"    # attempt {request.id}\n    speed")
            return type(reply)(tuple(type(d)(text, ".py", d.name) for d in reply.drafts), reply.ideas)

    workers = Believing()
    limits = Limits(evaluations=5)
    reason, view = drive(tmp_path / "s", proposers=[Repeats()], workers=workers, limits=limits)
    assert "brought no candidate" in reason
    assert len(workers.judged) == 1 and len(view.members) > 3
    assert {m.duplicate_of for m in view.members[1:]} == {view.members[0].id}


@pytest.mark.parametrize(
    "limits, reason",
    [
        (Limits(usd=0.05), "the money is spent"),
        (Limits(device_s=4), "the device's time is spent"),
        (Limits(stalled_after=6), "6 evaluations brought nothing better"),
        (Limits(percent_of_limit=50), "60 % of the physical limit"),
        (Limits(wall_s=0.0001), "the time is up"),
        (Limits(usd=0.05, evaluations=2), "the evaluations are spent|the money is spent"),
    ],
)
def test_whichever_budget_is_spent_first_ends_it(limits: Limits, reason: str, tmp_path: Path) -> None:
    ended, view = drive(tmp_path / "s", limits=limits)
    assert ended.startswith(tuple(reason.split("|")))
    if limits.stalled_after:
        assert since_progress(view) == 6


def test_a_limit_that_is_left_behind_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where caches hold everything, kernels are faster than memory: that limit is none."""
    monkeypatch.setattr("assay.search.budget.percent_reached", lambda view: 700.0)
    reason, view = drive(tmp_path / "s", limits=Limits(percent_of_limit=50, evaluations=4))
    assert reason == "the evaluations are spent" and len(view.judged) == 4


def test_an_unknown_price_cannot_be_held_to_a_limit(tmp_path: Path) -> None:
    class Unknown(Scripted):
        def propose(self, request, view):
            reply = super().propose(request, view)
            return type(reply)(reply.drafts, reply.ideas, cost_usd=None)

    reason, _ = drive(tmp_path / "s", proposers=[Unknown()], limits=Limits(usd=5))
    assert "price is unknown" in reason


def test_money_in_flight_counts(tmp_path: Path) -> None:
    from assay.search.budget import spent

    _, view = drive(tmp_path / "s", limits=Limits(evaluations=10))
    asked = view.asked[-1].id
    flying = View(**{**view.__dict__, "open": frozenset({asked + 1, asked + 2})})
    now = spent(view, wall_s=0, tokens=(0, 0), at_work=0).usd
    later = spent(flying, wall_s=0, tokens=(0, 0), at_work=0).usd
    assert now and later and later == pytest.approx(now + 2 * now / len(view.costs))


def test_what_a_person_says_is_kept_and_obeyed(tmp_path: Path) -> None:
    _, first = drive(tmp_path / "s", limits=Limits(evaluations=8))
    assert first.best is not None
    best, other = first.best.id, first.ranked[-1].id
    file = tmp_path / "mine.py"
    file.write_text(source(1.9))
    commands = (Command(BAN, best), Command(PIN, other), Command(INJECT, path=str(file)))
    _, view = drive(tmp_path / "s", limits=Limits(evaluations=20), commands=commands)
    assert view.banned == {best} and view.pinned == {other}
    mine = next(m for m in view.members if m.draft.name == "mine")
    assert mine.ratio and mine.ratio.middle == 1.9 and mine.operator.key == "person/inject"
    assert any(m.parents == (mine.id,) for m in view.members)
    reason, _ = drive(tmp_path / "s", limits=Limits(evaluations=30), commands=(Command(STOP),))
    assert reason == "stopped by hand"


def test_a_file_that_cannot_be_injected_is_told(tmp_path: Path) -> None:
    events = []
    drive(
        tmp_path / "s",
        limits=Limits(evaluations=2),
        commands=(Command(INJECT, path=str(tmp_path / "nothing.py")),),
        watch=lambda status: events.append(status.event),
    )
    assert any("not injected" in event and "does not exist" in event for event in events)


def test_a_judge_that_fails_is_no_verdict_and_no_end(tmp_path: Path) -> None:
    class Failing(Believing):
        def next_done(self):
            done = super().next_done()
            if done is not None and done.task.candidate.id == 2:
                done = type(done)(done.task, done.worker, {"failure": "it fell over", "seconds": 0.1})
            return done

    _, view = drive(tmp_path / "s", workers=Failing(), limits=Limits(evaluations=6))
    assert view.by_id[2].status == "no_verdict" and len(view.judged) == 6


def test_a_judge_that_never_works_ends_the_search_with_its_own_words(tmp_path: Path) -> None:
    class Busy(Believing):
        def submit(self, task: Task) -> None:
            self._done.put(Done(task, "script", {"failure": "the device is busy", "seconds": 0.0}))

    told: list[str] = []
    reason, view = drive(
        tmp_path / "a.sqlite", workers=Busy(), watch=lambda status: told.append(status.event)
    )
    assert reason == "the judge failed 3 times in a row: the device is busy"
    assert len(view.judged) == 3
    assert sum("no_verdict: the device is busy" in event for event in told) == 3


def test_everything_is_in_the_archive(tmp_path: Path) -> None:
    _, view = drive(tmp_path / "s")
    with SearchArchive(tmp_path / "s") as archive:
        again = Memory(archive, load_problem(PROBLEM), "cpu").view()
        assert told(again) == told(view) and again.ideas == view.ideas and again.costs == view.costs
        assert {one.operator for one in archive.requests()} >= {"begin", "step"}
        assert all(one.answered for one in archive.requests())
