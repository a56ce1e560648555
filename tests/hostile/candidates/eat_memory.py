"""Takes all host memory it can get, and touches it."""
# expect: crashed timed_out

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        hoard = []
        while True:
            hoard.append(bytearray(b"\x5a") * (16 << 20))
