"""The judge: a problem and a candidate in, a verdict out.

`Judge` keeps what makes the next verdict cheap: zygotes, spare children, prepared problems, built artefacts,
the baselines of a problem with their processes. Candidates cannot reach any of it, and one candidate's end
leaves the judge as it was.
"""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import TracebackType

import torch

from assay.build import BuildCache, ShippedBuild, find_toolchain, keep_build
from assay.candidates import Candidate
from assay.judge.calibration import self_test
from assay.judge.counting import CounterTool, run_under
from assay.judge.decide import decide
from assay.judge.deep import require_deep
from assay.judge.devices import cuda_arch, resolve_device
from assay.judge.judgement import Judgement
from assay.judge.legality import without_faults
from assay.judge.policy import Policy
from assay.judge.prepare import Prepared, prepare
from assay.judge.speedway import Speedway, calibration_path
from assay.judge.watch import make_watch
from assay.judge.workshop import Workshop, timed
from assay.problems import Problem
from assay.records import (
    CandidateFailure,
    FlawedProblem,
    Ladder,
    SelfTest,
    UserError,
    Verdict,
    to_json,
)
from assay.sandbox import Limits
from assay.worker import Pool, Zygote
from assay.worker.inspection import Inspection

COMPILERS = ("torch._dynamo", "torch._inductor", "torch._inductor.compile_fx", "torch.export")
KEPT_SPEEDWAYS = 8
"""Each keeps a few processes with a context on the device."""


