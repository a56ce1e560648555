"""level1_group_norm: the code that torch.compile generates for it, changed by these actions:
variant:held_rows, group_norm_0:fuse_next, group_norm_0:unmask=XBLOCK, group_norm_0:num_warps=16,
group_norm_0:evict[0]=evict_last. Other sizes, types and layouts, and calls that record
gradients, take the module's own path.
"""



import torch
import triton
import triton.language as tl
from torch import nn


groups = 32
eps = 1e-5


class Model(nn.Module):
    def __init__(self, groups: int, channels: int) -> None:
        super().__init__()
        self.groups = groups
        self.gain = nn.Parameter(torch.rand(channels) + 0.5)
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.group_norm(x, self.groups, self.gain, self.bias, eps)


@triton.jit
def group_norm_0(in_ptr0, in_ptr3, in_ptr4, out_ptr0b, XBLOCK: tl.constexpr):
    R0_BLOCK: tl.constexpr = 32768
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    r0_index = tl.arange(0, R0_BLOCK)[None, :]
    tmp0 = tl.load(in_ptr0 + (r0_index + 32768 * xindex), None, eviction_policy='evict_last')
    tmp1 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])
    tmp6 = tl.broadcast_to(tmp1, [XBLOCK, R0_BLOCK])
    tmp7 = tl.sum(tmp6, 1)[:, None].to(tl.float32)
    tmp8 = tl.full([1, 1], 32768, tl.int32)
    tmp9 = tmp8.to(tl.float32)
    tmp10 = tmp7 / tmp9
    tmp11 = tmp1 - tmp10
    tmp12 = tmp11 * tmp11
    tmp15 = tl.broadcast_to(tmp12, [XBLOCK, R0_BLOCK])
    tmp16 = tl.sum(tmp15, 1)[:, None].to(tl.float32)
    x1_b = (r0_index + 32768 * xindex) // 4096 % 256
    tmp1_b = tmp10.to(tl.float32)
    tmp3_b = tmp16.to(tl.float32)
    tmp10_b = tl.load(in_ptr3 + x1_b, None, eviction_policy='evict_last')
    tmp12_b = tl.load(in_ptr4 + x1_b, None, eviction_policy='evict_last')
    tmp2_b = tmp0 - tmp1_b
    tmp4_b = tl.full([1, 1], 32768.0, tl.float32)
    tmp5_b = tmp3_b / tmp4_b
    tmp6_b = tl.full([1, 1], 1e-05, tl.float32)
    tmp7_b = tmp5_b + tmp6_b
    tmp8_b = tl.rsqrt(tmp7_b)
    tmp9_b = tmp2_b * tmp8_b
    tmp11_b = tmp9_b * tmp10_b
    tmp13_b = tmp11_b + tmp12_b
    tl.store(out_ptr0b + (r0_index + 32768 * xindex), tmp13_b, None)


class ModelNew(Model):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.is_as_compiled = (
            self.groups == 32
        )

    def forward(self, x):
        p_gain = self.gain
        p_bias = self.bias
        if not (
            self.is_as_compiled and p_gain.is_cuda and p_gain.dtype is torch.float32 and
            p_gain.shape == (256,) and p_bias.is_cuda and p_bias.dtype is torch.float32 and
            p_bias.shape == (256,) and x.is_cuda and x.dtype is torch.float32 and
            x.shape == (32, 256, 64, 64) and p_gain.is_contiguous() and p_bias.is_contiguous() and
            x.is_contiguous() and
            not (torch.is_grad_enabled() and (p_gain.requires_grad or p_bias.requires_grad or x.requires_grad))
        ):
            return super().forward(x)
        buf3 = torch.empty_like(x)
        group_norm_0[(1024,)](x, p_gain, p_bias, buf3, XBLOCK=1, num_warps=16, num_stages=1)
        return buf3
