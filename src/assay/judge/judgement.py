"""One candidate's way through the gates: built, loaded, run on every case; what happened becomes evidence."""

from __future__ import annotations

import dataclasses
import time

import torch

from assay.candidates import Candidate
from assay.judge.cases import CaseEvidence, CaseRunner
from assay.judge.census import findings_of, take_census
from assay.judge.decide import Evidence
from assay.judge.deep import Subject, inspect
from assay.judge.desk import capacity_bytes
from assay.judge.devices import is_scarce
from assay.judge.environment import read_environment
from assay.judge.facts import weigh_facts
from assay.judge.pace import MIDDLE_BYTES
from assay.judge.prepare import Prepared, PreparedCase, unseen
from assay.judge.resources import ask_resources, build_log, describe
from assay.judge.speedway import Speedway
from assay.judge.workshop import Workshop, timed
from assay.problems import Problem
from assay.records import (
    CandidateFailure,
    CandidateRecord,
    CaseResult,
    Census,
    Finding,
    JudgeFault,
    KernelResources,
    Layer,
    Speed,
    UserError,
    to_plain,
)
from assay.sandbox import missing
from assay.worker import Child
from assay.worker.resources import Told

ENOUGH_WRONG_CASES = 3
LARGE_CALLS = 2
MODEST_BYTES = 8 << 30


