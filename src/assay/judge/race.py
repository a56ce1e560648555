"""Gate 2: the candidate against the fastest baseline, in turns, on the same inputs, in fresh processes.

Timed calls are checked calls. Each answers an input that did not exist before the last answer was taken; each
answer is compared with the opponent's, and a random share, drawn after the answer is in, with the oracle.
Sample counts follow from the problem's size alone.
"""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from assay.candidates import Candidate
from assay.correctness.screen import distance, rounding, suspicious
from assay.judge.company import refuse_company
from assay.judge.course import LEAST_BURST_CALLS, Course
from assay.judge.devices import is_scarce
from assay.judge.facts import weigh_facts
from assay.judge.pace import SYSTEM, Plan, settling_calls
from assay.judge.preparation import ROUNDS, Preparation
from assay.judge.run import Answer, Burst, compare
from assay.judge.seat import Seat
from assay.judge.stable import Stable
from assay.judge.workshop import Workshop
from assay.problems import Problem
from assay.records import CandidateFailure, Finding, JudgeFault
from assay.speed.clocks import allowed_launch_us
from assay.speed.compare import hopeless, log_ratio, ratio_interval, tight
from assay.speed.samples import Block, BurstPair, ProcessRun, Timed

MOST_PROCESSES = 6
GRAPHED_BLOCKS = 4
AUDITED = 0.25
"""Of the parts of an answer that falls into parts: gate 1 has compared all of them, and every answer is held
against the opponent's."""
MOST_GATED = 2
"""Bursts of a kind per process where they wait behind a gate, which leaves little to scatter."""
EVENT_RESOLUTION_US = 0.5


@dataclass(slots=True)
class RaceEvidence:
    """What a race showed."""

    runs: list[ProcessRun] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    graphed: list[Block] = field(default_factory=list)
    graphed_absent: str = ""
    preparation_us: float | None = None
    """What new weights cost it more than the opponent; None where it has none."""
    early_out: bool = False
    seconds: float = 0.0


