"""The judge: a problem and a candidate in, a verdict out.

`Judge` keeps what makes the next verdict cheap: a zygote, a spare child, prepared problems, built
artefacts. Candidates cannot reach any of it, and one candidate's end leaves the judge as it was.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType

import torch

from assay.build import BuildCache, find_toolchain
from assay.candidates import Candidate
from assay.judge.decide import decide
from assay.judge.devices import cuda_arch, resolve_device
from assay.judge.judgement import Judgement, Workshop, timed
from assay.judge.policy import Policy
from assay.judge.prepare import Prepared, prepare
from assay.problems import Problem
from assay.records import FlawedProblem, UserError, Verdict
from assay.sandbox import Limits
from assay.worker import Pool


class Judge:
    """Judges candidates on one device, one at a time."""

    def __init__(
        self, device: str | None = None, policy: Policy | None = None, cache: Path | None = None
    ) -> None:
        self.policy = policy or Policy()
        self.device = resolve_device(device)
        self._prepared: dict[str, Prepared] = {}
        self._shop = Workshop(
            device=self.device,
            policy=self.policy,
            pool=Pool(str(self.device), _limits(self.policy, self.device)),
            builds=BuildCache(cache or default_cache() / "builds"),
            toolchain=find_toolchain(cuda_arch(self.device)),
        )

    def __enter__(self) -> Judge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._shop.pool.close()

    def prepare(self, problem: Problem) -> Prepared:
        """Calibrate a problem, once; raises FlawedProblem where no verdict would mean anything."""
        if problem.digest not in self._prepared:
            self._prepared[problem.digest] = prepare(problem, self.policy, self.device)
        prepared = self._prepared[problem.digest]
        if prepared.record.flaws and not self.policy.allow_flawed:
            reasons = "; ".join(prepared.record.flaws)
            raise FlawedProblem(
                f"{problem.name} cannot tell right from wrong: {reasons} (judge anyway with --allow-flawed)"
            )
        return prepared

    def evaluate(self, problem: Problem, candidate: Candidate) -> Verdict:
        """Judge one candidate; whatever it does becomes a verdict."""
        _check_fit(problem, candidate, self.device)
        self._shop.pool.warm()
        seconds: dict[str, float] = {}
        with timed(seconds, "prepare"):
            prepared = self.prepare(problem)
        run = Judgement(self._shop, prepared, problem, candidate, seconds)
        evidence = run.collect()
        self._shop.pool.warm()
        return decide(evidence)


def _check_fit(problem: Problem, candidate: Candidate, device: torch.device) -> None:
    """Mistakes of the person who asks, told before anything runs."""
    if device.type == "cpu" and candidate.language in ("cuda", "gluon"):
        raise UserError(
            f"{candidate.name} is written in {candidate.language}, which needs a GPU; this is {device}"
        )
    if device.type == "cuda" and candidate.suffix == ".cpp" and candidate.entry == "launch":
        raise UserError(f"{candidate.name} is C++ for the CPU: judge it with --device cpu")
    if (problem.entry == "custom_kernel") != (candidate.entry == "custom_kernel"):
        raise UserError(f"{problem.name} wants {problem.entry}; {candidate.name} defines {candidate.entry}")


def default_cache() -> Path:
    root = os.environ.get("ASSAY_CACHE") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "assay"
    )
    return Path(root)


def _limits(policy: Policy, device: torch.device) -> Limits:
    return Limits(
        memory_bytes=policy.memory_bytes,
        # The CUDA driver reserves far more address space than it ever uses.
        address_space_bytes=None if device.type == "cuda" else policy.memory_bytes * 4,
        processes=policy.processes,
        file_bytes=policy.scratch_bytes,
        scratch_bytes=policy.scratch_bytes,
        open_files=1024,
    )


def evaluate(
    problem: Problem, candidate: Candidate, policy: Policy | None = None, device: str | None = None
) -> Verdict:
    """Judge one candidate with a judge of its own; keep a `Judge` to judge many."""
    with Judge(device, policy) as judge:
        return judge.evaluate(problem, candidate)
