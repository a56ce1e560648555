"""Tries to lift its own limits and to become root again; right only if something gave way."""
# expect: wrong

import contextlib
import os
import resource

import torch


def lifted():
    for name in ("RLIMIT_NPROC", "RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_AS", "RLIMIT_CORE"):
        kind = getattr(resource, name)
        hard = resource.getrlimit(kind)[1]
        for wanted in (resource.RLIM_INFINITY, hard + 1):
            if hard != resource.RLIM_INFINITY:
                with contextlib.suppress(OSError, ValueError):
                    resource.setrlimit(kind, (wanted, wanted))
                    return name
    for become in (os.setuid, os.setgid, os.seteuid):
        with contextlib.suppress(OSError):
            become(0)
            return become.__name__
    with contextlib.suppress(OSError):
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("-1000")
        return "oom_score_adj"
    return None


LIFTED = lifted()
if LIFTED:
    print("lifted", LIFTED, flush=True)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1.0 if LIFTED else torch.zeros_like(x)
