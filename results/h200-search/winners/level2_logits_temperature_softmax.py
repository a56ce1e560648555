"""level2_logits_temperature_softmax: the code that torch.compile generates for it, changed by these
actions: variant:held_rows, softmax_amax_0:fast_exp, softmax_amax_0:reciprocal,
softmax_amax_0:evict[*]=none. Other sizes, types and layouts, and calls that record gradients,
take the module's own path.
"""



import torch
import triton
import triton.language as tl
from torch import nn


class Model(nn.Module):
    def forward(self, logits: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
        scaled = logits.float() / temperature.float().unsqueeze(-1)
        return torch.softmax(scaled, dim=-1).to(logits.dtype)


@triton.jit
def larger(a, b):
    """The larger one; NaN if one of them is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def softmax_amax_0(in_ptr0, in_ptr1, out_ptr2, XBLOCK: tl.constexpr):
    r0_numel = 32000
    R0_BLOCK: tl.constexpr = 32768
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    r0_index = tl.arange(0, R0_BLOCK)[None, :]
    r0_mask = r0_index < r0_numel
    tmp0 = tl.load(in_ptr0 + (r0_index + 32000 * xindex), r0_mask, other=0.0).to(tl.float32)
    tmp2 = tl.load(in_ptr1 + xindex, None).to(tl.float32)
    tmp4 = tl.full([1, 1], 0.0, tl.float32)
    tmp5 = tmp2 >= tmp4
    tmp6 = tl.full([1, 1], 1.0, tl.float32)
    tmp7 = tl.full([1, 1], -1.0, tl.float32)
    tmp8 = tl.where(tmp5, tmp6, tmp7)
    tmp9 = tmp0 * tmp8
    tmp10 = tl.broadcast_to(tmp9, [XBLOCK, R0_BLOCK])
    tmp12 = tl.where(r0_mask, tmp10, float('-inf'))
    tmp13 = tl.reduce(tmp12, 1, larger)[:, None].to(tl.float32)
    tmp14 = tmp9 - tmp13
    tmp15 = tmp8 * tmp2
    tmp16 = tmp14 / tmp15
    tmp17 = tl.exp(tmp16)
    tmp18 = tl.broadcast_to(tmp17, [XBLOCK, R0_BLOCK])
    tmp20 = tl.where(r0_mask, tmp18, 0)
    tmp21 = tl.sum(tmp20, 1)[:, None].to(tl.float32)
    tmp21_inverse = 1.0 / tmp21
    tmp22 = tmp17 * tmp21_inverse
    tmp23 = tmp22.to(tl.float32)
    tl.store(out_ptr2 + (r0_index + 32000 * xindex), tmp23, r0_mask)


class ModelNew(Model):
    def forward(self, logits, temperature):
        if not (
            logits.is_cuda and logits.dtype is torch.bfloat16 and logits.shape == (4096, 32000) and
            temperature.is_cuda and temperature.dtype is torch.bfloat16 and
            temperature.shape == (4096,) and logits.is_contiguous() and temperature.is_contiguous()
            and
            not (torch.is_grad_enabled() and (logits.requires_grad or temperature.requires_grad))
        ):
            return super().forward(logits, temperature)
        buf2 = torch.empty_like(logits)
        softmax_amax_0[(4096,)](logits, temperature, buf2, XBLOCK=1, num_warps=32, num_stages=1)
        return buf2
