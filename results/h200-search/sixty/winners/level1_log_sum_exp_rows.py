"""level1_log_sum_exp_rows: the code that torch.compile generates for it, changed by these actions:
variant:held_rows, logsumexp_0:fast_exp, logsumexp_0:num_warps=16. Other sizes, types and
layouts, and calls that record gradients, take the module's own path.
"""



import torch
import triton
import triton.language as tl
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.logsumexp(x, dim=-1)


@triton.jit
def larger(a, b):
    """The larger one; NaN if one of them is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def logsumexp_0(in_out_ptr0, in_ptr0, XBLOCK: tl.constexpr):
    r0_numel = 32000
    R0_BLOCK: tl.constexpr = 32768
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    r0_index = tl.arange(0, R0_BLOCK)[None, :]
    r0_mask = r0_index < r0_numel
    tmp0 = tl.load(in_ptr0 + (r0_index + 32000 * xindex), r0_mask, other=0.0)
    tmp1 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])
    tmp3 = tl.where(r0_mask, tmp1, float('-inf'))
    tmp4 = tl.reduce(tmp3, 1, larger)[:, None].to(tl.float32)
    tmp5 = tl.abs(tmp4)
    tmp6 = tl.full([1, 1], float('inf'), tl.float32)
    tmp7 = tmp5 == tmp6
    tmp8 = tl.full([1, 1], 0.0, tl.float32)
    tmp9 = tl.where(tmp7, tmp8, tmp4)
    tmp10 = tmp0 - tmp9
    tmp11 = tl.exp(tmp10)
    tmp12 = tl.broadcast_to(tmp11, [XBLOCK, R0_BLOCK])
    tmp14 = tl.where(r0_mask, tmp12, 0)
    tmp15 = tl.sum(tmp14, 1)[:, None].to(tl.float32)
    tmp16 = tl.log(tmp15)
    tmp17 = tmp16 + tmp9
    tl.store(in_out_ptr0 + xindex, tmp17, None)


class ModelNew(Model):
    def forward(self, x):
        if not (
            x.is_cuda and x.dtype is torch.float32 and x.shape == (4096, 32000) and
            x.is_contiguous() and not (torch.is_grad_enabled() and x.requires_grad)
        ):
            return super().forward(x)
        buf1 = torch.empty_strided((4096,), (1,), dtype=torch.float32, device=x.device)
        logsumexp_0[(4096,)](buf1, x, XBLOCK=1, num_warps=16, num_stages=1)
        return buf1
