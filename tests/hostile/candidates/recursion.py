"""Recurses in Python until the interpreter stops it."""
# expect: crashed

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return self.forward(x)
