"""Who judges: processes of this machine, or of a Ray cluster."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from assay.records import UserError

if TYPE_CHECKING:
    from assay.evaluation import Crew, Suite
    from assay.evaluation.ray_crew import RayCrew


def open_crew(
    suite: Suite, policy: dict[str, Any], *, device: str | None, jobs: int | None, ray: str | None
) -> Crew | RayCrew:
    """To be closed by whoever asked for it."""
    if ray is not None:
        if device or jobs:
            raise UserError("--ray takes what the cluster has: leave out --device and --jobs")
        from assay.evaluation.ray_crew import RayCrew

        return RayCrew(ray, policy, suite)
    from assay.evaluation import Crew

    devices, threads = _places(device, jobs, speed=policy.get("speed", True))
    return Crew(devices, policy, threads)


def _places(wanted: str | None, wanted_jobs: int | None, *, speed: bool) -> tuple[list[str], int]:
    """A device for each worker, and how many threads each may use on a CPU."""
    import torch

    device = wanted or ("cuda" if torch.cuda.is_available() else "cpu")
    cores = os.cpu_count() or 1
    jobs = wanted_jobs or (cores if device == "cpu" and not speed else 1)
    if jobs > 1 and speed:
        raise UserError("what is timed needs its device alone: give --jobs 1, or --no-speed")
    if device == "cpu":
        # Whoever has said how many threads there are to be is taken at their word.
        return ["cpu"] * jobs, 0 if os.environ.get("OMP_NUM_THREADS") else max(1, cores // jobs)
    devices = [f"cuda:{k}" for k in range(torch.cuda.device_count())] if device == "cuda" else [device]
    return devices * jobs, 0
