"""Claims to have delivered more than the mailbox holds."""
# expect: wrong

import sys

import torch

child = sys.modules["assay.worker.child"]
honest = child.answer


def forged(session, message):
    reply, payload = honest(session, message)
    if message.head["op"] == "call":
        reply["tensors"][0]["shape"] = [1 << 30]
    return reply, payload


child.answer = forged


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1.0
