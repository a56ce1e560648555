"""level1_row_variance: the code that torch.compile generates for it, changed by these actions:
variant:base, var_0:unmask=R0_BLOCK, var_0:persistent, var_0:num_warps=8. Other sizes, types and
layouts, and calls that record gradients, take the module's own path.
"""



import torch
import triton
import triton.language as tl
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.var(x, dim=-1, correction=0)


@triton.jit
def mean_and_spread(value, mask, count: tl.constexpr, axis: tl.constexpr):
    """Mean, sum of squared distances from it and number of values, of whole rows that are held at once."""
    mean = tl.sum(tl.where(mask, value, 0.0), axis) / count
    distance = tl.where(mask, value - tl.expand_dims(mean, axis), 0.0)
    return mean, tl.sum(distance * distance, axis), tl.full(mean.shape, count, tl.float32)


@triton.jit
def var_0(in_out_ptr0, in_ptr0, XBLOCK: tl.constexpr):
    R0_BLOCK: tl.constexpr = 2048
    r0_numel = 2048
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    r0_index = tl.arange(0, R0_BLOCK)[None, :]
    tmp0 = tl.load(in_ptr0 + (r0_index + 2048 * xindex), None, eviction_policy='evict_first')
    tmp1 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])
    tmp3, tmp4, tmp5 = mean_and_spread(tmp1, tl.full([1, 1], True, tl.int1), r0_numel, 1)
    tmp6 = tmp4[:, None]
    tmp8 = tl.full([1, 1], 2048.0, tl.float32)
    tmp9 = tmp6 / tmp8
    tl.store(in_out_ptr0 + xindex, tmp9, None)


class ModelNew(Model):
    def forward(self, x):
        if not (
            x.is_cuda and x.dtype is torch.float32 and x.shape == (32768, 2048) and
            x.is_contiguous() and not (torch.is_grad_enabled() and x.requires_grad)
        ):
            return super().forward(x)
        buf1 = torch.empty_strided((32768,), (1,), dtype=torch.float32, device=x.device)
        var_0[(32768,)](buf1, x, XBLOCK=1, num_warps=8, num_stages=1)
        return buf1
