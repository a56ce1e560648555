"""What new weights cost a candidate more than the opponent: taking them over, and the first call after that.

Some kernels are fast because weights were packed, transposed or quantised before anybody looked. That is fine
where weights stay, and no gain where they change. By the judge's clock, and by the child's for the call.
"""

from __future__ import annotations

import secrets
import statistics
import time

import torch

from assay.correctness import perturbed
from assay.judge.course import Course
from assay.judge.run import Answer
from assay.judge.seat import Seat

ROUNDS = 3


class Preparation:
    """New weights for both contestants, a few times."""

    def __init__(self, course: Course, own: Seat, opponent: Seat) -> None:
        self._course = course
        self._own = own
        self._opponent = opponent
        self._extra_us: list[float] = []

    def round(self, usual_own_us: float, usual_other_us: float) -> tuple[Answer, Answer]:
        """One change of weights and the calls after it; `usual` are latencies without such a change."""
        run = self._course.run
        weights = perturbed(run.reference.state(), run.reference.parameter_names(), secrets.randbits(62))
        own_us = _handing_over_us(self._own, weights)
        self._own.child.freeze()
        other_us = _handing_over_us(self._opponent, weights)
        run.reference.load_state(weights)
        self._course.deal()
        answer = self._course.ask(self._own, "idle")
        self._own.child.freeze()
        other = self._course.ask(self._opponent, "idle")
        own_us += answer.time().host_us - usual_own_us
        other_us += other.time().host_us - usual_other_us
        self._extra_us.append(own_us - other_us)
        return answer, other

    @property
    def cost_us(self) -> float:
        return max(0.0, statistics.median(self._extra_us))


def _handing_over_us(seat: Seat, weights: dict[str, torch.Tensor]) -> float:
    start_ns = time.monotonic_ns()
    seat.send_state(weights)
    return (time.monotonic_ns() - start_ns) / 1e3
