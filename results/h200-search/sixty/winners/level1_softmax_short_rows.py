"""level1_softmax_short_rows: the code that torch.compile generates for it, changed by these
actions: variant:looped_reductions, softmax_exp_0:persistent, softmax_exp_0:fast_exp,
softmax_exp_0:num_warps=1. Other sizes, types and layouts, and calls that record gradients, take
the module's own path.
"""



import torch
import triton
import triton.language as tl
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=-1)


@triton.jit
def larger(a, b):
    """The larger one; NaN if one of them is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def softmax_top_and_total_fast(value, mask, axis: tl.constexpr):
    """The maximum and the sum of exponentials of whole rows that are held at once."""
    value = tl.where(mask, value, float("-inf"))
    row_top = tl.reduce(value, axis, larger)
    level = tl.where(row_top == float("-inf"), 0.0, row_top)
    return row_top, tl.sum(tl.exp(value - tl.expand_dims(level, axis)), axis)


@triton.jit
def softmax_exp_0(in_ptr0, out_ptr2, XBLOCK: tl.constexpr):
    R0_BLOCK: tl.constexpr = 64
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    r0_index = tl.arange(0, R0_BLOCK)[None, :]
    tmp0 = tl.load(in_ptr0 + (r0_index + 64 * xindex), None, eviction_policy='evict_last').to(tl.float32)
    tmp2 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])
    tmp3, tmp4 = softmax_top_and_total_fast(tmp2, tl.full([1, 1], True, tl.int1), 1)
    tmp3 = tmp3[:, None]
    tmp4 = tmp4[:, None]
    tmp7 = tmp0 - tmp3
    tmp8 = tl.exp(tmp7)
    tmp9 = tmp8 / tmp4
    tmp10 = tmp9.to(tl.float32)
    tl.store(out_ptr2 + (r0_index + 64 * xindex), tmp10, None)


class ModelNew(Model):
    def forward(self, x):
        if not (
            x.is_cuda and x.dtype is torch.bfloat16 and x.shape == (1048576, 64) and
            x.is_contiguous() and not (torch.is_grad_enabled() and x.requires_grad)
        ):
            return super().forward(x)
        buf2 = torch.empty_like(x)
        softmax_exp_0[(65536,)](x, buf2, XBLOCK=16, num_warps=1, num_stages=1)
        return buf2
