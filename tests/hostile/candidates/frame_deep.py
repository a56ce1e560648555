"""Sends JSON nested deeper than any parser's stack."""
# expect: rejected
# finding: forged_message

import sys

import torch

child = sys.modules["assay.worker.child"]
honest = child.protocol.send


def forged(sock, head, payload=b"", fds=()):
    if "outputs" not in head:
        return honest(sock, head, payload, fds)
    text = b"[" * 1_000_000 + b"]" * 1_000_000
    return sock.sendall(len(text).to_bytes(4, "big") + bytes(4) + text)


child.protocol.send = forged


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1.0
