"""Right, but leaves a double-forked daemon in its own session that holds the control channel open."""
# expect: passed

import os
import time

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                while True:
                    time.sleep(0.01)
            os._exit(0)
        return torch.relu(x) + 1.0
