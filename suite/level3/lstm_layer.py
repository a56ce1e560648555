"""An LSTM layer over 64 steps in bfloat16: four gates from input and state, a cell that adds and forgets.

Latency of the chain is what counts: 64 dependent products, each far too small for the whole machine.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 128
steps = 64
features = 1024
hidden = 1024


class Model(nn.Module):
    """Returns the states of all steps and the last cell."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.w_input = nn.Parameter((torch.randn(4 * hidden, features) / features**0.5).to(torch.bfloat16))
        self.w_state = nn.Parameter((torch.randn(4 * hidden, hidden) / hidden**0.5).to(torch.bfloat16))
        self.bias = nn.Parameter(torch.randn(4 * hidden).to(torch.bfloat16))

    def forward(
        self, x: torch.Tensor, state: torch.Tensor, cell: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        given = F.linear(x, self.w_input, self.bias)
        states = []
        for step in range(x.shape[1]):
            enter, forget, new, leave = (given[:, step] + F.linear(state, self.w_state)).chunk(4, -1)
            cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(new)
            state = torch.sigmoid(leave) * torch.tanh(cell)
            states.append(state)
        return torch.stack(states, 1), cell


def get_inputs():
    return [
        torch.randn(batch, steps, features, dtype=torch.bfloat16),
        torch.randn(batch, hidden, dtype=torch.bfloat16),
        torch.randn(batch, hidden, dtype=torch.bfloat16),
    ]


def get_init_inputs():
    return [features, hidden]


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 16, "steps": 16, "features": 64, "hidden": 128}},
        {"name": "ragged", "sizes": {"batch": 13, "steps": 11, "features": 53, "hidden": 97}},
        {
            "name": "strided",
            "sizes": {"batch": 16, "steps": 8, "features": 64, "hidden": 64},
            "layout": "strided",
        },
        {
            "name": "float32",
            "sizes": {"batch": 8, "steps": 8, "features": 64, "hidden": 64},
            "dtype": "float32",
        },
    ]


ABOUT = {"category": "scan", "regime": "latency"}


def cost(element_bytes=2):
    """Inputs, first state, first cell and weights read, all states and the last cell written."""
    weights = 4 * hidden * (features + hidden)
    elements = batch * (steps * (features + hidden) + 3 * hidden) + weights + 4 * hidden
    return {"bytes": elements * element_bytes, "flops": 2 * batch * steps * weights}
