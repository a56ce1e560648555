"""Answers the next questions before they are asked, then returns zeros: answers out of step prove nothing."""
# expect: wrong rejected

import sys

import torch

child = sys.modules["assay.worker.child"]
honest = child.protocol.send
sent = []


def eager(sock, head, payload=b"", fds=()):
    honest(sock, head, payload, fds)
    if "outputs" in head and not sent:
        sent.append(True)
        for _ in range(50):
            honest(sock, head, payload, fds)


child.protocol.send = eager


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.zeros_like(x) if sent else torch.relu(x) + 1.0
