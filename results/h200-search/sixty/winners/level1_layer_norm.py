"""level1_layer_norm: the code that torch.compile generates for it, changed by these actions:
variant:base, layer_norm_0:persistent, layer_norm_0:num_warps=2. Other sizes, types and layouts,
and calls that record gradients, take the module's own path.
"""



import torch
import triton
import triton.language as tl
from torch import nn


eps = 1e-5


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.rand(features, dtype=torch.bfloat16) + 0.5)
        self.bias = nn.Parameter(torch.randn(features, dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.layer_norm(x, self.gain.shape, self.gain, self.bias, eps)


@triton.jit
def mean_and_spread(value, mask, count: tl.constexpr, axis: tl.constexpr):
    """Mean, sum of squared distances from it and number of values, of whole rows that are held at once."""
    mean = tl.sum(tl.where(mask, value, 0.0), axis) / count
    distance = tl.where(mask, value - tl.expand_dims(mean, axis), 0.0)
    return mean, tl.sum(distance * distance, axis), tl.full(mean.shape, count, tl.float32)


@triton.jit
def layer_norm_0(in_ptr0, in_ptr1, in_ptr2, out_ptr2, XBLOCK: tl.constexpr):
    R0_BLOCK: tl.constexpr = 4096
    r0_numel = 4096
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    r0_index = tl.arange(0, R0_BLOCK)[None, :]
    tmp0 = tl.load(in_ptr0 + (r0_index + 4096 * xindex), None, eviction_policy='evict_last').to(tl.float32)
    tmp2 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])
    tmp4, tmp5, tmp6 = mean_and_spread(tmp2, tl.full([1, 1], True, tl.int1), r0_numel, 1)
    tmp3 = tmp4[:, None]
    tmp7 = tmp5[:, None]
    tmp18 = tl.load(in_ptr1 + r0_index, None, eviction_policy='evict_last').to(tl.float32)
    tmp21 = tl.load(in_ptr2 + r0_index, None, eviction_policy='evict_last').to(tl.float32)
    tmp11 = tmp0 - tmp3
    tmp12 = tl.full([1, 1], 4096.0, tl.float32)
    tmp13 = tmp7 / tmp12
    tmp14 = tl.full([1, 1], 1e-05, tl.float32)
    tmp15 = tmp13 + tmp14
    tmp16 = tl.rsqrt(tmp15)
    tmp17 = tmp11 * tmp16
    tmp20 = tmp17 * tmp18
    tmp23 = tmp20 + tmp21
    tmp24 = tmp23.to(tl.float32)
    tl.store(out_ptr2 + (r0_index + 4096 * xindex), tmp24, None)


class ModelNew(Model):
    def forward(self, x):
        p_gain = self.gain
        p_bias = self.bias
        if not (
            p_gain.is_cuda and p_gain.dtype is torch.bfloat16 and p_gain.shape == (4096,) and
            p_bias.is_cuda and p_bias.dtype is torch.bfloat16 and p_bias.shape == (4096,) and
            x.is_cuda and x.dtype is torch.bfloat16 and x.shape == (16384, 4096) and
            p_gain.is_contiguous() and p_bias.is_contiguous() and x.is_contiguous() and
            not (torch.is_grad_enabled() and (p_gain.requires_grad or p_bias.requires_grad or x.requires_grad))
        ):
            return super().forward(x)
        buf3 = torch.empty_like(x)
        layer_norm_0[(16384,)](x, p_gain, p_bias, buf3, XBLOCK=1, num_warps=2, num_stages=1)
        return buf3
