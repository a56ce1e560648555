"""Who imports the library finds its process as it was."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os, random, signal, sys, threading, warnings
import torch, triton, triton.experimental.gluon

def state():
    products, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    return {
        "environment": dict(os.environ),
        "path": list(sys.path),
        "warnings": list(warnings.filters),
        "signals": [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)],
        "threads": threading.active_count(),
        "torch's threads": torch.get_num_threads(),
        "type": torch.get_default_dtype(),
        "modes": (torch.is_grad_enabled(), torch.are_deterministic_algorithms_enabled()),
        "precision": (torch.get_float32_matmul_precision(), cudnn.allow_tf32, cudnn.benchmark),
        "reduced": (products.allow_bf16_reduced_precision_reduction, products.allow_fp16_accumulation),
        "random": (random.getstate(), bytes(torch.get_rng_state().tolist())),
        "device": torch.cuda.is_initialized(),
        "hooks": (sys.excepthook, sys.displayhook, list(sys.meta_path)),
    }

before = state()
import assay.tiles
for name in assay.tiles.__all__:
    getattr(assay.tiles, name)
after = state()
print([name for name in before if before[name] != after[name]])
"""


def test_nothing_else_changes() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert (done.stdout, done.returncode) == ("[]\n", 0), done.stderr
