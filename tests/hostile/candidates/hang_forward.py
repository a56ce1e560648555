"""Spins in forward, in Python."""
# expect: timed_out

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        while True:
            pass
