"""level1_conv2d_depthwise: the code that torch.compile generates for it, changed by these actions:
variant:depthwise_as_taps, convolution_0:num_warps=8. Other sizes, types and layouts, and calls
that record gradients, take the module's own path.
"""



import torch
import triton
import triton.language as tl
from torch import nn


channels = 128


class Model(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter((torch.randn(channels, 1, 3, 3) / 3).to(torch.float16))
        self.bias = nn.Parameter(torch.randn(channels).to(torch.float16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.conv2d(x, self.weight, self.bias, padding=1, groups=x.shape[1])


@triton.jit
def convolution_0(in_ptr0, in_ptr1, in_ptr2, out_ptr0, XBLOCK: tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    x1 = xindex // 112 % 112
    x0 = xindex % 112
    x2 = xindex // 12544 % 128
    tmp13 = tl.load(in_ptr1 + 9 * x2, None, eviction_policy='evict_last').to(tl.float32)
    tmp23 = tl.load(in_ptr1 + (1 + 9 * x2), None, eviction_policy='evict_last').to(tl.float32)
    tmp34 = tl.load(in_ptr1 + (2 + 9 * x2), None, eviction_policy='evict_last').to(tl.float32)
    tmp46 = tl.load(in_ptr1 + (3 + 9 * x2), None, eviction_policy='evict_last').to(tl.float32)
    tmp54 = tl.load(in_ptr1 + (4 + 9 * x2), None, eviction_policy='evict_last').to(tl.float32)
    tmp62 = tl.load(in_ptr1 + (5 + 9 * x2), None, eviction_policy='evict_last').to(tl.float32)
    tmp74 = tl.load(in_ptr1 + (6 + 9 * x2), None, eviction_policy='evict_last').to(tl.float32)
    tmp82 = tl.load(in_ptr1 + (7 + 9 * x2), None, eviction_policy='evict_last').to(tl.float32)
    tmp90 = tl.load(in_ptr1 + (8 + 9 * x2), None, eviction_policy='evict_last').to(tl.float32)
    tmp94 = tl.load(in_ptr2 + x2, None, eviction_policy='evict_last').to(tl.float32)
    tmp0 = -1 + x1
    tmp1 = tl.full([1], 0, tl.int64)
    tmp2 = tmp0 >= tmp1
    tmp3 = tl.full([1], 112, tl.int64)
    tmp4 = tmp0 < tmp3
    tmp5 = -1 + x0
    tmp6 = tmp5 >= tmp1
    tmp7 = tmp5 < tmp3
    tmp8 = tmp2 & tmp4
    tmp9 = tmp8 & tmp6
    tmp10 = tmp9 & tmp7
    tmp11 = tl.load(in_ptr0 + (-113 + xindex), tmp10, other=0.0).to(tl.float32)
    tmp15 = tmp11 * tmp13
    tmp16 = x0
    tmp17 = tmp16 >= tmp1
    tmp18 = tmp16 < tmp3
    tmp19 = tmp8 & tmp17
    tmp20 = tmp19 & tmp18
    tmp21 = tl.load(in_ptr0 + (-112 + xindex), tmp20, other=0.0).to(tl.float32)
    tmp25 = tmp21 * tmp23
    tmp26 = tmp15 + tmp25
    tmp27 = 1 + x0
    tmp28 = tmp27 >= tmp1
    tmp29 = tmp27 < tmp3
    tmp30 = tmp8 & tmp28
    tmp31 = tmp30 & tmp29
    tmp32 = tl.load(in_ptr0 + (-111 + xindex), tmp31, other=0.0).to(tl.float32)
    tmp36 = tmp32 * tmp34
    tmp37 = tmp26 + tmp36
    tmp38 = x1
    tmp39 = tmp38 >= tmp1
    tmp40 = tmp38 < tmp3
    tmp41 = tmp39 & tmp40
    tmp42 = tmp41 & tmp6
    tmp43 = tmp42 & tmp7
    tmp44 = tl.load(in_ptr0 + (-1 + xindex), tmp43, other=0.0).to(tl.float32)
    tmp48 = tmp44 * tmp46
    tmp49 = tmp37 + tmp48
    tmp50 = tmp41 & tmp17
    tmp51 = tmp50 & tmp18
    tmp52 = tl.load(in_ptr0 + xindex, tmp51, other=0.0).to(tl.float32)
    tmp56 = tmp52 * tmp54
    tmp57 = tmp49 + tmp56
    tmp58 = tmp41 & tmp28
    tmp59 = tmp58 & tmp29
    tmp60 = tl.load(in_ptr0 + (1 + xindex), tmp59, other=0.0).to(tl.float32)
    tmp64 = tmp60 * tmp62
    tmp65 = tmp57 + tmp64
    tmp66 = 1 + x1
    tmp67 = tmp66 >= tmp1
    tmp68 = tmp66 < tmp3
    tmp69 = tmp67 & tmp68
    tmp70 = tmp69 & tmp6
    tmp71 = tmp70 & tmp7
    tmp72 = tl.load(in_ptr0 + (111 + xindex), tmp71, other=0.0).to(tl.float32)
    tmp76 = tmp72 * tmp74
    tmp77 = tmp65 + tmp76
    tmp78 = tmp69 & tmp17
    tmp79 = tmp78 & tmp18
    tmp80 = tl.load(in_ptr0 + (112 + xindex), tmp79, other=0.0).to(tl.float32)
    tmp84 = tmp80 * tmp82
    tmp85 = tmp77 + tmp84
    tmp86 = tmp69 & tmp28
    tmp87 = tmp86 & tmp29
    tmp88 = tl.load(in_ptr0 + (113 + xindex), tmp87, other=0.0).to(tl.float32)
    tmp92 = tmp88 * tmp90
    tmp93 = tmp85 + tmp92
    tmp96 = tmp93 + tmp94
    tmp97 = tmp96.to(tl.float32)
    tl.store(out_ptr0 + xindex, tmp97, None)


class ModelNew(Model):
    def forward(self, x):
        p_weight = self.weight
        p_bias = self.bias
        if not (
            p_weight.is_cuda and p_weight.dtype is torch.float16 and
            p_weight.shape == (128, 1, 3, 3) and p_bias.is_cuda and p_bias.dtype is torch.float16
            and p_bias.shape == (128,) and x.is_cuda and x.dtype is torch.float16 and
            x.shape == (64, 128, 112, 112) and p_weight.is_contiguous() and p_bias.is_contiguous()
            and x.is_contiguous() and
            not (torch.is_grad_enabled() and (p_weight.requires_grad or p_bias.requires_grad or x.requires_grad))
        ):
            return super().forward(x)
        buf4 = torch.empty_like(x)
        convolution_0[(100352,)](x, p_weight, p_bias, buf4, XBLOCK=1024, num_warps=8, num_stages=1)
        return buf4
