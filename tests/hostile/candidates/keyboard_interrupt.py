"""Raises what no `except Exception` catches."""
# expect: crashed

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        raise KeyboardInterrupt
