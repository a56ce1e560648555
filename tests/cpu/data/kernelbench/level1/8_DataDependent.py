"""Our own fixture: inputs and output depend on values, which the meta device does not have."""

import torch
import torch.nn as nn

batch_size = 100000
dim = 50000


class Model(nn.Module):
    def forward(self, x):
        return x[x > 0.5].sum()


def get_inputs():
    return [torch.rand(batch_size, dim) * (1 + torch.rand(1).item())]
