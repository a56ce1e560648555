"""A graph convolution on dense adjacency matrices in bfloat16: self loops, degrees, two products.

Half the edges exist. The degrees need a pass over the adjacency before the product does; ReLU comes last.
"""

import torch
from torch import nn

batch = 8
nodes = 4096
features_in = 128
features_out = 128


class Model(nn.Module):
    def __init__(self, features_in: int, features_out: int) -> None:
        super().__init__()
        weight = torch.randn(features_in, features_out) / features_in**0.5
        self.weight = nn.Parameter(weight.to(torch.bfloat16))

    def forward(self, adjacency: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        # The loop's edge has weight one: the scaled features are added as they are.
        scale = torch.rsqrt(adjacency.sum(-1, keepdim=True) + 1)
        message = (x @ self.weight) * scale
        return torch.relu((adjacency @ message + message) * scale)


def get_inputs():
    return [
        (torch.rand(batch, nodes, nodes) < 0.5).to(torch.bfloat16),
        torch.randn(batch, nodes, features_in, dtype=torch.bfloat16),
    ]


def get_init_inputs():
    return [features_in, features_out]


def cases():
    return [
        {"name": "aligned", "sizes": {"batch": 2, "nodes": 256, "features_in": 64, "features_out": 64}},
        {"name": "ragged", "sizes": {"batch": 3, "nodes": 151, "features_in": 37, "features_out": 41}},
        {
            "name": "strided",
            "sizes": {"batch": 2, "nodes": 96, "features_in": 32, "features_out": 48},
            "layout": "strided",
        },
        {
            "name": "float32",
            "sizes": {"batch": 2, "nodes": 128, "features_in": 48, "features_out": 32},
            "dtype": "float32",
        },
    ]


ABOUT = {"category": "matmul", "regime": "memory"}


def cost(element_bytes=2):
    """Adjacency, features and weights read, y written; an addition for each edge, half of all pairs."""
    elements = batch * nodes * (nodes + features_in + features_out) + features_in * features_out
    narrow = min(features_in, features_out)
    flops = batch * nodes * (2 * features_in * features_out + nodes * narrow // 2)
    return {"bytes": elements * element_bytes, "flops": flops}
