"""A linear layer with its activation in bfloat16: worth fusing, and every compiler tries to."""

import torch
from torch import nn

rows = 8192
features_in = 4096
features_out = 4096


class Model(nn.Module):
    def __init__(self, features_in: int, features_out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features_in, features_out, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(self.linear(x))


def get_inputs():
    return [torch.randn(rows, features_in, dtype=torch.bfloat16)]


def get_init_inputs():
    return [features_in, features_out]


def cost(element_bytes=2):
    """x, weight and bias read, y written; the product's terms, then six operations an element."""
    elements = rows * features_in + (features_in + 1) * features_out + rows * features_out
    flops = 2 * rows * features_in * features_out + 6 * rows * features_out
    return {"bytes": elements * element_bytes, "flops": flops}
