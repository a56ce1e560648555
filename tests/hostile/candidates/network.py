"""Opens sockets of every family, listens and connects to loopback; right only if one came about."""
# expect: wrong

import contextlib
import socket

import torch


def opened():
    for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK, socket.AF_PACKET):
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):
            with contextlib.suppress(OSError):
                return socket.socket(family, kind)
    with contextlib.suppress(OSError):
        return socket.create_connection(("127.0.0.1", 22), timeout=1)
    return None


OPENED = opened()


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1.0 if OPENED else torch.zeros_like(x)