class Judgement:
    """One candidate's way through the gates."""

    def __init__(
        self,
        shop: Workshop,
        prepared: Prepared,
        problem: Problem,
        candidate: Candidate,
        seconds: dict[str, float],
        *,
        spares: int = 0,
        worth: float = 0.0,
    ) -> None:
        """`spares` is how many processes are to be there for later, started once this one is built; `worth`
        is the ratio below which its time is not wanted exactly."""
        self._shop = shop
        self._spares = spares
        self._worth = worth
        self._policy = shop.policy
        self._prepared = prepared
        self._problem = problem
        self._candidate = candidate
        self._seconds = seconds
        self._cases: list[CaseResult] = []
        self._findings: list[Finding] = list(prepared.notes)
        self._state = "none"
        self._limit_s = 0.0
        self._layers: tuple[Layer, ...] = ()
        self._tail = ""
        self._caches = b""
        self._first_call_ms: float | None = None
        self._census: Census | None = None
        self._told = Told()
        self._built: bytes | None = None
        self._speed: Speed | None = None

    def collect(self, speedway: Speedway | None) -> Evidence:
        """Both gates; without a speedway the first alone."""
        failure = None
        try:
            self._limit_s = self._policy.build_timeout_s
            with timed(self._seconds, "build"):
                self._built = built = self._shop.built(self._candidate)
            self._shop.pool.warm(self._spares)
            self._in_child(built)
            if self._policy.deep and self._is_clean():
                with timed(self._seconds, "deep"):
                    self._inspect(built)
            if speedway is not None and self._is_clean():
                self._limit_s = self._policy.call_timeout_s
                with timed(self._seconds, "speed"):
                    self._race(speedway, built)
        except CandidateFailure as error:
            failure = error
        return Evidence(
            problem=self._prepared.record,
            candidate=_record(self._candidate),
            cases=tuple(self._cases),
            findings=tuple(self._findings),
            failure=failure,
            limit_s=self._limit_s,
            sandbox=self._layers,
            environment=read_environment(self._shop.device),
            policy=to_plain(self._policy),
            state=self._state,
            seconds=self._seconds,
            speed_measurable=self._measurable,
            output_tail=self._tail,
            census=self._census,
            speed=self._speed,
            speed_absent=self._speed_absent(speedway),
            resources=self._describe(),
        )

    @property
    def _measurable(self) -> bool:
        return not (self._shop.device.type == "cpu" and self._candidate.language in ("triton", "gluon"))

    def _is_clean(self) -> bool:
        """Whether gate 1 would pass it: nothing else is worth timing."""
        wrong = any(case.outcome not in ("passed", "refused") for case in self._cases)
        return self._measurable and not wrong and not any(finding.fatal for finding in self._findings)

    def _speed_absent(self, speedway: Speedway | None) -> str:
        if self._speed is not None:
            return ""
        if not self._measurable:
            return "run through Triton's interpreter: times would mean nothing"
        return speedway.why_absent() if speedway is not None else "not asked for"

    def _race(self, speedway: Speedway, built: bytes) -> None:
        compile_s = self._seconds.get("build", 0.0) + self._seconds.get("load", 0.0)
        self._speed, findings = speedway.race(
            self._candidate, built, self._caches, self._first_call_ms, compile_s, self._worth
        )
        self._findings += findings

    def _inspect(self, built: bytes) -> None:
        load, payload = self._shop.to_load(
            self._candidate, built, self._problem.argument_names, self._problem.support_files
        )
        by_seed = self._state == "by seed"
        subject = Subject(self._candidate, load, payload, self._caches, by_seed)
        self._findings += inspect(self._shop, subject, self._passed(), self._prepared.precision)

    def _in_child(self, built: bytes) -> None:
        """Gate 1 in a fresh child, and its end."""
        with timed(self._seconds, "start"):
            child = self._shop.pool.take()
        child.deadline = time.monotonic() + self._policy.run_timeout_s
        self._layers = child.layers
        if self._policy.require_full_sandbox and (gone := missing(list(child.layers))):
            child.close()
            names = ", ".join(f"{layer.name} ({layer.detail})" for layer in gone)
            raise UserError(f"the sandbox is not complete here: {names}; see `assay doctor`")
        try:
            self._run(child, built)
        finally:
            scarce = is_scarce(self._shop.device)
            child.kill()
            self._tail = child.output_tail()
            child.close(wait=scarce)

    def _run(self, child: Child, built: bytes) -> None:
        self._limit_s = self._policy.load_timeout_s
        with timed(self._seconds, "load"):
            self._shop.load(
                child, self._candidate, built, self._problem.argument_names, self._problem.support_files
            )
        self._runner = runner = CaseRunner(
            child,
            self._shop.device,
            self._policy,
            self._prepared.precision,
            is_module=self._candidate.entry == "ModelNew",
            keeps_state=self._prepared.record.rules.keeps_state,
        )
        self._limit_s = self._policy.call_timeout_s
        try:
            runner.start_timing(self._shop.watch)
            with timed(self._seconds, "correctness"):
                for case in self._prepared.cases:
                    self._run_case(runner, case)
                    if sum(c.outcome == "wrong" for c in self._cases) >= ENOUGH_WRONG_CASES:
                        break
            self._weigh_refusals()
            self._ask_facts(child)
            if runner.first_call is not None:
                self._first_call_ms = runner.first_call.host_us / 1e3
            self._caches = child.ask("caches", timeout_s=self._limit_s).payload
            with timed(self._seconds, "census"):
                self._count(child, runner)
            if self._census is not None:
                with timed(self._seconds, "resources"):
                    self._told = ask_resources(child, self._candidate)
        except torch.OutOfMemoryError as error:
            raise self._starved(child) from error
        finally:
            self._shop.note_peak(runner.shared_bytes())
            runner.close()

    def _count(self, child: Child, runner: CaseRunner) -> None:
        """What becomes of its answers, what it ran, whether its kernels mattered: asked if it passed."""
        telling = self._telling()
        if not telling or any(finding.fatal for finding in self._findings):
            return
        small = min(telling, key=lambda c: capacity_bytes(c.calibration.shapes, c.calibration.dtypes))
        self._findings += runner.keep_many(small)
        if self._prepared.record.rules.any_stream and self._shop.device.type == "cuda":
            self._findings += runner.move_streams(small)
        rules, nominal = self._prepared.record.rules, self._prepared.cases[0]
        room = capacity_bytes(nominal.calibration.shapes, nominal.calibration.dtypes)
        self._census = take_census(
            child,
            runner,
            nominal,
            small,
            self._candidate,
            may_choose=rules.library_calls and room <= self._policy.large_bytes,
        )
        self._findings += findings_of(self._census, rules)

    def _describe(self) -> tuple[KernelResources, ...]:
        """What it takes, as far as it came."""
        if self._built is None:
            return ()
        log = build_log(self._shop, self._candidate)
        return describe(self._candidate, self._built, log, self._told, self._shop.device)

    def _telling(self) -> list[PreparedCase]:
        """The cases it passed that tell a right answer from a wrong one."""
        return [case for case in self._passed() if case.calibration.discriminates]

    def _passed(self) -> list[PreparedCase]:
        """But for those of nothing, of which every answer is right."""
        pairs = zip(self._prepared.cases, self._cases, strict=False)
        passed = [case for case, result in pairs if result.outcome == "passed"]
        return [case for case in passed if all(0 not in shape for shape in case.calibration.shapes)]

    def _weigh_refusals(self) -> None:
        """Refusing a derived case is fair; refusing every case that tells right from wrong proves nothing."""
        pairs = zip(self._prepared.cases, self._cases, strict=False)
        ran = [case for case, result in pairs if result.outcome != "refused"]
        if len(ran) == len(self._cases) or self._prepared.record.flaws:
            return
        known = {finding.code for finding in self._findings}
        self._findings += [note for note in unseen(ran) if note.code not in known]
        if not any(case.calibration.discriminates for case in ran):
            text = "refused every case that tells a right answer from a wrong one"
            self._findings.append(Finding("refused_every_test", text, True))

    def _starved(self, child: Child) -> Exception:
        """The judge itself ran out of device memory: find out who took it."""
        device = self._shop.device
        before = torch.cuda.mem_get_info(device)[0]
        child.kill()
        torch.cuda.empty_cache()
        taken = torch.cuda.mem_get_info(device)[0] - before
        own = max(capacity_bytes(c.calibration.shapes, c.calibration.dtypes) for c in self._prepared.cases)
        if taken > MODEST_BYTES + 8 * own:
            text = f"held {taken >> 20} MiB of device memory and left the judge too little"
            return CandidateFailure("crashed", "device_memory", text)
        return JudgeFault(f"{self._problem.name} does not fit on {device} in float64 beside the candidate")

    def _ask_facts(self, child: Child) -> None:
        facts = child.ask("facts", timeout_s=self._limit_s).head
        self._findings += weigh_facts(facts)

    def _run_case(self, runner: CaseRunner, case: PreparedCase) -> None:
        calls = self._calls(case)
        try:
            evidence = runner.run(case, calls)
        except CandidateFailure as failure:
            evidence = self._refused_or_raise(case, calls, failure)
        self._cases.append(evidence.result)
        said = {(finding.code, finding.message) for finding in self._findings}
        self._findings += [f for f in dict.fromkeys(evidence.findings) if (f.code, f.message) not in said]
        if evidence.state != "none" and self._state != "by seed":
            self._state = evidence.state

    def _calls(self, case: PreparedCase) -> int:
        """Timed calls are checked calls too, and there are several of those: here large ones get fewer."""
        policy = self._policy
        room = capacity_bytes(case.calibration.shapes, case.calibration.dtypes)
        large = MIDDLE_BYTES if policy.speed else policy.large_bytes
        if not case.nominal:
            return 1 if room > large else policy.other_calls
        if room <= large:
            return policy.nominal_calls
        few = 1 if policy.speed and room > policy.large_bytes else LARGE_CALLS
        return min(few, policy.nominal_calls)

    def _accepts_nominal_contents(self, case: PreparedCase, calls: int) -> bool:
        """Whether only the values were refused: then it is no matter of size or layout."""
        spec = case.instance.case
        if spec.distribution == "nominal":
            return False
        plain = self._problem.bind(dataclasses.replace(spec, distribution="nominal"))
        try:
            self._runner.run(dataclasses.replace(case, instance=plain), calls)
        except CandidateFailure as failure:
            if failure.code in ("raised", "construct_failed", "compile_error"):
                return False
            raise
        return True

    def _refused_or_raise(self, case: PreparedCase, calls: int, failure: CandidateFailure) -> CaseEvidence:
        """A clean exception on a case the problem never declared is a refusal; anything else ends the run."""
        spec = case.instance.case
        refusal = failure.code in ("raised", "construct_failed", "compile_error")
        if refusal and spec.derived and self._accepts_nominal_contents(case, calls):
            raise CandidateFailure(
                "rejected", "refused_contents", f"refuses inputs for their values: {failure.message}"
            )
        result = CaseResult(
            name=spec.name,
            outcome="refused"
            if spec.derived and refusal
            else failure.status.replace("build_failed", "crashed"),
            hidden=spec.hidden,
            derived=spec.derived,
            sizes=dict(spec.sizes),
            layout=spec.layout,
            distribution=spec.distribution,
            dtype=spec.dtype,
            calls=0,
            message=failure.message,
        )
        if result.outcome != "refused":
            self._cases.append(result)
            raise failure
        text = f"refuses a size or layout the problem allows: {failure.message}"
        note = Finding("refused_case", text, False, spec.name)
        return CaseEvidence(result, [note])


def _record(candidate: Candidate) -> CandidateRecord:
    return CandidateRecord(candidate.name, candidate.language, candidate.entry, candidate.digest)
