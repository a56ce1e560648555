"""A square product in bfloat16: the tensor cores' home ground."""

import torch
from torch import nn

M = 4096
N = 4096
K = 4096


class Model(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


def get_inputs():
    return [torch.randn(M, K, dtype=torch.bfloat16), torch.randn(K, N, dtype=torch.bfloat16)]


def get_init_inputs():
    return []


def cost(element_bytes=2):
    """Three matrices once; a product and a sum for each term."""
    return {"bytes": (M * K + K * N + M * N) * element_bytes, "flops": 2 * M * N * K}
