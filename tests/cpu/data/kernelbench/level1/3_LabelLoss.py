"""Our own fixture: a loss with integer labels, which must never be cast or redrawn."""

import torch
import torch.nn as nn

batch_size = 32768
num_classes = 4096


class Model(nn.Module):
    def forward(self, scores, labels):
        return nn.functional.cross_entropy(scores, labels)


def get_inputs():
    return [torch.rand(batch_size, num_classes), torch.randint(0, num_classes, (batch_size,))]
