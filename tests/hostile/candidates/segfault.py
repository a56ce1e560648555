"""Reads address zero."""
# expect: crashed

import ctypes

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return ctypes.string_at(0)
