"""Who gives the verdicts: a running `assay serve-judge`, or judges that are kept warm in this process.

Everything here is called in the judge's thread, except `close`. Torch is imported with the first verdict that
is given here. Not covered: several devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.daemon.client import Unavailable, find_daemon
from assay.records import AssayError, Ladder, UserError, Verdict

if TYPE_CHECKING:
    from assay.daemon.bench import Bench
    from assay.problems import Problem

Say = Callable[[str], None]
"""Tells whoever waits what is going on."""


class House:
    """Verdicts on one device, under one policy unless somebody asks for another."""

    def __init__(self, device: str | None, policy: Mapping[str, Any], *, use_daemon: bool) -> None:
        self.device = device
        self.policy = policy
        self._use_daemon = use_daemon
        self._bench: Bench | None = None

    def check(self, problem: Path, candidate: Path, policy: Mapping[str, Any], say: Say) -> Verdict:
        """A daemon's verdict if one can be asked, else our own."""
        daemon = find_daemon(self.device) if self._use_daemon else None
        if isinstance(daemon, Unavailable):
            say(f"{daemon.reason}; judging in this process")
        elif daemon is not None:
            with daemon:
                return daemon.check(str(problem), str(candidate), policy, say)
        return self._check_here(str(problem), str(candidate), policy, say)

    def bench(self, problem: Path, say: Say) -> Ladder:
        """The baselines of a problem; rarely asked for, so that no judge is kept for it."""
        from assay.daemon.bench import read_policy
        from assay.judge import Judge

        opened = read_problem(problem)
        say("timing the baselines; those of a new problem are compiled first, which can take minutes")
        with Judge(self.device, read_policy(self.policy)) as judge:
            return judge.bench(opened)

    def close(self) -> None:
        """End all judges and their children, whatever they are doing."""
        bench, self._bench = self._bench, None
        if bench is not None:
            bench.close()

    def _check_here(self, problem: str, candidate: str, policy: Mapping[str, Any], say: Say) -> Verdict:
        from assay.daemon.bench import Bench, read_policy, read_source
        from assay.judge import resolve_device

        asked = read_policy(policy)
        source = read_source(candidate)
        if self._bench is None:
            self._bench = Bench(resolve_device(self.device))
        bench = self._bench
        foreseen = False
        try:
            say("reading the problem")
            opened = bench.known_problem(problem, asked) or bench.open_problem(problem, asked)
            say("judging")
            verdict = bench.evaluate(asked, opened, source)
            foreseen = True
            return verdict
        except AssayError:
            foreseen = True
            bench.check_device()
            raise
        finally:
            # In a state nobody foresaw, after sys.exit() in a problem say, a judge could give wrong verdicts.
            if foreseen:
                bench.sweep()
            else:
                self.close()


def read_problem(path: Path) -> Problem:
    """The problem at a path; reading it runs its code."""
    from assay.problems import PROBLEM_CODE_ERRORS, load_problem

    try:
        return load_problem(path)
    except PROBLEM_CODE_ERRORS as error:
        words = (str(error).splitlines() or [""])[0]
        raise UserError(f"{path}: cannot be read as a problem ({type(error).__name__}: {words})") from error
