"""Three linear layers with activations between, in bfloat16: several kernels, however it is compiled."""

import torch
from torch import nn

tokens = 4096
width = 2048
hidden = 4 * width


class Model(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, hidden, dtype=torch.bfloat16)
        self.middle = nn.Linear(hidden, hidden, dtype=torch.bfloat16)
        self.down = nn.Linear(hidden, width, dtype=torch.bfloat16)
        for layer in (self.up, self.middle, self.down):
            # torch's default shrinks the signal at each layer until rounding error hides a wrong answer.
            nn.init.kaiming_normal_(layer.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.gelu(self.up(x))
        x = nn.functional.gelu(self.middle(x))
        return self.down(x)


def get_inputs():
    return [torch.randn(tokens, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [width, hidden]


def cost(element_bytes=2):
    """Input, output and weights once; what lies between may stay on the chip."""
    weights = 2 * width * hidden + hidden * hidden + 2 * hidden + width
    return {
        "bytes": (2 * tokens * width + weights) * element_bytes,
        "flops": 2 * tokens * (2 * width * hidden + hidden * hidden),
    }
