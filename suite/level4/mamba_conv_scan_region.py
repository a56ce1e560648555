"""Mamba 130M, mid-layer, 64 positions: causal depthwise convolution, selective scan, gate, in float32.

16 states for each of 1536 channels, in registers for all positions; written out step by step they are memory.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 64
channels = 1536
sequence = 64
states = 16
taps = 4


class Model(nn.Module):
    def __init__(self, channels: int, states: int) -> None:
        super().__init__()
        self.filter = nn.Parameter(torch.randn(channels, 1, taps) / taps**0.5)
        self.filter_bias = nn.Parameter(torch.randn(channels))
        self.step_bias = nn.Parameter(torch.randn(channels) - 2.0)
        self.a_log = nn.Parameter(torch.rand(channels, states) * 2.0)
        self.skip = nn.Parameter(torch.rand(channels, 1) + 0.5)

    def forward(
        self, x: torch.Tensor, dt: torch.Tensor, b: torch.Tensor, c: torch.Tensor, gate: torch.Tensor
    ) -> torch.Tensor:
        x = F.conv1d(F.pad(x, (taps - 1, 0)), self.filter, self.filter_bias, groups=x.shape[1])
        x = F.silu(x)
        dt = F.softplus(dt + self.step_bias.unsqueeze(-1))
        a = -torch.exp(self.a_log)
        state = x.new_zeros(x.shape[0], *a.shape)
        outputs = []
        for step in range(x.shape[-1]):
            width = dt[..., step].unsqueeze(-1)
            entered = width * x[..., step].unsqueeze(-1) * b[..., step].unsqueeze(1)
            state = torch.exp(width * a) * state + entered
            outputs.append((state * c[..., step].unsqueeze(1)).sum(-1))
        return (torch.stack(outputs, -1) + self.skip * x) * F.silu(gate)


def get_inputs():
    return [
        torch.randn(batch, channels, sequence),
        torch.randn(batch, channels, sequence),
        torch.randn(batch, states, sequence),
        torch.randn(batch, states, sequence),
        torch.randn(batch, channels, sequence),
    ]


def get_init_inputs():
    return [channels, states]


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 4, "channels": 64, "sequence": 32, "states": 16}},
        {"name": "ragged", "sizes": {"batch": 3, "channels": 53, "sequence": 29, "states": 7}},
        {
            "name": "strided",
            "sizes": {"batch": 2, "channels": 64, "sequence": 24, "states": 8},
            "layout": "strided",
        },
        {"name": "one_position", "sizes": {"batch": 8, "channels": 97, "sequence": 1, "states": 16}},
    ]


ABOUT = {"category": "scan", "regime": "memory"}


def cost(element_bytes=4):
    """Inputs and weights read, y written; six operations for each state and position."""
    cells = batch * channels * sequence
    elements = 4 * cells + 2 * batch * states * sequence + channels * (taps + states + 3)
    return {"bytes": elements * element_bytes, "flops": 6 * cells * states + 2 * taps * cells}
