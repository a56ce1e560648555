"""Claims to have failed, but says so with a number."""
# expect: crashed

import sys

import torch

child = sys.modules["assay.worker.child"]
honest = child.answer


def forged(session, message):
    reply, payload = honest(session, message)
    if message.head["op"] == "call":
        reply = {"failure": 7}
    return reply, payload


child.answer = forged


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1.0
