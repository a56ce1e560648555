"""Sends the judge a descriptor along with its honest answer."""
# expect: passed rejected

import sys

import torch

child = sys.modules["assay.worker.child"]
honest = child.protocol.send


def forged(sock, head, payload=b"", fds=()):
    if "outputs" not in head:
        return honest(sock, head, payload, fds)
    return honest(sock, head, payload, (0, 1, 2))


child.protocol.send = forged


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1.0