class Judge:
    """Judges candidates on one device, one at a time."""

    def __init__(
        self, device: str | None = None, policy: Policy | None = None, cache: Path | None = None
    ) -> None:
        self.policy = policy or Policy()
        self.device = resolve_device(device)
        self._prepared: dict[str, Prepared] = {}
        self._speedways: OrderedDict[str, Speedway] = OrderedDict()
        if self.device.type == "cuda":
            # Oracles come in many sizes: memory of one is of use for the next only if it can be cut anew.
            torch._C._accelerator_setAllocatorSettings("expandable_segments:True")
        folder = cache or default_cache()
        toolchain = find_toolchain(cuda_arch(self.device))
        require_deep(self.policy, self.device, toolchain.sanitizer)
        limits = limits_of(self.policy, self.device)
        self._zygote = Zygote(str(self.device), _imported_for(self.policy))
        self._shop = Workshop(
            device=self.device,
            policy=self.policy,
            pool=Pool(self._zygote, limits),
            trusted=Pool(self._zygote, _wider(limits)),
            builds=BuildCache(folder / "builds"),
            toolchain=toolchain,
            watch=make_watch(self.device, toolchain),
            cache=folder,
        )

    def __enter__(self) -> Judge:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        for speedway in self._speedways.values():
            speedway.close()
        self._speedways.clear()
        self._shop.pool.close()
        self._shop.trusted.close()
        self._zygote.close()

    def settle(self) -> None:
        """Wait until the processes for the next verdict have started, as they have when nobody hurries."""
        self._shop.pool.settle()

    def prepare(self, problem: Problem) -> Prepared:
        """Calibrate a problem, once; raises FlawedProblem where no verdict would mean anything."""
        if problem.digest not in self._prepared:
            prepared = prepare(problem, self.policy, self.device)
            if self.device.type == "cuda":
                prepared = without_faults(self._shop, problem, prepared)
            self._prepared[problem.digest] = prepared
        prepared = self._prepared[problem.digest]
        if prepared.record.flaws and not self.policy.allow_flawed:
            reasons = "; ".join(prepared.record.flaws)
            raise FlawedProblem(
                f"{problem.name} cannot tell right from wrong: {reasons} (judge anyway with --allow-flawed)"
            )
        return prepared

    def evaluate(self, problem: Problem, candidate: Candidate, worth: float = 0.0) -> Verdict:
        """Judge one candidate; whatever it does becomes a verdict.

        One that surely stays below the ratio `worth` is not timed to the end, and not called faster.
        """
        _check_fit(problem, candidate, self.device)
        timing = self.policy.speed and not (
            self.device.type == "cpu" and candidate.language in ("triton", "gluon")
        )
        needed = 1 + self.policy.processes_timed if timing and self.device.type == "cuda" else 1
        if self._shop.pool.spares < needed:
            self._shop.pool.warm(2 * needed)
        if timing and problem.digest not in self._speedways:
            self._shop.trusted.warm(1)
        seconds: dict[str, float] = {}
        with timed(seconds, "prepare"):
            prepared = self.prepare(problem)
        speedway = None
        if timing:
            with timed(seconds, "baselines"):
                speedway = self._speedway(problem, prepared)
                speedway.open()
        # Those of the next verdict start while this one checks, not while it builds or times. On a CPU they
        # start in no time, and would take its cores from the check.
        run = Judgement(self._shop, prepared, problem, candidate, seconds, spares=2 * needed, worth=worth)
        return decide(run.collect(speedway))

    def bench(self, problem: Problem) -> Ladder:
        """The baselines of a problem, without a candidate."""
        self._shop.trusted.warm(1)
        return self._speedway(problem, self.prepare(problem)).ladder()

    def compile_baselines(self, problem: Problem, names: tuple[str, ...]) -> None:
        """Compile rungs of a problem for a later `bench` or `evaluate`, by this judge or by another one."""
        self._speedway(problem, self.prepare(problem)).compile_ahead(names)

    def calibrate(self, comparisons: int, on_progress: Callable[[str], None]) -> SelfTest:
        """Test the clock on kernels whose relation is known; later verdicts carry what it found."""
        found = self_test(self._shop, comparisons, on_progress)
        path = calibration_path(self._shop.cache, self.device)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(to_json(found, indent=1))
        return found

    def count_under(
        self, problem: Problem, candidate: Candidate, tool: CounterTool
    ) -> tuple[str, Inspection] | None:
        """Run a candidate that has passed under a tool that counts: the case it was given, what came of it.

        None where every case is too large to be given to a program of its own.
        """
        return run_under(self._shop, self.prepare(problem), problem, candidate, tool)

    def build_ahead(self, problem: Problem, candidate: Candidate) -> None:
        """Compile a candidate that will be judged later; may be called from another thread."""
        _check_fit(problem, candidate, self.device)
        with contextlib.suppress(CandidateFailure):  # the verdict will tell
            self._shop.built(candidate)

    @property
    def cuda_arch(self) -> str | None:
        """What candidates are compiled for; None on a CPU."""
        return self._shop.toolchain.cuda_arch

    def keep_build(self, build: ShippedBuild) -> None:
        """What another machine has compiled; of use where this one's key is the same."""
        keep_build(self._shop.builds, build)

    def peak_bytes(self) -> int:
        """Most device memory this process has held at once since this was last asked: its own tensors and
        what it shares with children."""
        self._shop.note_peak(0)
        peak, self._shop.peaks[0] = self._shop.peaks[0], 0
        return peak

    def _speedway(self, problem: Problem, prepared: Prepared) -> Speedway:
        """The baselines of a problem; those of the problem not asked for the longest are let go."""
        if problem.digest not in self._speedways:
            self._speedways[problem.digest] = Speedway(self._shop, prepared, problem)
        self._speedways.move_to_end(problem.digest)
        while len(self._speedways) > KEPT_SPEEDWAYS:
            self._speedways.popitem(last=False)[1].close()
        return self._speedways[problem.digest]


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


def limits_of(policy: Policy, device: torch.device) -> Limits:
    return Limits(
        memory_bytes=policy.memory_bytes,
        # The CUDA driver reserves far more address space than it ever uses.
        address_space_bytes=None if device.type == "cuda" else policy.memory_bytes * 4,
        processes=policy.processes,
        file_bytes=policy.scratch_bytes,
        scratch_bytes=policy.scratch_bytes,
        open_files=1024,
    )


def _imported_for(policy: Policy) -> tuple[str, ...]:
    """What processes start with: seconds to import, and of use to baselines that are compiled alone."""
    return COMPILERS if policy.speed and policy.rungs != ("eager",) else ()


def _wider(limits: Limits) -> Limits:
    """Compilers of baselines start workers and write large caches."""
    return replace(
        limits,
        memory_bytes=limits.memory_bytes * 4,
        address_space_bytes=None,
        processes=limits.processes * 4,
        file_bytes=limits.file_bytes * 4,
        scratch_bytes=limits.scratch_bytes * 4,
    )


def evaluate(
    problem: Problem, candidate: Candidate, policy: Policy | None = None, device: str | None = None
) -> Verdict:
    """Judge one candidate with a judge of its own; keep a `Judge` to judge many."""
    with Judge(device, policy) as judge:
        return judge.evaluate(problem, candidate)
