"""level1_softmax_rows: the code that torch.compile generates for it, changed by these actions:
variant:base, softmax_exp_0:fold=4, softmax_exp_0:fast_exp, softmax_exp_0:reciprocal. Other
sizes, types and layouts, and calls that record gradients, take the module's own path.
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
def softmax_fold_fast(top, total, value, count: tl.constexpr):
    """Running maximum and sum of exponentials, with so many more values for each lane."""
    value = tl.reshape(value, [top.shape[0], count, top.shape[1]])
    new_top = larger(top, tl.reduce(value, 1, larger))
    level = tl.where(new_top == float("-inf"), 0.0, new_top)
    added = tl.sum(tl.exp(value - tl.expand_dims(level, 1)), 1)
    return new_top, total * tl.exp(top - level) + added


@triton.jit
def softmax_join_fast(top, total, axis: tl.constexpr):
    """The maximum and the sum of exponentials along an axis, of running ones."""
    row_top = tl.reduce(top, axis, larger)
    apart = top - tl.expand_dims(row_top, axis)
    apart = tl.where(tl.expand_dims(row_top, axis) == float("-inf"), 0.0, apart)
    return row_top, tl.sum(total * tl.exp(apart), axis)


@triton.jit
def softmax_exp_0(in_ptr0, out_ptr2, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    r0_numel = 32000
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    r0_base = tl.arange(0, R0_BLOCK)[None, :]
    _tmp3_max = tl.full([XBLOCK, R0_BLOCK // 4], float('-inf'), tl.float32)
    _tmp3_sum = tl.zeros([XBLOCK, R0_BLOCK // 4], tl.float32)
    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        r0_index = r0_offset + r0_base
        r0_mask = r0_index < r0_numel
        tmp0 = tl.load(in_ptr0 + (r0_index + 32000 * xindex), r0_mask, eviction_policy='evict_last', other=0.0).to(tl.float32)
        tmp2 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])
        _tmp3_max, _tmp3_sum = softmax_fold_fast(_tmp3_max, _tmp3_sum, tl.where(r0_mask, tmp2, float('-inf')), 4)
    tmp3, tmp4 = softmax_join_fast(_tmp3_max, _tmp3_sum, 1)
    tmp3 = tmp3[:, None]
    tmp4 = tmp4[:, None]
    tmp4_inverse = 1.0 / tmp4
    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        r0_index = r0_offset + r0_base
        r0_mask = r0_index < r0_numel
        tmp5 = tl.load(in_ptr0 + (r0_index + 32000 * xindex), r0_mask, eviction_policy='evict_first', other=0.0).to(tl.float32)
        tmp7 = tmp5 - tmp3
        tmp8 = tl.exp(tmp7)
        tmp9 = tmp8 * tmp4_inverse
        tmp10 = tmp9.to(tl.float32)
        tl.store(out_ptr2 + (r0_index + 32000 * xindex), tmp10, r0_mask)


class ModelNew(Model):
    def forward(self, x):
        if not (
            x.is_cuda and x.dtype is torch.bfloat16 and x.shape == (4096, 32000) and
            x.is_contiguous() and not (torch.is_grad_enabled() and x.requires_grad)
        ):
            return super().forward(x)
        buf2 = torch.empty_like(x)
        softmax_exp_0[(4096,)](x, buf2, XBLOCK=1, R0_BLOCK=16384, num_warps=16, num_stages=1)
        return buf2
