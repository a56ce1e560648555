"""Which device to judge on, and how to share it."""

from __future__ import annotations

import os

import torch

from assay.records import UserError


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
