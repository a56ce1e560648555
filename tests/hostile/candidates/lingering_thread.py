"""Right, but its threads never end and are no daemons."""
# expect: passed

import threading
import time

import torch


def linger():
    while True:
        time.sleep(0.01)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        threading.Thread(target=linger, daemon=False).start()
        return torch.relu(x) + 1.0
