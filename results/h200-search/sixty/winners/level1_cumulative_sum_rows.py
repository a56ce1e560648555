"""level1_cumulative_sum_rows: the code that torch.compile generates for it, changed by these
actions: variant:held_rows, cumsum_0:num_warps=8, cumsum_0:evict[0]=evict_last. Other sizes,
types and layouts, and calls that record gradients, take the module's own path.
"""



import torch
import triton
import triton.language as tl
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cumsum(x, dim=-1)


@triton.jit
def cumsum_0_add0(arg0_0, arg1_0):
    tmp0 = arg0_0 + arg1_0
    return tmp0


@triton.jit
def cumsum_0(in_ptr0, out_ptr0, XBLOCK: tl.constexpr):
    R0_BLOCK: tl.constexpr = 16384
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    r0_index = tl.arange(0, R0_BLOCK)[None, :]
    tmp0 = tl.load(in_ptr0 + (r0_index + 16384 * xindex), None, eviction_policy='evict_last')
    tmp1 = tmp0.to(tl.float32)
    tmp2 = tl.broadcast_to(tmp1, [XBLOCK, R0_BLOCK])
    tmp3, = tl.associative_scan((tmp2,), 1, cumsum_0_add0)
    tl.store(out_ptr0 + (r0_index + 16384 * xindex), tmp3, None)


class ModelNew(Model):
    def forward(self, x):
        if not (
            x.is_cuda and x.dtype is torch.float32 and x.shape == (4096, 16384) and
            x.is_contiguous() and not (torch.is_grad_enabled() and x.requires_grad)
        ):
            return super().forward(x)
        buf0 = torch.empty_like(x)
        cumsum_0[(4096,)](x, buf0, XBLOCK=1, num_warps=8, num_stages=1)
        return buf0
