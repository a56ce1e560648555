"""Claims a dtype that plain bytes cannot be viewed as."""
# expect: wrong rejected

import sys

import torch

child = sys.modules["assay.worker.child"]
honest = child.answer


def forged(session, message):
    reply, payload = honest(session, message)
    if message.head["op"] == "call":
        reply["tensors"][0].update(dtype="quint8", shape=[8])
    return reply, payload


child.answer = forged


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1.0
