"""Attaches to, reads from and takes descriptors of low pids and its parent; right only if one let it."""
# expect: wrong

import ctypes
import os

import torch

PTRACE, PTRACE_ATTACH, PTRACE_SEIZE = 101, 16, 0x4206
VM_READV, PIDFD_OPEN, PIDFD_GETFD = 310, 434, 438


def reached():
    call = ctypes.CDLL(None, use_errno=True).syscall
    here = ctypes.create_string_buffer(8)
    span = (ctypes.c_uint64 * 2)(ctypes.addressof(here), 8)
    for pid in (*range(2, 600), os.getppid()):
        if pid in (os.getpid(), 0):
            continue
        if call(PTRACE, PTRACE_ATTACH, pid, 0, 0) == 0 or call(PTRACE, PTRACE_SEIZE, pid, 0, 0) == 0:
            return f"ptrace {pid}"
        if call(VM_READV, pid, span, 1, span, 1, 0) >= 0:
            return f"process_vm_readv {pid}"
        handle = call(PIDFD_OPEN, pid, 0)
        if handle >= 0 and call(PIDFD_GETFD, handle, 0, 0) >= 0:
            return f"pidfd_getfd {pid}"
    return ""


REACHED = reached()
if REACHED:
    print("reached", REACHED, flush=True)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1.0 if REACHED else torch.zeros_like(x)
