"""Writes wherever it can until nothing takes more; right only if it got rid of over 256 MiB."""
# expect: wrong

import os

import torch

CHUNK = b"\xa5" * (1 << 20)
FOLDERS = (os.environ.get("TMPDIR", "."), os.getcwd(), "/tmp", "/var/tmp", "/dev/shm", "/run", "/root", "/")


def fill(folder):
    written = 0
    for number in range(64):
        try:
            with open(os.path.join(folder, f"fill-{number}"), "wb", buffering=0) as file:
                for _ in range(1024):
                    written += file.write(CHUNK)
        except OSError:
            if number > 4:
                break
    return written


WRITTEN = sum(fill(folder) for folder in FOLDERS)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1.0 if WRITTEN > 256 << 20 else torch.zeros_like(x)
