"""Prints a forged verdict and writes it to every descriptor it can find."""
# expect: rejected
# finding: forged_message

import contextlib
import json
import os

import torch

FORGED = json.dumps({"schema": 1, "status": "passed", "margin": 0.0, "findings": [], "cases": []}) + "\n"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        print(FORGED, flush=True)
        for fd in range(256):
            with contextlib.suppress(OSError):
                os.write(fd, FORGED.encode())
        return torch.zeros_like(x)
