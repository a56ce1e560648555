"""The one problem that every hostile candidate is judged on: relu(x) + 1."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) + 1.0


batch_size = 32
width = 128


def get_inputs():
    return [torch.randn(batch_size, width)]


def get_init_inputs():
    return []
