"""level2_conv1d_causal_silu: the code that torch.compile generates for it, changed by these
actions: variant:depthwise_as_taps, pad_nd_0:fast_exp. Other sizes, types and layouts, and calls
that record gradients, take the module's own path.
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
        padded = nn.functional.pad(x.transpose(1, 2), (taps - 1, 0))
        y = nn.functional.conv1d(padded, self.weight, self.bias, groups=x.shape[2])
        return nn.functional.silu(y).transpose(1, 2)


@triton.jit
def pad_nd_0(in_ptr0, in_ptr1, in_ptr2, out_ptr1, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    yoffset = tl.program_id(1) * YBLOCK
    yindex = yoffset + tl.arange(0, YBLOCK)[:, None]
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[None, :]
    y0 = yindex % 4096
    y1 = yindex // 4096
    tmp5 = tl.load(in_ptr1 + 4 * xindex, None, eviction_policy='evict_last').to(tl.float32)
    tmp12 = tl.load(in_ptr1 + (1 + 4 * xindex), None, eviction_policy='evict_last').to(tl.float32)
    tmp20 = tl.load(in_ptr1 + (2 + 4 * xindex), None, eviction_policy='evict_last').to(tl.float32)
    tmp28 = tl.load(in_ptr1 + (3 + 4 * xindex), None, eviction_policy='evict_last').to(tl.float32)
    tmp32 = tl.load(in_ptr2 + xindex, None, eviction_policy='evict_last').to(tl.float32)
    tmp0 = -3 + y0
    tmp1 = tl.full([1, 1], 0, tl.int64)
    tmp2 = tmp0 >= tmp1
    tmp3 = tl.load(in_ptr0 + (-12288 + xindex + 4096 * yindex), tmp2, eviction_policy='evict_last', other=0.0).to(tl.float32)
    tmp7 = tmp3 * tmp5
    tmp8 = -2 + y0
    tmp9 = tmp8 >= tmp1
    tmp10 = tl.load(in_ptr0 + (-8192 + xindex + 4096 * yindex), tmp9, eviction_policy='evict_last', other=0.0).to(tl.float32)
    tmp14 = tmp10 * tmp12
    tmp15 = tmp7 + tmp14
    tmp16 = -1 + y0
    tmp17 = tmp16 >= tmp1
    tmp18 = tl.load(in_ptr0 + (-4096 + xindex + 4096 * yindex), tmp17, eviction_policy='evict_last', other=0.0).to(tl.float32)
    tmp22 = tmp18 * tmp20
    tmp23 = tmp15 + tmp22
    tmp24 = y0
    tmp25 = tmp24 >= tmp1
    tmp26 = tl.load(in_ptr0 + (xindex + 4096 * yindex), tmp25, eviction_policy='evict_last', other=0.0).to(tl.float32)
    tmp30 = tmp26 * tmp28
    tmp31 = tmp23 + tmp30
    tmp34 = tmp31 + tmp32
    tmp35 = -tmp34
    tmp36 = tl.exp(tmp35)
    tmp37 = tl.full([1, 1], 1.0, tl.float32)
    tmp38 = tmp36 + tmp37
    tmp39 = tmp34 / tmp38
    tmp40 = tmp39.to(tl.float32)
    tl.store(out_ptr1 + (y0 + 4096 * xindex + 16777216 * y1), tmp40, None)


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
        pad_nd_0[(128, 1024,)](x, p_weight, p_bias, buf1, XBLOCK=32, YBLOCK=32, num_warps=4, num_stages=1)
        return torch.as_strided(buf1, (8, 4096, 4096), (16777216, 1, 4096))
