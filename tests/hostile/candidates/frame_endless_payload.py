"""Announces a payload of 4 GB."""
# expect: rejected
# finding: forged_message

import sys

import torch

child = sys.modules["assay.worker.child"]
honest = child.protocol.send


def forged(sock, head, payload=b"", fds=()):
    if "outputs" not in head:
        return honest(sock, head, payload, fds)
    return sock.sendall(bytes(4) + b"\xff" * 4 + b" " * (1 << 20))


child.protocol.send = forged


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1.0
