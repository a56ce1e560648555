"""level1_log_softmax: the code that torch.compile generates for it, changed by these actions:
variant:base, log_softmax_0:unmask=R0_BLOCK, log_softmax_0:fold=4. Other sizes, types and
layouts, and calls that record gradients, take the module's own path.
"""



import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(x, dim=-1)


@triton.jit
def larger(a, b):
    """The larger one; NaN if one of them is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def softmax_fold(top, total, value, count: tl.constexpr):
    """Running maximum and sum of exponentials, with so many more values for each lane."""
    value = tl.reshape(value, [top.shape[0], count, top.shape[1]])
    new_top = larger(top, tl.reduce(value, 1, larger))
    level = tl.where(new_top == float("-inf"), 0.0, new_top)
    added = tl.sum(libdevice.exp(value - tl.expand_dims(level, 1)), 1)
    return new_top, total * libdevice.exp(top - level) + added


@triton.jit
def softmax_join(top, total, axis: tl.constexpr):
    """The maximum and the sum of exponentials along an axis, of running ones."""
    row_top = tl.reduce(top, axis, larger)
    apart = top - tl.expand_dims(row_top, axis)
    apart = tl.where(tl.expand_dims(row_top, axis) == float("-inf"), 0.0, apart)
    return row_top, tl.sum(total * libdevice.exp(apart), axis)


@triton.jit
def log_softmax_0(in_ptr0, out_ptr2, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    r0_numel = 16384
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    r0_base = tl.arange(0, R0_BLOCK)[None, :]
    _tmp2_max = tl.full([XBLOCK, R0_BLOCK // 4], float('-inf'), tl.float32)
    _tmp2_sum = tl.zeros([XBLOCK, R0_BLOCK // 4], tl.float32)
    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        r0_index = r0_offset + r0_base
        tmp0 = tl.load(in_ptr0 + (r0_index + 16384 * xindex), None, eviction_policy='evict_last')
        tmp1 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])
        _tmp2_max, _tmp2_sum = softmax_fold(_tmp2_max, _tmp2_sum, tmp1, 4)
    tmp2, tmp3 = softmax_join(_tmp2_max, _tmp2_sum, 1)
    tmp2 = tmp2[:, None]
    tmp3 = tmp3[:, None]
    for r0_offset in tl.range(0, r0_numel, R0_BLOCK):
        r0_index = r0_offset + r0_base
        tmp4 = tl.load(in_ptr0 + (r0_index + 16384 * xindex), None, eviction_policy='evict_first')
        tmp5 = tmp4 - tmp2
        tmp6 = tl.log(tmp3)
        tmp7 = tmp5 - tmp6
        tl.store(out_ptr2 + (r0_index + 16384 * xindex), tmp7, None)


class ModelNew(Model):
    def forward(self, x):
        if not (
            x.is_cuda and x.dtype is torch.float32 and x.shape == (4096, 16384) and
            x.is_contiguous() and not (torch.is_grad_enabled() and x.requires_grad)
        ):
            return super().forward(x)
        buf2 = torch.empty_like(x)
        log_softmax_0[(4096,)](x, buf2, XBLOCK=1, R0_BLOCK=8192, num_warps=16, num_stages=1)
        return buf2
