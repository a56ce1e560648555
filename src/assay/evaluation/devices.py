"""The device that judges, as whoever proposes has to know it: read where it is, told where it is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from assay.judge import device_memory, read_device


@dataclass(frozen=True, slots=True)
class Described:
    """A device, for processes that may have none like it."""

    device: str
    """"cpu" or "cuda:0", as its judge calls it."""
    words: str
    """For models and people."""
    memory: int
    """In bytes."""
    facts: Mapping[str, int | str] | None
    """Of a GPU, as `read_device` gives them."""


def describe_device(device: str) -> Described:
    """Of this machine; no context is left on it."""
    memory = device_memory(device)
    if not device.startswith("cuda"):
        words = f"a CPU with {torch.get_num_threads()} threads (torch {torch.__version__})"
        return Described(device, words, memory, None)
    about = read_device(device)
    words = (
        f"{about['name']}, compute capability {about['major']}.{about['minor']}, "
        f"{about['multi_processor_count']} SMs, {memory / 2**30:.0f} GiB, "
        f"{int(about['L2_cache_size']) / 2**20:.0f} MiB of L2 "
        f"(torch {torch.__version__}, CUDA {torch.version.cuda})"
    )
    return Described(device, words, memory, about)
