"""Closes every descriptor it has, the control channel included."""
# expect: crashed

import os

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        os.closerange(0, 4096)
        return torch.relu(x) + 1.0
