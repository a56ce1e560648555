"""level1_softmax_temperature_causal: the code that torch.compile generates for it, changed by these
actions: variant:two_pass_softmax, softmax_div_0:persistent, softmax_div_0:fast_exp,
softmax_div_0:reciprocal, softmax_div_0:num_warps=2. Other sizes, types and layouts, and calls
that record gradients, take the module's own path.
"""



import torch
import triton
import triton.language as tl
from torch import nn


temperature = 0.7


class Model(nn.Module):
    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(scores.shape[-1], device=scores.device)
        later = positions[None, :] > positions[:, None]
        return torch.softmax((scores / temperature).masked_fill(later, float("-inf")), dim=-1)


@triton.jit
def larger(a, b):
    """The larger one; NaN if one of them is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def softmax_div_0(in_ptr0, out_ptr2, XBLOCK: tl.constexpr):
    R0_BLOCK: tl.constexpr = 2048
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    r0_base = tl.arange(0, R0_BLOCK)[None, :]
    x0 = xindex % 2048
    _tmp10 = tl.full([XBLOCK, R0_BLOCK], float('-inf'), tl.float32)
    tmp3 = tl.load(in_ptr0 + (r0_base + 2048 * xindex), None, eviction_policy='evict_last').to(tl.float32)
    tmp2 = r0_base > x0
    tmp4 = tl.full([1, 1], 1.4285714285714286, tl.float32)
    tmp5 = tmp3 * tmp4
    tmp6 = tl.full([1, 1], float('-inf'), tl.float32)
    tmp7 = tl.where(tmp2, tmp6, tmp5)
    tmp8 = tmp7.to(tl.float32)
    tmp9 = tl.broadcast_to(tmp8, [XBLOCK, R0_BLOCK])
    _tmp10 = larger(_tmp10, tmp9)
    tmp10 = tl.reduce(_tmp10, 1, larger)[:, None]
    _tmp24 = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)
    tmp21 = tmp8 - tmp10
    tmp22 = tl.exp(tmp21)
    tmp23 = tl.broadcast_to(tmp22, [XBLOCK, R0_BLOCK])
    _tmp24 = _tmp24 + tmp23
    tmp24 = tl.sum(_tmp24, 1)[:, None]
    tmp24_inverse = 1.0 / tmp24
    tmp37 = tmp22 * tmp24_inverse
    tmp38 = tmp37.to(tl.float32)
    tl.store(out_ptr2 + (r0_base + 2048 * xindex), tmp38, None)


class ModelNew(Model):
    def forward(self, scores):
        if not (
            scores.is_cuda and scores.dtype is torch.bfloat16 and scores.shape == (32, 2048, 2048)
            and scores.is_contiguous() and not (torch.is_grad_enabled() and scores.requires_grad)
        ):
            return super().forward(scores)
        buf2 = torch.empty_like(scores)
        softmax_div_0[(65536,)](scores, buf2, XBLOCK=1, num_warps=2, num_stages=1)
        return buf2