class Race:
    """One candidate against one problem's opponents."""

    def __init__(
        self,
        shop: Workshop,
        course: Course,
        stable: Stable,
        problem: Problem,
        candidate: Candidate,
        opponent_us: float,
        worth: float = 0.0,
    ) -> None:
        """`opponent_us`: when its ladder was climbed; who surely stays below `worth` is let go early."""
        self._shop = shop
        self._course = course
        self._stable = stable
        self._problem = problem
        self._candidate = candidate
        self._opponent_us = opponent_us
        self._worth = worth
        self._margin = least_margin(shop, opponent_us)
        self._plan = Plan.for_size(course.size_bytes, opponent_us)
        self._known_apart: list[float] = []
        self._unknown_apart: list[float] = []
        self._burst_calls: int | None = None
        self._surely_decoyed = SYSTEM.randrange(shop.policy.processes_timed)
        self._cover_us = 0
        """The same for both contestants and for all calls of a process: the judge's clock compares them."""
        self.evidence = RaceEvidence()

    def run(self, built: bytes, caches: bytes) -> RaceEvidence:
        """Processes until the interval is tight or the budget is spent."""
        start = time.monotonic()
        policy = self._shop.policy
        for index in range(MOST_PROCESSES):
            self._process(index, built, caches)
            self.evidence.seconds = time.monotonic() - start
            if any(finding.fatal for finding in self.evidence.findings):
                break
            logs = [[log_ratio(block) for block in run.blocks] for run in self.evidence.runs]
            if index == 0 and hopeless(ratio_interval(logs), self._worth * (1 - self._margin)):
                self.evidence.early_out = True
                break
            enough = index + 1 >= policy.processes_timed
            spent = self.evidence.seconds * (index + 2) / (index + 1) > policy.speed_budget_s
            if enough and (spent or tight(ratio_interval(logs), self._margin)):
                break
        return self.evidence

    def _process(self, index: int, built: bytes, caches: bytes) -> None:
        """One fresh process of the candidate beside one of the opponent's."""
        opponent = self._stable.seat(index % self._shop.policy.processes_timed, self._course)
        run = ProcessRun()
        self.evidence.runs.append(run)
        if index == 0:
            self._alone(opponent, run)
        child = self._shop.pool.take()
        child.deadline = time.monotonic() + self._shop.policy.run_timeout_s
        usable = True
        try:
            child.ask("refill", payload=caches, timeout_s=self._shop.policy.load_timeout_s)
            self._shop.load(
                child, self._candidate, built, self._problem.argument_names, self._problem.support_files
            )
            own = self._course.seat(child, is_module=self._candidate.entry == "ModelNew")
            state = self._give_weights(own, opponent, index)
            self._warm_up(own, opponent, run)
            child.stop_company()
            self._blocks(own, opponent, run, index)
            if self._shop.device.type == "cuda":
                self._bursts(own, opponent, run)
            if index == 0 and state == "by name":
                self._new_weights(own, opponent, run)
            self._ask_facts(own)
            if index == self._shop.policy.processes_timed - 1:
                usable = self._graphed(own, opponent)
        finally:
            self._course.desk.leave(child)
            child.close(wait=is_scarce(self._shop.device))
            if not usable:
                self._course.desk.leave(opponent.child)
                self._stable.drop(opponent)
        if usable:
            self._alone(opponent, run)
            self._stable.leave(opponent, self._course)

    def _give_weights(self, own: Seat, opponent: Seat, index: int) -> str:
        """Returns how they were matched."""
        state = own.construct(self._course.run)
        if index == 0:
            own.renew_weights(self._course.run, state)
        weights = self._course.run.reference.state()
        if weights:
            opponent.send_state(weights)
        return state

    def _new_weights(self, own: Seat, opponent: Seat, run: ProcessRun) -> None:
        preparation = Preparation(self._course, own, opponent)
        usual = [statistics.median(pair[k].host_us for pair in run.idle) for k in range(2)]
        for _ in range(ROUNDS):
            answer, other = preparation.round(*usual)
            self._accept(answer)
            self._look(answer, other, audit=False)
            del answer, other  # before the next ones come
        self.evidence.preparation_us = preparation.cost_us

    def _alone(self, opponent: Seat, run: ProcessRun) -> None:
        """The opponent while no candidate lives: what it can do when nobody disturbs it."""
        for _ in range(self._plan.alone):
            self._course.deal()
            try:
                run.alone_us.append(self._course.ask(opponent, "cold").time().device_us)
            except CandidateFailure as failure:
                raise JudgeFault(f"the baseline {self._stable.name} failed: {failure.message}") from failure

    def _warm_up(self, own: Seat, opponent: Seat, run: ProcessRun) -> None:
        """Calls for latency and warm time; how many there are is not told beforehand.

        On a CPU many at once come before: a fresh process takes dozens of calls to get as fast as it will.
        """
        self._cover_us = 0  # each its own, until both are known
        run.idle.append(self._pair(own, opponent, "idle"))  # sets things up
        if self._shop.device.type == "cpu":
            own.child.stop_company()
            self._bursts(own, opponent, run)
            for _ in range(0 if self._burst_calls else settling_calls(self._opponent_us)):
                self._pair(own, opponent, "idle")
        for _ in range(self._plan.idle - 1 + SYSTEM.randint(0, not self._course.is_large)):
            run.idle.append(self._pair(own, opponent, "idle"))
        for k in range(self._plan.warm):
            # Whoever comes second finds the input in the cache.
            run.warm.append(self._pair(own, opponent, "warm", own_first=k % 2 == 0))

    def _blocks(self, own: Seat, opponent: Seat, run: ProcessRun, index: int) -> None:
        audited = self._plan.audited(index)
        decoys = self._plan.decoy_blocks(sure=index == self._surely_decoyed)
        self._cover_us = self._common_cover_us(own, opponent)
        for k in range(self._plan.blocks):
            self._decoys(own, decoys.count(k))
            run.blocks.append(self._block(own, opponent, {2 * k, 2 * k + 1} & audited, 2 * k))
        self._decoys(own, decoys.count(self._plan.blocks))

    def _common_cover_us(self, own: Seat, opponent: Seat) -> int:
        """For both alike. A candidate that tells too little shows its launches; beyond some multiple of the
        opponent's they show anyway, as they would for whoever uses it."""
        most = max(allowed_launch_us(opponent.usual_launch_us), opponent.cover_us)
        return int(min(max(own.cover_us, opponent.cover_us), most))

    def _decoys(self, own: Seat, count: int) -> None:
        """Calls like any timed one, but for their contents: what holds for nominal ones alone does not do."""
        for _ in range(count):
            _freeze(own)
            if self._course.deal_other():
                answer = self._course.ask(own, "cold", cover_us=self._cover_us)
                self._accept(answer)
                self._audit(answer)

    def _block(
        self, own: Seat, opponent: Seat, audited: set[int], first: int, *, graphed: bool = False
    ) -> Block:
        own_first = SYSTEM.random() < 0.5
        pairs = [
            self._pair(
                own,
                opponent,
                "cold",
                own_first=own_first == (half == 0),
                audit=first + half in audited,
                graphed=graphed,
            )
            for half in range(2)
        ]
        refuse_company(own.child)
        return Block((pairs[0][0], pairs[1][0]), (pairs[0][1], pairs[1][1]))

    def _pair(
        self,
        own: Seat,
        opponent: Seat,
        mode: str,
        *,
        own_first: bool = True,
        audit: bool = False,
        graphed: bool = False,
    ) -> tuple[Timed, Timed]:
        """Candidate and opponent on one fresh input."""
        _freeze(own, opponent)
        self._course.deal(moved=not graphed)
        answers: dict[bool, Answer] = {}
        for is_own in (own_first, not own_first):
            if is_own:
                answers[True] = self._course.ask(own, mode, cover_us=self._cover_us, graphed=graphed)
                self._accept(answers[True])
            else:
                _freeze(own)
                with contextlib.nullcontext() if graphed else _undisturbed():
                    answers[False] = self._course.ask(
                        opponent, mode, cover_us=self._cover_us, graphed=graphed
                    )
        self._look(answers[True], answers[False], audit=audit)
        return answers[True].time(), answers[False].time()

    def _bursts(self, own: Seat, opponent: Seat, run: ProcessRun) -> None:
        """Many calls in one exchange: what they take together, no account of single calls can hide."""
        if self._course.is_large and len(self.evidence.runs) > 1:
            return
        if self._burst_calls is None:
            self._burst_calls = self._course.burst_calls(self._opponent_us, opponent.usual_launch_us)
        if not self._burst_calls:
            return
        if self._shop.device.type == "cuda":
            kinds, bursts = {self._burst_calls, 1}, min(self._plan.bursts, MOST_GATED)
        else:
            kinds, bursts = {self._burst_calls}, self._plan.bursts
            self._burst(own, opponent, LEAST_BURST_CALLS)  # the first time everything takes longer
        for calls in sorted(kinds, reverse=True):
            for _ in range(bursts):
                pair = self._burst(own, opponent, calls)
                if pair is None:  # a stream holds only so much that waits
                    self._burst_calls = 1 if calls > 1 else 0
                    break
                run.bursts.append(pair)

    def _burst(self, own: Seat, opponent: Seat, calls: int) -> BurstPair | None:
        """What a call takes among so many; None where one of both waits for the device within its calls."""
        _freeze(own, opponent)
        self._course.deal_burst(calls)
        bursts: dict[bool, Burst] = {}
        for is_own in SYSTEM.sample((True, False), 2):
            if is_own:
                bursts[True] = self._course.ask_burst(own)
            else:
                _freeze(own)
                with _undisturbed():
                    bursts[False] = self._course.ask_burst(opponent)
        refuse_company(own.child)
        pairs = zip(bursts[True].answers, bursts[False].answers, strict=True)
        for k, (answer, other) in enumerate(pairs):
            self._course.turn_to(k)
            self._accept(answer)
            self._look(answer, other, audit=False)
        own_us, other_us = bursts[True].each_us, bursts[False].each_us
        return BurstPair(own_us, other_us, calls) if own_us is not None and other_us is not None else None

    def _accept(self, answer: Answer) -> None:
        if answer.complaint:
            raise _wrong(answer.complaint)
        if answer.findings:
            first = answer.findings[0]
            raise CandidateFailure("rejected", first.code, first.message)

    def _look(self, own: Answer, other: Answer, *, audit: bool) -> None:
        """Every answer against the opponent's; the first, drawn and suspicious ones against the oracle."""
        apart = distance(own.got, other.got)
        if not audit and not self._known_apart and self._course.is_large:
            self._unknown_apart.append(apart)
            return
        doubtful = not self._known_apart or suspicious(apart, self._known_apart)
        if not audit and not doubtful:
            return
        floor = rounding(own.got)
        if self._course.is_large or not doubtful:
            other.got.clear()
        self._audit(own)
        if doubtful and not self._course.is_large:
            self._audit_opponent(other)
        if math.isfinite(apart):
            self._known_apart.append(apart)
        if any(suspicious(earlier, self._known_apart, floor) for earlier in self._unknown_apart):
            raise _wrong(f"{max(self._unknown_apart):.3g} away from the baseline's, {apart:.3g} when checked")
        self._unknown_apart.clear()

    def _audit_opponent(self, other: Answer) -> None:
        """What the candidate is compared with must be right, or being far from it would seem usual."""
        report = compare(self._course.run, self._course.inputs, other, AUDITED)
        if not report.ok:
            text = f"the baseline's answer was spoiled beside the candidate: {report.message}"
            raise CandidateFailure("rejected", "opponent_disturbed", text)

    def _audit(self, answer: Answer) -> None:
        report = compare(self._course.run, self._course.inputs, answer, AUDITED)
        if not report.ok:
            shown = [f"{m.index}: {m.got:.8g} for {m.expected:.8g}" for m in report.mismatches[:1]]
            raise _wrong("; ".join([report.message, *shown]))

    def _ask_facts(self, own: Seat) -> None:
        facts = own.child.ask("facts", timeout_s=self._shop.policy.call_timeout_s).head
        self.evidence.findings += weigh_facts(facts)

    def _graphed(self, own: Seat, opponent: Seat) -> bool:
        """Both replayed from graphs, where both can be; False if the opponent may have suffered."""
        absent = ""
        if self._shop.device.type != "cuda":
            absent = "CUDA graphs need a GPU"
        elif self._course.is_large:
            absent = "launches do not matter at this size"
        elif self._stable.name == "max-autotune":
            absent = "the opponent replays a graph already"
        if absent:
            self.evidence.graphed_absent = absent
            return True
        try:
            for _ in range(GRAPHED_BLOCKS):
                self.evidence.graphed.append(self._block(own, opponent, set(), 0, graphed=True))
        except CandidateFailure as failure:
            if failure.status == "wrong":
                self.evidence.graphed_absent = f"replayed from a graph it is wrong: {failure.message}"
            else:
                self.evidence.graphed_absent = f"cannot be recorded as a graph: {failure.message}"
            self.evidence.graphed.clear()
            return False
        return True


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Around what is asked of the opponent, whom nobody else makes fail."""
    try:
        yield
    except CandidateFailure as failure:
        text = f"the baseline, which runs alone, failed beside the candidate: {failure.message}"
        raise CandidateFailure("rejected", "opponent_disturbed", text) from failure


def _freeze(*seats: Seat) -> None:
    """Nobody sees an input before it is asked for the answer, nor runs while others are asked."""
    for seat in seats:
        seat.child.freeze()


def least_margin(shop: Workshop, opponent_us: float) -> float:
    """The policy's margin, or what a clock with ticks of half a microsecond can tell at this time scale."""
    if shop.device.type != "cuda" or opponent_us <= 0:
        return shop.policy.margin
    return max(shop.policy.margin, EVENT_RESOLUTION_US / opponent_us)


def _wrong(how: str) -> CandidateFailure:
    return CandidateFailure("wrong", "wrong_when_timed", f"a timed call gave wrong results: {how}")
