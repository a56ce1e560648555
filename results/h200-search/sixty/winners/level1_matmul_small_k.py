"""level1_matmul_small_k: the code that torch.compile generates for it, changed by these actions:
variant:tiles. Other sizes, types and layouts, and calls that record gradients, take the module's
own path.
"""



import torch
import triton
import triton.language as tl
from assay.tiles import operators
from torch import nn


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


class ModelNew(Model):
    def forward(self, a, b):
        if not (
            a.is_cuda and a.dtype is torch.float16 and a.shape == (16384, 64) and b.is_cuda and
            b.dtype is torch.float16 and b.shape == (64, 8192) and a.is_contiguous() and
            b.is_contiguous() and
            not (torch.is_grad_enabled() and (a.requires_grad or b.requires_grad))
        ):
            return super().forward(a, b)
        buf0 = operators.gemm(a, b, None, None, '')
        return buf0
