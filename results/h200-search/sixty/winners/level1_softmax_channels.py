"""level1_softmax_channels: the code that torch.compile generates for it, changed by these actions:
variant:two_pass_softmax, softmax_0:persistent, softmax_0:fast_exp, softmax_0:num_warps=4. Other
sizes, types and layouts, and calls that record gradients, take the module's own path.
"""



import torch
import triton
import triton.language as tl
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=1)


@triton.jit
def larger(a, b):
    """The larger one; NaN if one of them is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def softmax_0(in_ptr0, out_ptr2, XBLOCK: tl.constexpr):
    R0_BLOCK: tl.constexpr = 128
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    r0_base = tl.arange(0, R0_BLOCK)[None, :]
    x0 = xindex % 16384
    x1 = xindex // 16384
    _tmp2 = tl.full([XBLOCK, R0_BLOCK], float('-inf'), tl.float32)
    tmp0 = tl.load(in_ptr0 + (x0 + 16384 * r0_base + 2097152 * x1), None, eviction_policy='evict_last')
    tmp1 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])
    _tmp2 = larger(_tmp2, tmp1)
    tmp2 = tl.reduce(_tmp2, 1, larger)[:, None]
    _tmp8 = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)
    tmp5 = tmp0 - tmp2
    tmp6 = tl.exp(tmp5)
    tmp7 = tl.broadcast_to(tmp6, [XBLOCK, R0_BLOCK])
    _tmp8 = _tmp8 + tmp7
    tmp8 = tl.sum(_tmp8, 1)[:, None]
    tmp13 = tmp6 / tmp8
    tl.store(out_ptr2 + (x0 + 16384 * r0_base + 2097152 * x1), tmp13, None)


class ModelNew(Model):
    def forward(self, x):
        if not (
            x.is_cuda and x.dtype is torch.float32 and x.shape == (16, 128, 128, 128) and
            x.is_contiguous() and not (torch.is_grad_enabled() and x.requires_grad)
        ):
            return super().forward(x)
        buf2 = torch.empty_like(x)
        softmax_0[(4096,)](x, buf2, XBLOCK=64, num_warps=4, num_stages=1)
        return buf2
