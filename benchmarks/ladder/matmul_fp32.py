"""A square product in real float32: TF32 is not allowed, so tensor cores do not help."""

import torch
from torch import nn

N = 4096


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


def get_inputs():
    return [torch.randn(N, N), torch.randn(N, N)]


def get_init_inputs():
    return []


PRECISION = {"allow_tf32": False}


def cost(element_bytes=4):
    """Three matrices once; a product and a sum for each of N^3 terms."""
    return {"bytes": 3 * N * N * element_bytes, "flops": 2 * N * N * N}
