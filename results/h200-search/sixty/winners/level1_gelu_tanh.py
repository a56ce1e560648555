"""level1_gelu_tanh: the code that torch.compile generates for it, changed by these actions:
variant:base, gelu_0:fast_tanh, gelu_0:num_warps=2. Other sizes, types and layouts, and calls
that record gradients, take the module's own path.
"""



import torch
import triton
import triton.language as tl
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(x, approximate="tanh")


@triton.jit
def tanh_by_exp(x):
    """tanh, off by some 1e-7 wherever x is."""
    return 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0


@triton.jit
def gelu_0(in_ptr0, out_ptr0, XBLOCK: tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    tmp0 = tl.load(in_ptr0 + xindex, None).to(tl.float32)
    tmp2 = tl.full([1], 0.5, tl.float32)
    tmp3 = tmp0 * tmp2
    tmp4 = tmp0 * tmp0
    tmp5 = tmp4 * tmp0
    tmp6 = tl.full([1], 0.044715, tl.float32)
    tmp7 = tmp5 * tmp6
    tmp8 = tmp0 + tmp7
    tmp9 = tl.full([1], 0.7978845608028654, tl.float32)
    tmp10 = tmp8 * tmp9
    tmp11 = tanh_by_exp(tmp10)
    tmp12 = tl.full([1], 1.0, tl.float32)
    tmp13 = tmp11 + tmp12
    tmp14 = tmp3 * tmp13
    tmp15 = tmp14.to(tl.float32)
    tl.store(out_ptr0 + xindex, tmp15, None)


class ModelNew(Model):
    def forward(self, x):
        if not (
            x.is_cuda and x.dtype is torch.bfloat16 and x.shape == (16384, 8192) and
            x.is_contiguous() and not (torch.is_grad_enabled() and x.requires_grad)
        ):
            return super().forward(x)
        buf0 = torch.empty_like(x)
        gelu_0[(131072,)](x, buf0, XBLOCK=1024, num_warps=2, num_stages=1)
        return buf0
