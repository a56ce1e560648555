"""The CUDA driver through ctypes: errors by name, modules, launches."""

from __future__ import annotations

import ctypes
from typing import Any

import torch


class DriverError(RuntimeError):
    """A CUDA driver call failed; `name` is the error's, such as CUDA_ERROR_INVALID_VALUE."""

    def __init__(self, call: str, name: str, text: str) -> None:
        super().__init__(f"{call}: {name} ({text})")
        self.name = name


def check(cuda: ctypes.CDLL, call: str, *args: Any) -> None:
    """Call the driver; raise what it says."""
    status = getattr(cuda, call)(*args)
    if status == 0:
        return
    name, text = ctypes.c_char_p(), ctypes.c_char_p()
    cuda.cuGetErrorName(status, ctypes.byref(name))
    cuda.cuGetErrorString(status, ctypes.byref(text))
    raise DriverError(
        call,
        (name.value or b"CUDA_ERROR").decode() + f" {status}" * (not name.value),
        (text.value or b"unknown").decode(),
    )


def declare_launch(cuda: ctypes.CDLL) -> None:
    """So that plain ints convert: seven 32-bit sizes between the function and the stream."""
    cuda.cuLaunchKernel.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3]


def load_function(cuda: ctypes.CDLL, image: bytes, name: str) -> ctypes.c_void_p:
    """A kernel of a cubin, in torch's own context."""
    torch.cuda.synchronize()  # makes torch's context current in this thread
    declare_launch(cuda)
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    check(cuda, "cuModuleLoadData", ctypes.byref(module), image)
    check(cuda, "cuModuleGetFunction", ctypes.byref(function), module, name.encode())
    return function
