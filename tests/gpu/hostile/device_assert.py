"""Trips an assertion on the device: an index out of range."""
# expect: crashed
# finding: cuda_error

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        place = torch.full((4,), 1 << 30, device=x.device)
        return torch.relu(x) + x.flatten()[place].sum()
