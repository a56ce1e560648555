"""Sleeps in C with the interpreter's lock held: no Python-level watchdog in this process could run."""
# expect: timed_out

import ctypes

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        ctypes.PyDLL(None).sleep(100_000)
        return torch.relu(x) + 1.0
