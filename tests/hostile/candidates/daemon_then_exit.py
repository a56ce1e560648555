"""Dies while a daemon of its keeps the control channel open: the end must be seen all the same."""
# expect: crashed

import os
import time

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        if os.fork() == 0:
            os.setsid()
            time.sleep(1000)
        os._exit(0)
