"""Announces and sends a header of 100 MB."""
# expect: rejected
# finding: forged_message

import sys

import torch

child = sys.modules["assay.worker.child"]
honest = child.protocol.send


def forged(sock, head, payload=b"", fds=()):
    if "outputs" not in head:
        return honest(sock, head, payload, fds)
    return sock.sendall((100 << 20).to_bytes(4, "big") + bytes(4) + b" " * (100 << 20))


child.protocol.send = forged


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1.0
