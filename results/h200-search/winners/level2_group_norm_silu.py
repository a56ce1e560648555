"""level2_group_norm_silu: the code that torch.compile generates for it, changed by these actions:
variant:base, group_norm_0:persistent, group_norm_1:fast_exp, group_norm_0:store_evict[*]=none,
group_norm_0:unmask=XBLOCK, group_norm_1:num_warps=1. Other sizes, types and layouts, and calls
that record gradients, take the module's own path.
"""



import torch
import triton
import triton.language as tl
from torch import nn


channels = 512
groups = 32
eps = 1e-5


class Model(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter((torch.rand(channels) + 0.5).to(torch.bfloat16))
        self.bias = nn.Parameter(torch.randn(channels).to(torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.silu(nn.functional.group_norm(x, groups, self.weight, self.bias, eps))


@triton.jit
def mean_and_spread(value, mask, count: tl.constexpr, axis: tl.constexpr):
    """Mean, sum of squared distances from it and number of values, of whole rows that are held at once."""
    mean = tl.sum(tl.where(mask, value, 0.0), axis) / count
    distance = tl.where(mask, value - tl.expand_dims(mean, axis), 0.0)
    return mean, tl.sum(distance * distance, axis), tl.full(mean.shape, count, tl.float32)


@triton.jit
def group_norm_0(in_ptr0, out_ptr0, out_ptr1, XBLOCK: tl.constexpr):
    R0_BLOCK: tl.constexpr = 65536
    r0_numel = 65536
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    r0_index = tl.arange(0, R0_BLOCK)[None, :]
    tmp0 = tl.load(in_ptr0 + (r0_index + 65536 * xindex), None, eviction_policy='evict_first').to(tl.float32)
    tmp2 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])
    tmp4, tmp5, tmp6 = mean_and_spread(tmp2, tl.full([1, 1], True, tl.int1), r0_numel, 1)
    tmp3 = tmp4[:, None]
    tmp7 = tmp5[:, None]
    tl.store(out_ptr0 + xindex, tmp3, None)
    tl.store(out_ptr1 + xindex, tmp7, None)


@triton.jit
def group_norm_1(in_ptr0, in_ptr1, in_ptr2, in_ptr3, in_ptr4, out_ptr1, XBLOCK: tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    x4 = xindex // 4096
    x1 = xindex // 4096 % 512
    tmp0 = tl.load(in_ptr0 + xindex, None).to(tl.float32)
    tmp2 = tl.load(in_ptr1 + x4 // 16, None, eviction_policy='evict_last')
    tmp4 = tl.load(in_ptr2 + x4 // 16, None, eviction_policy='evict_last')
    tmp11 = tl.load(in_ptr3 + x1, None, eviction_policy='evict_last').to(tl.float32)
    tmp14 = tl.load(in_ptr4 + x1, None, eviction_policy='evict_last').to(tl.float32)
    tmp3 = tmp0 - tmp2
    tmp5 = tl.full([1], 65536.0, tl.float32)
    tmp6 = tmp4 / tmp5
    tmp7 = tl.full([1], 1e-05, tl.float32)
    tmp8 = tmp6 + tmp7
    tmp9 = tl.rsqrt(tmp8)
    tmp10 = tmp3 * tmp9
    tmp13 = tmp10 * tmp11
    tmp16 = tmp13 + tmp14
    tmp17 = -tmp16
    tmp18 = tl.exp(tmp17)
    tmp19 = tl.full([1], 1.0, tl.float32)
    tmp20 = tmp18 + tmp19
    tmp21 = tmp16 / tmp20
    tmp22 = tmp21.to(tl.float32)
    tl.store(out_ptr1 + xindex, tmp22, None)


class ModelNew(Model):
    def forward(self, x):
        p_weight = self.weight
        p_bias = self.bias
        if not (
            p_weight.is_cuda and p_weight.dtype is torch.bfloat16 and p_weight.shape == (512,) and
            p_bias.is_cuda and p_bias.dtype is torch.bfloat16 and p_bias.shape == (512,) and
            x.is_cuda and x.dtype is torch.bfloat16 and x.shape == (32, 512, 64, 64) and
            p_weight.is_contiguous() and p_bias.is_contiguous() and x.is_contiguous() and
            not (torch.is_grad_enabled() and (p_weight.requires_grad or p_bias.requires_grad or x.requires_grad))
        ):
            return super().forward(x)
        buf0 = torch.empty_strided((32, 32, 1, 1), (32, 1, 1024, 1024), dtype=torch.float32, device=p_weight.device)
        buf1 = torch.empty_strided((32, 32, 1, 1), (32, 1, 1024, 1024), dtype=torch.float32, device=p_weight.device)
        group_norm_0[(1024,)](x, buf0, buf1, XBLOCK=1, num_warps=32, num_stages=1)
        buf4 = torch.empty_like(x)
        group_norm_1[(65536,)](x, buf0, buf1, p_weight, p_bias, buf4, XBLOCK=1024, num_warps=1, num_stages=1)
        return buf4
