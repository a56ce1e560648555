"""Aborts, as a failed assertion in C does."""
# expect: crashed

import os

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        os.abort()
