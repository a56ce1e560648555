"""A gate on the device: work queued behind it starts when another process opens it, and says when it is done.

Two words of memory that both processes see. The child queues: wait for `go`, its calls, the copies of their
answers, write `done`. Nothing of that keeps a multiprocessor busy while it waits.

Not covered: a call that waits for the device within itself; it gets no further until the gate is open.
"""

from __future__ import annotations

import ctypes
import functools

import torch

from assay.worker.cuda_driver import check

GATE_BYTES = 128
_GO, _DONE = slice(0, 4), slice(64, 68)
_AT_LEAST = 0


def go_of(shared: torch.Tensor) -> torch.Tensor:
    """The word that opens the gate."""
    return shared[_GO].view(torch.int32)


def done_of(shared: torch.Tensor) -> torch.Tensor:
    """The word that says that all behind it has ended."""
    return shared[_DONE].view(torch.int32)


def queue_wait(word: torch.Tensor, number: int) -> None:
    """Whatever is queued next on the current stream waits until the word is this number or more."""
    _queue("cuStreamWaitValue32_v2", word, number, _AT_LEAST)


def queue_write(word: torch.Tensor, number: int) -> None:
    """Behind whatever was queued on the current stream, the word becomes this number."""
    _queue("cuStreamWriteValue32_v2", word, number, 0)


def _queue(call: str, word: torch.Tensor, number: int, flags: int) -> None:
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    address = ctypes.c_uint64(word.data_ptr())
    check(_driver(), call, stream, address, ctypes.c_uint32(number), ctypes.c_uint(flags))


@functools.cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")
