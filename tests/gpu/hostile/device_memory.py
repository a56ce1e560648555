"""Takes all device memory, in pieces, and asks for more."""
# expect: crashed
# finding: device_memory

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        hoard = []
        while True:
            hoard.append(torch.empty(1 << 30, dtype=torch.uint8, device=x.device))
