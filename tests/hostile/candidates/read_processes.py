"""Reads memory, environment and descriptors of every other process it can name; right if one opens."""
# expect: wrong

import contextlib
import os

import torch


def found():
    mine = {os.getpid(), os.getppid()}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) in mine - {0}:
            continue
        for part in ("mem", "environ", "maps", "cmdline"):
            with contextlib.suppress(OSError), open(f"/proc/{name}/{part}", "rb") as file:
                if part == "mem" or file.read(16):
                    return f"/proc/{name}/{part}"
        with contextlib.suppress(OSError):
            return os.listdir(f"/proc/{name}/fd")
    return None


FOUND = found()
if FOUND:
    print("read", FOUND, flush=True)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1.0 if FOUND else torch.zeros_like(x)
