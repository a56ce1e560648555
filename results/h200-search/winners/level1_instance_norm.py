"""level1_instance_norm: the code that torch.compile generates for it, changed by these actions:
variant:base, batch_norm_0:persistent. Other sizes, types and layouts, and calls that record
gradients, take the module's own path.
"""



import torch
import triton
import triton.language as tl
from torch import nn


channels = 64
eps = 1e-5


class Model(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.rand(channels) + 0.5)
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.instance_norm(x, weight=self.gain, bias=self.bias, eps=eps)


@triton.jit
def mean_and_spread(value, mask, count: tl.constexpr, axis: tl.constexpr):
    """Mean, sum of squared distances from it and number of values, of whole rows that are held at once."""
    mean = tl.sum(tl.where(mask, value, 0.0), axis) / count
    distance = tl.where(mask, value - tl.expand_dims(mean, axis), 0.0)
    return mean, tl.sum(distance * distance, axis), tl.full(mean.shape, count, tl.float32)


@triton.jit
def batch_norm_0(in_ptr0, in_ptr1, in_ptr2, out_ptr2, XBLOCK: tl.constexpr):
    R0_BLOCK: tl.constexpr = 16384
    xnumel = 2048
    r0_numel = 16384
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_index = tl.arange(0, R0_BLOCK)[None, :]
    tmp0 = tl.load(in_ptr0 + (r0_index + 16384 * xindex), xmask, eviction_policy='evict_last', other=0.0)
    tmp1 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])
    tmp3, tmp4, tmp5 = mean_and_spread(tmp1, xmask, r0_numel, 1)
    tmp2 = tmp3[:, None]
    tmp6 = tmp4[:, None]
    tmp16 = tl.load(in_ptr1 + xindex % 64, xmask, eviction_policy='evict_last')
    tmp18 = tl.load(in_ptr2 + xindex % 64, xmask, eviction_policy='evict_last')
    tmp9 = tmp0 - tmp2
    tmp10 = tl.full([1, 1], 16384.0, tl.float32)
    tmp11 = tmp6 / tmp10
    tmp12 = tl.full([1, 1], 1e-05, tl.float32)
    tmp13 = tmp11 + tmp12
    tmp14 = tl.rsqrt(tmp13)
    tmp15 = tmp9 * tmp14
    tmp17 = tmp15 * tmp16
    tmp19 = tmp17 + tmp18
    tl.store(out_ptr2 + (r0_index + 16384 * xindex), tmp19, xmask)


class ModelNew(Model):
    def forward(self, x):
        p_gain = self.gain
        p_bias = self.bias
        if not (
            p_gain.is_cuda and p_gain.dtype is torch.float32 and p_gain.shape == (64,) and
            p_bias.is_cuda and p_bias.dtype is torch.float32 and p_bias.shape == (64,) and x.is_cuda
            and x.dtype is torch.float32 and x.shape == (32, 64, 128, 128) and
            p_gain.is_contiguous() and p_bias.is_contiguous() and x.is_contiguous() and
            not (torch.is_grad_enabled() and (p_gain.requires_grad or p_bias.requires_grad or x.requires_grad))
        ):
            return super().forward(x)
        buf3 = torch.empty_strided((1, 2048, 128, 128), (33554432, 16384, 128, 1), dtype=torch.float32, device=p_gain.device)
        batch_norm_0[(2048,)](x, p_gain, p_bias, buf3, XBLOCK=1, num_warps=32, num_stages=1)
        return torch.as_strided(buf3, (32, 64, 128, 128), (1048576, 16384, 128, 1))
