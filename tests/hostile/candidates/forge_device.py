"""Puts a device that does not exist into the answer's tree."""
# expect: rejected wrong

import sys

import torch

child = sys.modules["assay.worker.child"]
honest = child.answer


def forged(session, message):
    reply, payload = honest(session, message)
    if message.head["op"] == "call":
        reply["outputs"] = {"list": [reply["outputs"], {"device": "cpu:many"}]}
    return reply, payload


child.answer = forged


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1.0
