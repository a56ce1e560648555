"""RWKV-4, time mixing on 64 positions in bfloat16: norm, mix with the token before, decayed averages, gate.

Three products, a float32 scan over positions with two numbers for each channel, and one product more.
"""

import torch
import torch.nn.functional as F
from torch import nn

batch = 64
sequence = 64
width = 2048


def matrix(features_out: int, features_in: int) -> nn.Parameter:
    return nn.Parameter((torch.randn(features_out, features_in) / features_in**0.5).to(torch.bfloat16))


def uniform(features: int, low: float, high: float) -> nn.Parameter:
    return nn.Parameter((torch.rand(features) * (high - low) + low).to(torch.bfloat16))


class Model(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain, self.shift = uniform(width, 0.5, 1.5), uniform(width, -1.0, 1.0)
        self.key_mix, self.value_mix, self.gate_mix = (uniform(width, 0.0, 1.0) for _ in range(3))
        self.key, self.value = matrix(width, width), matrix(width, width)
        self.gate, self.out = matrix(width, width), matrix(width, width)
        self.decay = uniform(width, -3.0, 0.0)
        self.bonus = uniform(width, -1.0, 1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.layer_norm(x, self.gain.shape, self.gain, self.shift)
        before = F.pad(x, (0, 0, 1, 0))[:, :-1]
        # The norm bounds the keys, so their exponentials need no running maximum.
        weight = F.linear(torch.lerp(before, x, self.key_mix), self.key).float().exp()
        v = F.linear(torch.lerp(before, x, self.value_mix), self.value).float()
        gate = torch.sigmoid(F.linear(torch.lerp(before, x, self.gate_mix), self.gate))
        keep, bonus = torch.exp(-self.decay.float().exp()), self.bonus.float().exp()
        above = below = torch.zeros_like(v[:, 0])
        averages = []
        for step in range(x.shape[1]):
            now, value = weight[:, step], v[:, step]
            averages.append((above + bonus * now * value) / (below + bonus * now))
            above, below = keep * above + now * value, keep * below + now
        return F.linear(gate * torch.stack(averages, 1).to(x.dtype), self.out)


def get_inputs():
    return [torch.randn(batch, sequence, width, dtype=torch.bfloat16)]


def get_init_inputs():
    return [width]


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 8, "sequence": 32, "width": 128}},
        {"name": "ragged", "sizes": {"batch": 7, "sequence": 29, "width": 97}},
        {"name": "strided", "sizes": {"batch": 4, "sequence": 24, "width": 64}, "layout": "strided"},
        {"name": "float32", "sizes": {"batch": 4, "sequence": 20, "width": 96}, "dtype": "float32"},
    ]


ABOUT = {"category": "scan", "regime": "compute"}


def cost(element_bytes=2):
    """x and the weights read, y written; four products and ten operations a position of the scan."""
    tokens = batch * sequence
    elements = 2 * tokens * width + 4 * width * width + 7 * width
    return {
        "bytes": elements * element_bytes,
        "flops": 8 * tokens * width * width + 10 * tokens * width,
    }
