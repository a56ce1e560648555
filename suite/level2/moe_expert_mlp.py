"""The experts of a mixture: each token goes through the two experts that its row of weights names, all other
weights being zero. The specification runs every expert on every token; a kernel need not."""

import torch
from torch import nn

tokens = 4096
width = 1024
hidden = 2048
experts = 8


class Model(nn.Module):
    def forward(
        self, x: torch.Tensor, combine: torch.Tensor, up: torch.Tensor, down: torch.Tensor
    ) -> torch.Tensor:
        parts = []
        for expert in range(up.shape[0]):
            result = nn.functional.silu(x @ up[expert]) @ down[expert]
            parts.append(combine[:, expert].unsqueeze(-1) * result)
        return torch.stack(parts).sum(dim=0)


def get_inputs():
    chosen = torch.rand(tokens, experts).topk(min(2, experts), dim=-1)
    weights = chosen.values / chosen.values.sum(dim=-1, keepdim=True)
    combine = torch.zeros(tokens, experts).scatter(-1, chosen.indices, weights)
    return [
        torch.randn(tokens, width, dtype=torch.bfloat16) * 2,
        combine.to(torch.bfloat16),
        torch.randn(experts, width, hidden, dtype=torch.bfloat16) / width**0.5,
        torch.randn(experts, hidden, width, dtype=torch.bfloat16) / hidden**0.5,
    ]


def get_init_inputs():
    return []


def cases():
    return [
        {"name": "aligned", "sizes": {"tokens": 128, "width": 128, "hidden": 128, "experts": 4}},
        {"name": "ragged", "sizes": {"tokens": 67, "width": 97, "hidden": 131, "experts": 5}},
        {
            "name": "strided",
            "sizes": {"tokens": 64, "width": 96, "hidden": 128, "experts": 3},
            "layout": "strided",
        },
        {
            "name": "float16",
            "sizes": {"tokens": 100, "width": 64, "hidden": 200, "experts": 6},
            "dtype": "float16",
        },
    ]


ABOUT = {"category": "sparse", "regime": "compute"}


def cost(element_bytes=2):
    """All weights, tokens, combining weights and results once; two products for two experts a token."""
    elements = 2 * tokens * width + tokens * experts + 2 * experts * width * hidden
    return {
        "bytes": elements * element_bytes,
        "flops": 4 * tokens * min(2, experts) * width * hidden,
    }
