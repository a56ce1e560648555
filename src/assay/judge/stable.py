"""The opponents of one problem: processes of its fastest baseline, alive and warm."""

from __future__ import annotations

from assay.judge.course import Course
from assay.judge.seat import Seat
from assay.judge.workshop import Workshop
from assay.problems import Problem
from assay.records import CandidateFailure, JudgeFault
from assay.speed.opponents import Opponent
from assay.worker import Child


class Stable:
    """The fastest rung's processes, alive and warm."""

    def __init__(self, shop: Workshop, problem: Problem, opponent: Opponent, caches: bytes) -> None:
        self._shop = shop
        self._problem = problem
        self._opponent = opponent
        self.caches = caches
        self._children: list[Child] = []
        self._launch_us: dict[Child, list[float]] = {}
        """Known from earlier races, so that the first calls of the next are covered as well."""

    @property
    def name(self) -> str:
        return self._opponent.name

    def adopt(self, seat: Seat, course: Course) -> None:
        """A process that already runs, taken over from the ladder."""
        self._children.append(seat.child)
        self._launch_us[seat.child] = seat.launch_us
        self.leave(seat, course)

    def seat(self, index: int, course: Course) -> Seat:
        """The index-th process, at this course's desk with this course's weights."""
        if index < len(self._children):
            child = self._children[index]
            seat = course.seat(child, is_module=self._problem.entry == "ModelNew")
            seat.launch_us = self._launch_us[child]
            self._give_state(seat, course)
            return seat
        try:
            return self._start(course, self.caches)
        except CandidateFailure:
            pass  # what was carried over does not fit here: compile again
        try:
            return self._start(course, b"")
        except CandidateFailure as failure:
            raise JudgeFault(f"the baseline {self.name} does not start again: {failure.message}") from failure

    def _start(self, course: Course, caches: bytes) -> Seat:
        policy = self._shop.policy
        child = self._shop.trusted.take()
        try:
            child.ask("refill", payload=caches, timeout_s=policy.load_timeout_s)
            load_opponent(self._shop, child, self._opponent, self._problem)
            seat = course.seat(child, is_module=self._problem.entry == "ModelNew")
            seat.construct(course.run)
            self._give_state(seat, course)
            course.deal()
            course.first_call(seat, policy.baseline_timeout_s)
            course.ask(seat, "warm")
        except CandidateFailure:
            course.desk.leave(child)
            child.close()
            raise
        self._children.append(child)
        self._launch_us[child] = seat.launch_us
        return seat

    def _give_state(self, seat: Seat, course: Course) -> None:
        state = course.run.reference.state()
        if state:
            seat.send_state(state)

    def leave(self, seat: Seat, course: Course) -> None:
        """Nothing of this race stays with the process."""
        course.desk.leave(seat.child)
        seat.child.ask("release", {"all": True}, timeout_s=self._shop.policy.call_timeout_s)

    def drop(self, seat: Seat) -> None:
        """A process that may have been left in a bad state."""
        self._children.remove(seat.child)
        seat.child.close()

    def close(self) -> None:
        for child in self._children:
            child.close()
        self._children.clear()


def load_opponent(shop: Workshop, child: Child, opponent: Opponent, problem: Problem) -> None:
    if opponent.candidate is None:
        raise JudgeFault(f"{opponent.name} has no source")
    built = shop.built(opponent.candidate)
    shop.load(child, opponent.candidate, built, problem.argument_names, opponent.support_files)
