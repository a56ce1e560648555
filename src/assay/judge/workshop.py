"""What a judge has at hand for every candidate, and how a child comes to hold one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from assay.build import EXTENSION_NAME, BuildCache, Toolchain, build_key, needs_build
from assay.candidates import Candidate
from assay.judge.policy import Policy
from assay.judge.seat import Watch
from assay.records import CandidateFailure, UserError, to_plain
from assay.worker import Child, Pool


@dataclass(frozen=True, slots=True)
class Workshop:
    """Children, builds and clocks of one judge."""

    device: torch.device
    policy: Policy
    pool: Pool
    """Children for candidates."""
    trusted: Pool
    """Children for baselines: the same confinement, wider limits, compilers already imported."""
    builds: BuildCache
    toolchain: Toolchain
    watch: Watch
    cache: Path
    peaks: list[int] = field(default_factory=lambda: [0])
    """Most bytes held on the device at once, shared ones included."""

    def note_peak(self, shared_bytes: int) -> None:
        """Before so much shared memory is let go: what was held beside it counts with it, and no later."""
        own = 0
        if self.device.type == "cuda":
            own = torch.cuda.max_memory_reserved(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)
        self.peaks[0] = max(self.peaks[0], own + shared_bytes)

    def built(self, candidate: Candidate) -> bytes:
        """The compiled artefact of a bare source, from the cache or from a confined compiler."""
        if not needs_build(candidate):
            return b""
        key = build_key(candidate, self.toolchain)
        with self.builds.locked(key):
            cached = self.builds.get(key)
            if cached is not None:
                cached.raise_failure()
                return cached.artefact or b""
            try:
                child = self.pool.take_compiler()
                try:
                    return self._compile(child, candidate, key)
                finally:
                    child.close()
            except CandidateFailure as failure:
                if failure.status == "build_failed":
                    self.builds.put_failure(key, failure.code, failure.message, failure.detail)
                raise

    def _compile(self, child: Child, candidate: Candidate, key: str) -> bytes:
        head = {"candidate": to_plain(candidate), "toolchain": to_plain(self.toolchain)}
        reply = child.ask("build", head, timeout_s=self.policy.build_timeout_s)
        if "user_error" in reply.head:
            raise UserError(str(reply.head["user_error"]))
        kind, log = str(reply.head.get("kind")), str(reply.head.get("log"))
        self.builds.put_success(key, kind, reply.payload, log, 0.0)
        return reply.payload

    def load(
        self,
        child: Child,
        candidate: Candidate,
        built: bytes,
        argument_names: tuple[str, ...],
        support_files: Mapping[str, str],
    ) -> None:
        """Hand a candidate to a child; what it builds while it is imported is remembered."""
        head, payload = self.to_load(candidate, built, argument_names, support_files)
        key = build_key(candidate, self.toolchain)
        try:
            reply = child.ask("load", head, payload=payload, timeout_s=self.policy.load_timeout_s)
        except CandidateFailure as failure:
            if failure.code == "compile_error":
                self.builds.put_failure(key, failure.code, failure.message, failure.detail)
            raise
        if reply.payload and not payload:
            self.builds.put_success(key, "inline", reply.payload, "", 0.0)

    def to_load(
        self,
        candidate: Candidate,
        built: bytes,
        argument_names: tuple[str, ...],
        support_files: Mapping[str, str],
    ) -> tuple[dict[str, Any], bytes]:
        """What whoever loads a candidate has to be told, and what was built for it."""
        bare = needs_build(candidate)
        head = {
            "candidate": to_plain(candidate),
            "argument_names": list(argument_names),
            "support_files": dict(support_files),
            "built_name": _built_name(candidate) if bare else "",
        }
        known = None if bare else self.builds.get(build_key(candidate, self.toolchain))
        if known is not None:
            known.raise_failure()
            built = known.artefact or b""
        return head, built


def _built_name(candidate: Candidate) -> str:
    is_cubin = candidate.suffix == ".cu" and candidate.entry == "launch"
    return "built.cubin" if is_cubin else EXTENSION_NAME + ".so"


@contextmanager
def timed(seconds: dict[str, float], phase: str) -> Iterator[None]:
    start = time.monotonic()
    try:
        yield
    finally:
        seconds[phase] = round(seconds.get(phase, 0.0) + time.monotonic() - start, 4)
