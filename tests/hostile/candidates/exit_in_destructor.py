"""Right, but raises SystemExit from a destructor and at exit."""
# expect: passed

import atexit
import sys

import torch


class Trap:
    def __del__(self):
        sys.exit(0)


atexit.register(sys.exit, 0)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        Trap()
        return torch.relu(x) + 1.0
