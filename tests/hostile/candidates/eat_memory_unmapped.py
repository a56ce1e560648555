"""Hoards 3 GiB in memfds that no process maps: no resident set shows them; right if nobody minds."""
# expect: crashed

import os
import time

import torch

CHUNK = b"\x5a" * (1 << 20)


class ModelNew(torch.nn.Module):
    hoard = ()

    def forward(self, x):
        if not self.hoard:
            type(self).hoard = [os.memfd_create(f"hoard{n}") for n in range(60)]
            for fd in self.hoard:
                for _ in range(51):
                    os.write(fd, CHUNK)
            time.sleep(0.6)
        return torch.relu(x) + 1.0
