"""A kernel that never ends."""
# expect: timed_out

import torch
import triton
import triton.language as tl


@triton.jit
def spin(flag):
    value = tl.load(flag, volatile=True)
    while value == 0:
        value = tl.load(flag, volatile=True)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        spin[(1,)](torch.zeros(1, dtype=torch.int32, device=x.device))
        return torch.relu(x) + 1.0
