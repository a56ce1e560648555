"""level1_log_softmax: the code that torch.compile generates for it, changed by these actions:
variant:base, log_softmax_0:persistent. Other sizes, types and layouts, and calls that record
gradients, take the module's own path.
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
def softmax_top_and_total(value, mask, axis: tl.constexpr):
    """The maximum and the sum of exponentials of whole rows that are held at once."""
    value = tl.where(mask, value, float("-inf"))
    row_top = tl.reduce(value, axis, larger)
    level = tl.where(row_top == float("-inf"), 0.0, row_top)
    return row_top, tl.sum(libdevice.exp(value - tl.expand_dims(level, axis)), axis)


@triton.jit
def log_softmax_0(in_ptr0, out_ptr2, XBLOCK: tl.constexpr):
    R0_BLOCK: tl.constexpr = 16384
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    r0_index = tl.arange(0, R0_BLOCK)[None, :]
    tmp0 = tl.load(in_ptr0 + (r0_index + 16384 * xindex), None, eviction_policy='evict_last')
    tmp1 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])
    tmp2, tmp3 = softmax_top_and_total(tmp1, tl.full([1, 1], True, tl.int1), 1)
    tmp2 = tmp2[:, None]
    tmp3 = tmp3[:, None]
    tmp5 = tmp0 - tmp2
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
        log_softmax_0[(4096,)](x, buf2, XBLOCK=1, num_warps=32, num_stages=1)
        return buf2
