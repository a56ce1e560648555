"""level1_rms_norm: the code that torch.compile generates for it, changed by these actions:
variant:base, add_mean_0:persistent. Other sizes, types and layouts, and calls that record
gradients, take the module's own path.
"""



import torch
import triton
import triton.language as tl
from torch import nn


eps = 1e-6


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.rand(features, dtype=torch.bfloat16) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.rms_norm(x, self.gain.shape, self.gain, eps)


@triton.jit
def add_mean_0(in_ptr0, in_ptr1, out_ptr1, XBLOCK: tl.constexpr):
    R0_BLOCK: tl.constexpr = 8192
    r0_numel = 5120
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    r0_base = tl.arange(0, R0_BLOCK)[None, :]
    _tmp4 = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)
    r0_mask = r0_base < r0_numel
    tmp0 = tl.load(in_ptr0 + (r0_base + 5120 * xindex), r0_mask, eviction_policy='evict_last', other=0.0).to(tl.float32)
    tmp2 = tmp0 * tmp0
    tmp3 = tl.broadcast_to(tmp2, [XBLOCK, R0_BLOCK])
    tmp5 = _tmp4 + tmp3
    _tmp4 = tl.where(r0_mask, tmp5, _tmp4)
    tmp4 = tl.sum(_tmp4, 1)[:, None]
    tmp14 = tl.load(in_ptr1 + r0_base, r0_mask, eviction_policy='evict_last', other=0.0).to(tl.float32)
    tmp8 = tl.full([1, 1], 5120.0, tl.float32)
    tmp9 = tmp4 / tmp8
    tmp10 = tl.full([1, 1], 1e-06, tl.float32)
    tmp11 = tmp9 + tmp10
    tmp12 = tl.rsqrt(tmp11)
    tmp13 = tmp0 * tmp12
    tmp16 = tmp13 * tmp14
    tmp17 = tmp16.to(tl.float32)
    tl.store(out_ptr1 + (r0_base + 5120 * xindex), tmp17, r0_mask)


class ModelNew(Model):
    def forward(self, x):
        p_gain = self.gain
        if not (
            p_gain.is_cuda and p_gain.dtype is torch.bfloat16 and p_gain.shape == (5120,) and
            x.is_cuda and x.dtype is torch.bfloat16 and x.shape == (16384, 5120) and
            p_gain.is_contiguous() and x.is_contiguous() and
            not (torch.is_grad_enabled() and (p_gain.requires_grad or x.requires_grad))
        ):
            return super().forward(x)
        buf1 = torch.empty_like(x)
        add_mean_0[(16384,)](x, p_gain, buf1, XBLOCK=1, num_warps=8, num_stages=1)
        return buf1
