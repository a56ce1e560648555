"""What a child says when the candidate failed: a status, a code and a message, short enough to show."""

from __future__ import annotations

import traceback
from typing import Any

import torch

from assay.build import diagnose_exception

_CUDA_FATAL = ("CUDA error", "device-side assert", "illegal memory access", "launch failure", "CUDA_ERROR")


def failure_reply(status: str, code: str, message: str, detail: str = "") -> dict[str, Any]:
    return {"failure": {"status": status, "code": code, "message": message[:2000], "detail": detail[-4000:]}}


def raised_reply(error: Exception, source: str) -> dict[str, Any]:
    text = f"{type(error).__name__}: {error}"
    found = diagnose_exception(error, source)
    if type(error).__module__.startswith("triton."):
        return failure_reply("build_failed", "compile_error", found.summary, found.render())
    if isinstance(error, torch.OutOfMemoryError):
        code = "device_memory"
    elif isinstance(error, MemoryError):
        code = "host_memory"
    elif any(mark in text for mark in _CUDA_FATAL):
        code = "cuda_error"
    else:
        code = "raised"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "candidate" in f.filename]
    detail = f"{found.hint}\n" if found.hint else ""
    return failure_reply("crashed", code, text, detail + "".join(traceback.format_list(frames)))
