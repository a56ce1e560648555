"""Calls an input it aliases by a name of two megabytes."""
# expect: rejected
# finding: forged_message

import sys

import torch

child = sys.modules["assay.worker.child"]
honest = child.answer


def forged(session, message):
    reply, payload = honest(session, message)
    if message.head["op"] == "call":
        reply["tensors"][0]["aliases"] = "x" * (2 << 20)
    return reply, payload


child.answer = forged


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1.0
