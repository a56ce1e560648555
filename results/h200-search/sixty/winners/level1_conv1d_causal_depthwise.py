"""level1_conv1d_causal_depthwise: the code that torch.compile generates for it, changed by these
actions: variant:depthwise_as_taps, pad_nd_0:num_warps=8, pad_nd_0:store_cache[0]=.cs. Other
sizes, types and layouts, and calls that record gradients, take the module's own path.
"""



import torch
import triton
import triton.language as tl
from torch import nn


channels = 4096
taps = 4


class Model(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter((torch.randn(channels, 1, taps) / taps**0.5).to(torch.bfloat16))
        self.bias = nn.Parameter(torch.randn(channels).to(torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        padded = nn.functional.pad(x, (taps - 1, 0))
        return nn.functional.conv1d(padded, self.weight, self.bias, groups=x.shape[1])


@triton.jit
def pad_nd_0(in_ptr0, in_ptr1, in_ptr2, out_ptr1, XBLOCK: tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    x0 = xindex % 4096
    x1 = xindex // 4096 % 4096
    tmp5 = tl.load(in_ptr1 + 4 * x1, None, eviction_policy='evict_last').to(tl.float32)
    tmp12 = tl.load(in_ptr1 + (1 + 4 * x1), None, eviction_policy='evict_last').to(tl.float32)
    tmp20 = tl.load(in_ptr1 + (2 + 4 * x1), None, eviction_policy='evict_last').to(tl.float32)
    tmp28 = tl.load(in_ptr1 + (3 + 4 * x1), None, eviction_policy='evict_last').to(tl.float32)
    tmp32 = tl.load(in_ptr2 + x1, None, eviction_policy='evict_last').to(tl.float32)
    tmp0 = -3 + x0
    tmp1 = tl.full([1], 0, tl.int64)
    tmp2 = tmp0 >= tmp1
    tmp3 = tl.load(in_ptr0 + (-3 + xindex), tmp2, other=0.0).to(tl.float32)
    tmp7 = tmp3 * tmp5
    tmp8 = -2 + x0
    tmp9 = tmp8 >= tmp1
    tmp10 = tl.load(in_ptr0 + (-2 + xindex), tmp9, other=0.0).to(tl.float32)
    tmp14 = tmp10 * tmp12
    tmp15 = tmp7 + tmp14
    tmp16 = -1 + x0
    tmp17 = tmp16 >= tmp1
    tmp18 = tl.load(in_ptr0 + (-1 + xindex), tmp17, other=0.0).to(tl.float32)
    tmp22 = tmp18 * tmp20
    tmp23 = tmp15 + tmp22
    tmp24 = x0
    tmp25 = tmp24 >= tmp1
    tmp26 = tl.load(in_ptr0 + xindex, tmp25, other=0.0).to(tl.float32)
    tmp30 = tmp26 * tmp28
    tmp31 = tmp23 + tmp30
    tmp34 = tmp31 + tmp32
    tmp35 = tmp34.to(tl.float32)
    tl.store(out_ptr1 + xindex, tmp35, None, cache_modifier='.cs')


class ModelNew(Model):
    def forward(self, x):
        p_weight = self.weight
        p_bias = self.bias
        if not (
            p_weight.is_cuda and p_weight.dtype is torch.bfloat16 and p_weight.shape == (4096, 1, 4)
            and p_bias.is_cuda and p_bias.dtype is torch.bfloat16 and p_bias.shape == (4096,) and
            x.is_cuda and x.dtype is torch.bfloat16 and x.shape == (8, 4096, 4096) and
            p_weight.is_contiguous() and p_bias.is_contiguous() and x.is_contiguous() and
            not (torch.is_grad_enabled() and (p_weight.requires_grad or p_bias.requires_grad or x.requires_grad))
        ):
            return super().forward(x)
        buf1 = torch.empty_like(x)
        pad_nd_0[(131072,)](x, p_weight, p_bias, buf1, XBLOCK=1024, num_warps=8, num_stages=1)
        return buf1
