"""Claims a size that no machine integer holds."""
# expect: wrong

import sys

import torch

child = sys.modules["assay.worker.child"]
honest = child.answer


def forged(session, message):
    reply, payload = honest(session, message)
    if message.head["op"] == "call":
        reply["tensors"][0]["shape"] = [10**40]
    return reply, payload


child.answer = forged


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1.0
