"""Sends an output nested deeper than values may be."""
# expect: rejected
# finding: forged_message

import sys

import torch

child = sys.modules["assay.worker.child"]
honest = child.protocol.send


def forged(sock, head, payload=b"", fds=()):
    if "outputs" not in head:
        return honest(sock, head, payload, fds)
    text = b'{"ok": true, "tensors": [], "outputs": ' + b'{"list": [' * 400 + b"1" + b"]}" * 400 + b"}"
    return sock.sendall(len(text).to_bytes(4, "big") + bytes(4) + text)


child.protocol.send = forged


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1.0
