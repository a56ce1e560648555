"""level1_softmax_rows: the code that torch.compile generates for it, changed by these actions:
variant:tiles_and_rows. Other sizes, types and layouts, and calls that record gradients, take the
module's own path.
"""



import torch
import triton
import triton.language as tl
from assay.tiles import operators
from torch import nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, dim=-1)


class ModelNew(Model):
    def forward(self, x):
        if not (
            x.is_cuda and x.dtype is torch.bfloat16 and x.shape == (4096, 32000) and
            x.is_contiguous() and not (torch.is_grad_enabled() and x.requires_grad)
        ):
            return super().forward(x)
        buf0 = operators.softmax(x)
        return buf0
