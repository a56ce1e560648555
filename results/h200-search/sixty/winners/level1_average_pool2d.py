"""level1_average_pool2d: the code that torch.compile generates for it, changed by these actions:
variant:base, avg_pool2d_0:num_warps=16, avg_pool2d_0:evict[*]=none. Other sizes, types and
layouts, and calls that record gradients, take the module's own path.
"""



import torch
import triton
import triton.language as tl
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.avg_pool2d(x, kernel_size=3, stride=2, padding=1, count_include_pad=False)


@triton.jit
def avg_pool2d_0(in_ptr0, out_ptr0, XBLOCK: tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    x1 = xindex // 56 % 56
    x0 = xindex % 56
    x3 = xindex // 56
    tmp0 = -1 + 2 * x1
    tmp1 = tl.full([1], 0, tl.int64)
    tmp2 = tmp0 >= tmp1
    tmp3 = tl.full([1], 112, tl.int64)
    tmp4 = tmp0 < tmp3
    tmp5 = tmp2 & tmp4
    tmp6 = -1 + 2 * x0
    tmp7 = tmp6 >= tmp1
    tmp8 = tmp6 < tmp3
    tmp9 = tmp7 & tmp8
    tmp10 = tmp5 & tmp9
    tmp11 = tl.load(in_ptr0 + (-113 + 2 * x0 + 224 * x3), tmp10, other=0.0).to(tl.float32)
    tmp12 = 2 * x0
    tmp13 = tmp12 >= tmp1
    tmp14 = tmp12 < tmp3
    tmp15 = tmp13 & tmp14
    tmp16 = tmp5 & tmp15
    tmp17 = tl.load(in_ptr0 + (-112 + 2 * x0 + 224 * x3), tmp16, other=0.0).to(tl.float32)
    tmp18 = tmp11 + tmp17
    tmp19 = 1 + 2 * x0
    tmp20 = tmp19 >= tmp1
    tmp21 = tmp19 < tmp3
    tmp22 = tmp20 & tmp21
    tmp23 = tmp5 & tmp22
    tmp24 = tl.load(in_ptr0 + (-111 + 2 * x0 + 224 * x3), tmp23, other=0.0).to(tl.float32)
    tmp25 = tmp18 + tmp24
    tmp26 = 2 * x1
    tmp27 = tmp26 >= tmp1
    tmp28 = tmp26 < tmp3
    tmp29 = tmp27 & tmp28
    tmp30 = tmp29 & tmp9
    tmp31 = tl.load(in_ptr0 + (-1 + 2 * x0 + 224 * x3), tmp30, other=0.0).to(tl.float32)
    tmp32 = tmp25 + tmp31
    tmp33 = tmp29 & tmp15
    tmp34 = tl.load(in_ptr0 + (2 * x0 + 224 * x3), tmp33, other=0.0).to(tl.float32)
    tmp35 = tmp32 + tmp34
    tmp36 = tmp29 & tmp22
    tmp37 = tl.load(in_ptr0 + (1 + 2 * x0 + 224 * x3), tmp36, other=0.0).to(tl.float32)
    tmp38 = tmp35 + tmp37
    tmp39 = 1 + 2 * x1
    tmp40 = tmp39 >= tmp1
    tmp41 = tmp39 < tmp3
    tmp42 = tmp40 & tmp41
    tmp43 = tmp42 & tmp9
    tmp44 = tl.load(in_ptr0 + (111 + 2 * x0 + 224 * x3), tmp43, other=0.0).to(tl.float32)
    tmp45 = tmp38 + tmp44
    tmp46 = tmp42 & tmp15
    tmp47 = tl.load(in_ptr0 + (112 + 2 * x0 + 224 * x3), tmp46, other=0.0).to(tl.float32)
    tmp48 = tmp45 + tmp47
    tmp49 = tmp42 & tmp22
    tmp50 = tl.load(in_ptr0 + (113 + 2 * x0 + 224 * x3), tmp49, other=0.0).to(tl.float32)
    tmp51 = tmp48 + tmp50
    tmp52 = (0 * (0 >= -1 + 2 * x0) + (-1 + 2 * x0) * (-1 + 2 * x0 > 0)) * (0 * (0 >= -1 + 2 * x1) + (-1 + 2 * x1) * (-1 + 2 * x1 > 0)) + (112 * (112 <= 2 + 2 * x0) + (2 + 2 * x0) * (2 + 2 * x0 < 112)) * (112 * (112 <= 2 + 2 * x1) + (2 + 2 * x1) * (2 + 2 * x1 < 112)) + -1 * (0 * (0 >= -1 + 2 * x0) + (-1 + 2 * x0) * (-1 + 2 * x0 > 0)) * (112 * (112 <= 2 + 2 * x1) + (2 + 2 * x1) * (2 + 2 * x1 < 112)) + -1 * (0 * (0 >= -1 + 2 * x1) + (-1 + 2 * x1) * (-1 + 2 * x1 > 0)) * (112 * (112 <= 2 + 2 * x0) + (2 + 2 * x0) * (2 + 2 * x0 < 112))
    tmp53 = tmp52.to(tl.float32)
    tmp54 = tmp51 / tmp53
    tmp55 = tmp54.to(tl.float32)
    tl.store(out_ptr0 + xindex, tmp55, None)


class ModelNew(Model):
    def forward(self, x):
        if not (
            x.is_cuda and x.dtype is torch.bfloat16 and x.shape == (128, 64, 112, 112) and
            x.is_contiguous() and not (torch.is_grad_enabled() and x.requires_grad)
        ):
            return super().forward(x)
        buf0 = torch.empty_strided((128, 64, 56, 56), (200704, 3136, 56, 1), dtype=torch.bfloat16, device=x.device)
        avg_pool2d_0[(25088,)](x, buf0, XBLOCK=1024, num_warps=16, num_stages=1)
        return buf0
