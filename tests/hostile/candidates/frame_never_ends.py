"""Announces an answer and sends it byte by byte, for ever."""
# expect: timed_out

import sys
import time

import torch

child = sys.modules["assay.worker.child"]
honest = child.protocol.send


def forged(sock, head, payload=b"", fds=()):
    if "outputs" not in head:
        return honest(sock, head, payload, fds)
    sock.sendall((4 << 20).to_bytes(4, "big") + bytes(4))
    while True:
        sock.sendall(b" ")
        time.sleep(0.01)


child.protocol.send = forged


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1.0
