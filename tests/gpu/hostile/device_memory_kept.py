"""Takes nearly all device memory and keeps it, under a right answer: the judge must still find room."""
# expect: passed crashed rejected

import torch


class ModelNew(torch.nn.Module):
    hoard = ()

    def forward(self, x):
        if not self.hoard:
            pieces = []
            try:
                while True:
                    pieces.append(torch.empty(1 << 28, dtype=torch.uint8, device=x.device))
            except torch.OutOfMemoryError:
                pieces.pop()
            type(self).hoard = pieces
        return torch.relu(x) + 1.0
