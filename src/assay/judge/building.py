"""Compiles candidates where nobody judges: on a machine without the device, for one that has it."""

from __future__ import annotations

from types import TracebackType

import torch

from assay.build import BuildCache, ShippedBuild, build_key, find_toolchain, needs_build, ship_build
from assay.candidates import Candidate
from assay.judge.judge import default_cache, limits_of
from assay.judge.policy import Policy
from assay.judge.watch import make_watch
from assay.judge.workshop import Workshop
from assay.records import CandidateFailure
from assay.worker import Pool, Zygote


class Builder:
    """Confined compilers, without a device."""

    def __init__(self, cuda_arch: str | None, policy: Policy) -> None:
        device = torch.device("cpu")
        toolchain = find_toolchain(cuda_arch)
        cache = default_cache()
        self._zygote = Zygote("cpu")
        pool = Pool(self._zygote, limits_of(policy, device))
        self._shop = Workshop(
            device=device,
            policy=policy,
            pool=pool,
            trusted=pool,
            builds=BuildCache(cache / "builds"),
            toolchain=toolchain,
            watch=make_watch(device, toolchain),
            cache=cache,
        )

    def __enter__(self) -> Builder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shop.pool.close()
        self._zygote.close()

    def build(self, candidate: Candidate) -> ShippedBuild | None:
        """None where nothing is built ahead of its import, or where another try could end otherwise."""
        if not needs_build(candidate):
            return None
        try:
            self._shop.built(candidate)
        except CandidateFailure as failure:
            if failure.status != "build_failed":
                return None
        return ship_build(self._shop.builds, build_key(candidate, self._shop.toolchain))
