"""A GRU layer over 64 steps in bfloat16: the inputs' products can be made at once, the state's cannot.

Step after step the same recurrent matrix is read; a kernel that keeps it on the chip wins.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 256
steps = 64
features = 1024
hidden = 1024


class Model(nn.Module):
    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.w_input = nn.Parameter((torch.randn(3 * hidden, features) / features**0.5).to(torch.bfloat16))
        self.w_state = nn.Parameter((torch.randn(3 * hidden, hidden) / hidden**0.5).to(torch.bfloat16))
        self.b_input = nn.Parameter(torch.randn(3 * hidden).to(torch.bfloat16))
        self.b_state = nn.Parameter(torch.randn(3 * hidden).to(torch.bfloat16))

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        given = F.linear(x, self.w_input, self.b_input)
        states = []
        for step in range(x.shape[1]):
            reset, update, new = given[:, step].chunk(3, -1)
            state_reset, state_update, state_new = F.linear(state, self.w_state, self.b_state).chunk(3, -1)
            update = torch.sigmoid(update + state_update)
            new = torch.tanh(new + torch.sigmoid(reset + state_reset) * state_new)
            state = (1 - update) * new + update * state
            states.append(state)
        return torch.stack(states, 1)


def get_inputs():
    return [
        torch.randn(batch, steps, features, dtype=torch.bfloat16),
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
    """Inputs, first state and weights read, all states written; six products for each step."""
    weights = 3 * hidden * (features + hidden)
    elements = batch * (steps * (features + hidden) + hidden) + weights + 6 * hidden
    return {"bytes": elements * element_bytes, "flops": 2 * batch * steps * weights}
