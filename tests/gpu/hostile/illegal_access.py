"""A kernel that writes far outside of every allocation."""
# expect: crashed
# finding: cuda_error

import torch
import triton
import triton.language as tl


@triton.jit
def stray(x, far):
    tl.store(x + far + tl.arange(0, 128), 1.0)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        stray[(1,)](x, 1 << 44)
        return torch.relu(x) + 1.0
