"""A kernel that never ends, on another stream, under a right answer: only the end of the run can meet it."""
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
    flag = None

    def forward(self, x):
        if self.flag is None:
            type(self).flag = torch.zeros(1, dtype=torch.int32, device=x.device)
            torch.cuda.synchronize()
            with torch.cuda.stream(torch.cuda.Stream()):
                spin[(1,)](self.flag)
        return torch.relu(x) + 1.0
