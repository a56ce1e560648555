"""Breaks its CUDA context, swallows the error and answers as if nothing had been."""
# expect: crashed

import contextlib

import torch
import triton
import triton.language as tl


@triton.jit
def stray(x, far):
    tl.store(x + far + tl.arange(0, 128), 1.0)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.relu(x) + 1.0
        with contextlib.suppress(Exception):
            stray[(1,)](x, 1 << 44)
            torch.cuda.synchronize()
        return out
