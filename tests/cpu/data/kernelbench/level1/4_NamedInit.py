"""Our own fixture: constructor arguments in the form [[positional], {named}], and a tuple constant."""

import torch
import torch.nn as nn

shape = (2048, 4096)


class Model(nn.Module):
    def __init__(self, features, scale=1.0, bias=True):
        super().__init__()
        self.scale = scale
        self.linear = nn.Linear(features, 8, bias=bias)

    def forward(self, x):
        return self.linear(x) * self.scale


def get_inputs():
    torch.manual_seed(0)
    return [torch.rand(shape)]


def get_init_inputs():
    return [[shape[1]], {"scale": 0.5, "bias": False}]
