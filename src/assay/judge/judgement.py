"""One candidate's way through the gates: built, loaded, run on every case; what happened becomes evidence."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch

from assay.build import EXTENSION_NAME, BuildCache, Toolchain, build_key, needs_build
from assay.candidates import Candidate
from assay.judge.cases import CaseEvidence, CaseRunner
from assay.judge.decide import Evidence
from assay.judge.desk import capacity_bytes
from assay.judge.environment import read_environment
from assay.judge.policy import Policy
from assay.judge.prepare import Prepared, PreparedCase, unseen
from assay.problems import Problem
from assay.records import (
    CandidateFailure,
    CandidateRecord,
    CaseResult,
    Finding,
    JudgeFault,
    Layer,
    UserError,
    to_plain,
)
from assay.sandbox import missing
from assay.worker import Child, Pool
from assay.worker.messages import decode_names

T = TypeVar("T")
ENOUGH_WRONG_CASES = 3
LARGE_CALLS = 2
MODEST_BYTES = 8 << 30


@dataclass(frozen=True, slots=True)
class Workshop:
    """What a judge has at hand for every candidate."""

    device: torch.device
    policy: Policy
    pool: Pool
    builds: BuildCache
    toolchain: Toolchain


class Judgement:
    """One candidate's way through the gates."""

    def __init__(
        self,
        shop: Workshop,
        prepared: Prepared,
        problem: Problem,
        candidate: Candidate,
        seconds: dict[str, float],
    ) -> None:
        self._shop = shop
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

    def collect(self) -> Evidence:
        failure = None
        try:
            with timed(self._seconds, "build"):
                built = self._build()
            self._with_child(lambda child: self._run(child, built))
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
            speed_measurable=not (
                self._shop.device.type == "cpu" and self._candidate.language in ("triton", "gluon")
            ),
            output_tail=self._tail,
        )

    def _with_child(self, work: Callable[[Child], T]) -> T:
        """Run something in a fresh child, and see to its end."""
        with timed(self._seconds, "start"):
            child = self._shop.pool.take()
        child.deadline = time.monotonic() + self._policy.run_timeout_s
        self._layers = child.layers
        if self._policy.require_full_sandbox and (gone := missing(list(child.layers))):
            child.close()
            names = ", ".join(f"{layer.name} ({layer.detail})" for layer in gone)
            raise UserError(f"the sandbox is not complete here: {names}; see `assay doctor`")
        try:
            return work(child)
        finally:
            child.kill()
            self._tail = child.output_tail()
            child.close()

    def _build(self) -> bytes:
        """The compiled artefact of a bare source, from the cache or from a confined compiler."""
        if not needs_build(self._candidate):
            return b""
        builds, toolchain = self._shop.builds, self._shop.toolchain
        key = build_key(self._candidate, toolchain)
        with builds.locked(key):
            cached = builds.get(key)
            if cached is not None:
                cached.raise_failure()
                return cached.artefact or b""
            try:
                return self._with_child(lambda child: self._compile(child, key))
            except CandidateFailure as failure:
                if failure.status == "build_failed":
                    builds.put_failure(key, failure.code, failure.message, failure.detail)
                raise

    def _compile(self, child: Child, key: str) -> bytes:
        head = {"candidate": to_plain(self._candidate), "toolchain": to_plain(self._shop.toolchain)}
        self._limit_s = self._policy.build_timeout_s
        reply = child.ask("build", head, timeout_s=self._limit_s)
        if "user_error" in reply.head:
            raise UserError(str(reply.head["user_error"]))
        kind, log = str(reply.head.get("kind")), str(reply.head.get("log"))
        self._shop.builds.put_success(key, kind, reply.payload, log, 0.0)
        return reply.payload

    def _run(self, child: Child, built: bytes) -> None:
        with timed(self._seconds, "load"):
            self._load(child, built)
        self._runner = runner = CaseRunner(
            child,
            self._shop.device,
            self._policy,
            self._prepared.precision,
            is_module=self._candidate.entry == "ModelNew",
        )
        self._limit_s = self._policy.call_timeout_s
        try:
            with timed(self._seconds, "correctness"):
                for case in self._prepared.cases:
                    self._run_case(runner, case)
                    if sum(c.outcome == "wrong" for c in self._cases) >= ENOUGH_WRONG_CASES:
                        break
            self._weigh_refusals()
            self._ask_facts(child)
        except torch.OutOfMemoryError as error:
            raise self._starved(child) from error
        finally:
            runner.close()

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

    def _load(self, child: Child, built: bytes) -> None:
        self._limit_s = self._policy.load_timeout_s
        bare = needs_build(self._candidate)
        head = {
            "candidate": to_plain(self._candidate),
            "argument_names": list(self._problem.argument_names),
            "support_files": dict(self._problem.support_files),
            "built_name": _built_name(self._candidate) if bare else "",
        }
        builds, key = self._shop.builds, build_key(self._candidate, self._shop.toolchain)
        known = None if bare else builds.get(key)
        if known is not None:
            known.raise_failure()
            built = known.artefact or b""
        try:
            reply = child.ask("load", head, payload=built, timeout_s=self._limit_s)
        except CandidateFailure as failure:
            if failure.code == "compile_error":
                builds.put_failure(key, failure.code, failure.message, failure.detail)
            raise
        if reply.payload and known is None:
            builds.put_success(key, "inline", reply.payload, "", 0.0)

    def _ask_facts(self, child: Child) -> None:
        patched = decode_names(child.ask("facts", timeout_s=self._limit_s).head.get("patched"))
        if patched:
            text = f"replaced {', '.join(patched)}"
            self._findings.append(Finding("patched_names", text, True))

    def _run_case(self, runner: CaseRunner, case: PreparedCase) -> None:
        calls = self._policy.nominal_calls if case.nominal else self._policy.other_calls
        room = capacity_bytes(case.calibration.shapes, case.calibration.dtypes)
        if room > self._policy.large_bytes:
            calls = min(calls, LARGE_CALLS if case.nominal else 1)
        try:
            evidence = runner.run(case, calls)
        except CandidateFailure as failure:
            evidence = self._refused_or_raise(case, calls, failure)
        self._cases.append(evidence.result)
        said = {(finding.code, finding.message) for finding in self._findings}
        self._findings += [f for f in dict.fromkeys(evidence.findings) if (f.code, f.message) not in said]
        if evidence.state != "none" and self._state != "by seed":
            self._state = evidence.state

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


def _built_name(candidate: Candidate) -> str:
    is_cubin = candidate.suffix == ".cu" and candidate.entry == "launch"
    return "built.cubin" if is_cubin else EXTENSION_NAME + ".so"


def _record(candidate: Candidate) -> CandidateRecord:
    return CandidateRecord(candidate.name, candidate.language, candidate.entry, candidate.digest)


@contextmanager
def timed(seconds: dict[str, float], phase: str) -> Iterator[None]:
    start = time.monotonic()
    try:
        yield
    finally:
        seconds[phase] = round(seconds.get(phase, 0.0) + time.monotonic() - start, 4)
