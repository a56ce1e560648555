"""Write new keys into an int8 cache: the projection's bias is added, each head of each token gets its own
scale, and tokens by heads become heads by tokens. A short reduction and a transposition in one pass."""

import torch
from torch import nn

batch = 8
sequence = 4096
heads = 32
width = 128
limit = 127


class Model(nn.Module):
    """Returns codes (batch, heads, sequence, width) and float32 scales (batch, heads, sequence)."""

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(heads, width))

    def forward(self, keys: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        wide = (keys.float() + self.bias.float()).transpose(1, 2)
        scale = wide.abs().amax(dim=-1, keepdim=True).clamp(min=1e-12) / limit
        codes = torch.round(wide / scale).clamp(-limit, limit).to(torch.int8)
        return codes.contiguous(), scale.squeeze(-1).contiguous()


def get_inputs():
    factors = torch.rand(batch, sequence, heads, 1, dtype=torch.bfloat16) * 9.9 + 0.1
    return [torch.randn(batch, sequence, heads, width, dtype=torch.bfloat16) * factors]


def get_init_inputs():
    return [heads, width]


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 2, "sequence": 128, "heads": 4, "width": 64}},
        {"name": "ragged", "sizes": {"batch": 3, "sequence": 67, "heads": 5, "width": 53}},
        {
            "name": "strided",
            "sizes": {"batch": 2, "sequence": 64, "heads": 4, "width": 64},
            "layout": "strided",
        },
        {
            "name": "float32",
            "sizes": {"batch": 1, "sequence": 100, "heads": 3, "width": 80},
            "dtype": "float32",
        },
    ]


ABOUT = {"category": "quantisation", "regime": "memory"}


def cost(element_bytes=2):
    """Keys and bias read, a byte written for each element, a 4-byte scale for each head of a token."""
    vectors = batch * sequence * heads
    return {
        "bytes": vectors * width * (element_bytes + 1) + heads * width * element_bytes + vectors * 4,
        "flops": 4 * vectors * width,
    }
