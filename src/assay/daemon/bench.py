"""The judges and problems a daemon keeps warm.

One judge per policy, two at most; the one not used for longest makes room. A judge that failed is closed, and
the next request with its policy gets a new one. Judges are made, used and closed in the main thread alone;
other threads may only have them compile ahead, and a judge that makes room meanwhile is closed when the
compiler has ended.

Problems that are one file are kept too, by path: one whose text is still the same needs no main thread to be
opened, so its candidate is compiled at once. Not covered: how much memory a prepared problem holds; a judge
that has prepared many is replaced.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from assay.candidates import Candidate, read_candidate
from assay.judge import Judge, Policy
from assay.problems import PROBLEM_CODE_ERRORS, Problem, load_problem
from assay.records import AssayError, CandidateFailure, FlawedProblem, JudgeFault, UserError, Verdict
from assay.records.codec import digest, from_plain, to_json

MAX_JUDGES = 2
MAX_PROBLEMS = 64
_MOST_SECONDS = 7 * 86400
_MOST_COUNT = 1 << 60


@dataclass(slots=True)
class KeptJudge:
    """A judge and what the daemon knows of it."""

    judge: Judge
    problems: set[str] = field(default_factory=set)
    """Digests of the problems it has prepared."""
    compiling: int = 0
    """Threads that have it compile right now."""


class Bench:
    """Judges for one device, by policy."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._lock = threading.Lock()
        self._judges: OrderedDict[str, KeptJudge] = OrderedDict()
        self._retired: list[KeptJudge] = []
        self._problems: OrderedDict[str, Problem] = OrderedDict()
        self._judge_for(Policy())

    # ---- for any thread

    def known_problem(self, path: str, policy: Policy) -> Problem | None:
        """The problem at `path` if it was opened before, is still the same, and has a judge."""
        with self._lock:
            problem = self._problems.get(path)
            if problem is None or _key(policy) not in self._judges:
                return None
        try:
            text = Path(path).read_bytes()
        except OSError:
            return None  # opening it will say why
        return problem if hashlib.sha256(text).hexdigest() == problem.digest else None

    def build_ahead(self, policy: Policy, problem: Problem, candidate: Candidate) -> None:
        """Compile a candidate that has to wait anyway; without a judge to do it, its turn will."""
        with self._lock:
            kept = self._judges.get(_key(policy))
            if kept is None:
                return
            kept.compiling += 1
        try:
            # A failure to compile is in the build cache now; the candidate's turn makes a verdict of it.
            with contextlib.suppress(CandidateFailure):
                kept.judge.build_ahead(problem, candidate)
        except JudgeFault:
            self.retire(policy)
            raise
        finally:
            with self._lock:
                kept.compiling -= 1

    def counts(self) -> tuple[int, int]:
        """Judges, and problems they have prepared."""
        with self._lock:
            return len(self._judges), sum(len(kept.problems) for kept in self._judges.values())

    def retire(self, policy: Policy) -> None:
        """Let go of the judge for a policy; `sweep` closes it."""
        with self._lock:
            kept = self._judges.pop(_key(policy), None)
            if kept is not None:
                self._retired.append(kept)

    # ---- for the main thread

    def open_problem(self, path: str, policy: Policy) -> Problem:
        """Read a problem, which runs its code, and see to a judge for the policy."""
        self._judge_for(policy)
        try:
            problem = load_problem(path)
        except PROBLEM_CODE_ERRORS as error:
            words = (str(error).splitlines() or [""])[0]
            raise UserError(
                f"{path}: cannot be read as a problem ({type(error).__name__}: {words})"
            ) from error
        with self._lock:
            self._problems[path] = problem
            self._problems.move_to_end(path)
            while len(self._problems) > MAX_PROBLEMS:
                self._problems.popitem(last=False)
        return problem

    def evaluate(self, policy: Policy, problem: Problem, candidate: Candidate) -> Verdict:
        """Judge; after a fault of the judge its policy gets another one next time."""
        kept = self._judge_for(policy)
        try:
            verdict = kept.judge.evaluate(problem, candidate)
        except FlawedProblem:
            self._remember(kept, problem)
            raise
        except UserError:
            raise
        except AssayError:
            self.retire(policy)
            raise
        self._remember(kept, problem)
        if len(kept.problems) >= MAX_PROBLEMS:
            self.retire(policy)
        return verdict

    def sweep(self) -> None:
        """Close what was retired and compiles nothing any more."""
        with self._lock:
            idle = [kept for kept in self._retired if not kept.compiling]
            self._retired = [kept for kept in self._retired if kept.compiling]
        for kept in idle:
            kept.judge.close()

    def check_device(self) -> None:
        """A broken CUDA context fails every later problem, whatever it is: better no daemon than this one."""
        if self.device.type != "cuda":
            return
        try:
            torch.cuda.synchronize(self.device)
        except RuntimeError as error:
            raise JudgeFault(
                f"{self.device} is unusable from this process: start the daemon again"
            ) from error

    def close(self) -> None:
        """End every judge and its children, compiling or not."""
        with self._lock:
            last = [*self._judges.values(), *self._retired]
            self._judges.clear()
            self._retired.clear()
        for kept in last:
            kept.judge.close()

    def _judge_for(self, policy: Policy) -> KeptJudge:
        key = _key(policy)
        with self._lock:
            kept = self._judges.get(key)
            if kept is not None:
                self._judges.move_to_end(key)
                return kept
            while len(self._judges) >= MAX_JUDGES:
                self._retired.append(self._judges.popitem(last=False)[1])
        self.sweep()
        kept = KeptJudge(Judge(str(self.device), policy))
        with self._lock:
            self._judges[key] = kept
        return kept

    def _remember(self, kept: KeptJudge, problem: Problem) -> None:
        with self._lock:
            kept.problems.add(problem.digest)


def read_policy(plain: Mapping[str, Any]) -> Policy:
    """A client's policy. Figures that a clock or a resource limit cannot hold are refused here: below, they
    would look like a fault of the judge.
    """
    policy = from_plain(Policy, plain, "policy")
    for name in Policy.__dataclass_fields__:
        value = getattr(policy, name)
        most = _MOST_SECONDS if name.endswith("_s") else _MOST_COUNT
        if isinstance(value, (int, float)) and not 0 <= value <= most:
            raise UserError(f"policy.{name}: {value!r} is not between 0 and {most}")
    return policy


def read_source(path: str) -> Candidate:
    """The candidate at `path`."""
    try:
        return read_candidate(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}): check the path") from error


def _key(policy: Policy) -> str:
    return digest(to_json(policy))
