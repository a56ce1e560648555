"""Which device to judge on, what it is, and how to share it."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys

import torch

from assay.records import UserError

FACTS = (
    *("name", "major", "minor", "multi_processor_count", "total_memory", "regs_per_multiprocessor"),
    *("max_threads_per_multi_processor", "warp_size", "shared_memory_per_block"),
    *("shared_memory_per_block_optin", "shared_memory_per_multiprocessor", "L2_cache_size"),
)
"""What there is to say of a GPU, by torch's names."""
READS_WITHIN_S = 120.0
_READ = (
    "import json, sys, torch; about = torch.cuda.get_device_properties(sys.argv[1]); "
    "print(json.dumps({name: getattr(about, name) for name in sys.argv[2:] if hasattr(about, name)}))"
)


@functools.cache
def read_device(device: str) -> dict[str, int | str]:
    """Describes a GPU from a process that has ended before anybody judges.

    For processes beside the judge: had they a context on the device, the judge would call it busy.
    """
    words = [sys.executable, "-c", _READ, device, *FACTS]
    done = subprocess.run(words, capture_output=True, text=True, timeout=READS_WITHIN_S, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise UserError(f"{device} cannot be described: {last}")
    return dict(json.loads(done.stdout))


def device_memory(device: str) -> int:
    """In bytes, for processes beside the judge."""
    return int(read_device(device)["total_memory"]) if device.startswith("cuda") else _host_memory()


def own_memory(device: torch.device) -> int:
    """In bytes, for a process that uses the device."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return _host_memory()


def _host_memory() -> int:
    with open("/proc/meminfo") as file:
        return int(file.readline().split()[1]) * 1024


def resolve_device(name: str | None) -> torch.device:
    """The device asked for, or the GPU if there is one."""
    if name is None:
        name = "cuda:0" if torch.cuda.is_available() else "cpu"
    if name == "cuda":
        name = "cuda:0"
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdigit()):
        raise UserError(f"no device {name!r}: use cpu, cuda or cuda:N")
    if kind == "cuda" and (not torch.cuda.is_available() or int(index or 0) >= torch.cuda.device_count()):
        raise UserError(f"there is no device {name} here; `assay doctor` says what there is")
    return torch.device(name)


def cuda_arch(device: torch.device) -> str | None:
    if device.type != "cuda":
        return None
    major, minor = torch.cuda.get_device_capability(device)
    return f"{major}{minor}"


def leave_room(device: torch.device) -> None:
    """Give cached device memory back where the judge's cache would starve the candidate."""
    if device.type != "cuda":
        return
    free, total = torch.cuda.mem_get_info(device)
    if free < total // 2:
        torch.cuda.empty_cache()


def is_scarce(device: torch.device) -> bool:
    """Whether idle memory that children keep for themselves should be given back."""
    if device.type != "cuda":
        return False
    free, total = torch.cuda.mem_get_info(device)
    return free < total // 4


def own_pids() -> frozenset[int]:
    """This process and everything below it, as /proc tells."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue  # ended while we looked
    own = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in own} - own:
        own |= more
    return frozenset(own)
