"""The gated delta rule over a few tokens in float32: a state that decays and is set right key by key.

Step after step the state is read twice and written once; a kernel keeps it in registers for the whole run.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 32
heads = 16
sequence = 48
key_width = 128
value_width = 128


class Model(nn.Module):
    def forward(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        keep: torch.Tensor,
        rate: torch.Tensor,
        state: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        k = F.normalize(k, dim=-1)
        keep = torch.sigmoid(keep).unsqueeze(-1).unsqueeze(-1)
        rate = torch.sigmoid(rate).unsqueeze(-1).unsqueeze(-1)
        outputs = []
        for step in range(q.shape[2]):
            key = k[:, :, step].unsqueeze(-2)
            state = keep[:, :, step] * state
            error = v[:, :, step].unsqueeze(-2) - key @ state
            state = state + key.transpose(-1, -2) @ (rate[:, :, step] * error)
            outputs.append(q[:, :, step].unsqueeze(-2) @ state)
        return torch.cat(outputs, 2), state


def get_inputs():
    return [
        torch.randn(batch, heads, sequence, key_width) / key_width**0.5,
        torch.randn(batch, heads, sequence, key_width),
        torch.randn(batch, heads, sequence, value_width),
        torch.randn(batch, heads, sequence) + 3.0,
        torch.randn(batch, heads, sequence),
        torch.randn(batch, heads, key_width, value_width),
    ]


def get_init_inputs():
    return []


def cases():
    small = {"batch": 2, "heads": 2}
    return [
        {"name": "aligned", "sizes": {**small, "sequence": 32, "key_width": 64, "value_width": 64}},
        {"name": "ragged", "sizes": {**small, "sequence": 29, "key_width": 37, "value_width": 41}},
        {
            "name": "strided",
            "sizes": {**small, "sequence": 16, "key_width": 32, "value_width": 64},
            "layout": "strided",
        },
        {
            "name": "one_step",
            "sizes": {**small, "batch": 3, "sequence": 1, "key_width": 64, "value_width": 48},
        },
    ]


ABOUT = {"category": "scan", "regime": "memory"}


def cost(element_bytes=4):
    """Inputs read, outputs and last state written; each output reads the state or all pairs before it."""
    rows = batch * heads
    pairs = sequence * (sequence + 1) // 2
    work = min(4 * sequence * key_width * value_width, pairs * 2 * (key_width + value_width))
    elements = rows * sequence * (2 * key_width + 2 * value_width + 2) + 2 * rows * key_width * value_width
    return {"bytes": elements * element_bytes, "flops": rows * work}
