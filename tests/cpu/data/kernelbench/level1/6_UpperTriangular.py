"""Our own fixture: an input with structure that an honest kernel may use, and sizes that must agree."""

import torch
import torch.nn as nn

M = 4096
K = 4096
N = 512


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    return [torch.triu(torch.rand(M, K)), torch.rand(M, N)]
