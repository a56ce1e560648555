"""Times one call inside the child: precise, and not to be believed without the judge's own clock.

    cold   caches flushed, then a kernel that spins while the host launches, then the call between events
    warm   the same without the flush
    idle   nothing queued before: the host's clock from the call to its finished result

The spinning kernel reads the clock of the multiprocessor it runs on, which tells a throttled sample from an
honest one. On a CPU the host's clock serves for all three, and the flush is a walk over a large buffer.

Python looks for garbage between calls and not within: calls of a millisecond that took 20 were seen before.

Not covered: work that outlives the call. It shows in the outputs, or in the judge's clock.
"""

from __future__ import annotations

import ctypes
import gc
import time

import torch

from assay.worker.cuda_driver import load_function

_PERSISTING_L2_LIMIT = 6
_ACCESS_POLICY_WINDOW = 1
_POLICY_BYTES = 64


class HostStopwatch:
    """For the CPU."""

    persisting_l2_bytes = 0

    def __init__(self, flushed: torch.Tensor) -> None:
        self._flushed = flushed[: flushed.numel() // 8 * 8].view(torch.int64).numpy()
        self._start_ns = 0
        self._end_ns = 0

    def start(self, mode: str, cover_us: int) -> None:
        gc.disable()
        if mode == "cold":
            self._flushed.max()
        self._start_ns = time.perf_counter_ns()

    def stop(self) -> None:
        self._end_ns = time.perf_counter_ns()
        gc.enable()

    def read(self) -> dict[str, float]:
        spent_us = (self._end_ns - self._start_ns) / 1e3
        return {"device_us": spent_us, "launch_us": 0.0, "host_us": spent_us, "sm_mhz": 0.0}


class CudaStopwatch:
    """For one GPU, on torch's current stream."""

    def __init__(self, cover: bytes, flushed: torch.Tensor, device: torch.device) -> None:
        self._cuda = ctypes.CDLL("libcuda.so.1")
        self._cover = load_function(self._cuda, cover, "cover") if cover else None
        self._flushed = flushed[: flushed.numel() // 4 * 4].view(torch.int32)
        self._ticks = torch.zeros(2, dtype=torch.int64, device=device)
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        self._mode = "cold"
        self._start_ns = 0
        self._returned_ns = 0
        self._end_ns = 0
        self.persisting_l2_bytes = 0
        self._reset_l2()  # drivers start with some of the cache set aside
        self.persisting_l2_bytes = 0
        """The most that was ever found set aside since: whoever sets it keeps others out of the cache."""

    def start(self, mode: str, cover_us: int) -> None:
        """`cover_us` is how long the device is kept busy while the host launches."""
        gc.disable()
        self._mode = mode
        if mode == "idle":
            torch.cuda.synchronize()
        else:
            self._reset_l2()
            if mode == "cold":
                self._flushed.add_(1)
            self._spin(cover_us * 1000)
        self._events[0].record()
        self._start_ns = time.perf_counter_ns()

    def stop(self) -> None:
        self._returned_ns = time.perf_counter_ns()
        self._events[1].record()
        if self._mode == "idle":
            torch.cuda.current_stream().synchronize()
        self._end_ns = time.perf_counter_ns()
        gc.enable()

    def read(self) -> dict[str, float]:
        """After the stream has been waited for."""
        ticks, spun_ns = self._ticks.tolist()
        return {
            "device_us": self._events[0].elapsed_time(self._events[1]) * 1e3,
            "launch_us": (self._returned_ns - self._start_ns) / 1e3,
            "host_us": (self._end_ns - self._start_ns) / 1e3,
            "sm_mhz": ticks / spun_ns * 1e3 if spun_ns else 0.0,
        }

    def _spin(self, duration_ns: int) -> None:
        if self._cover is None:
            return
        arguments = [ctypes.c_longlong(duration_ns), ctypes.c_void_p(self._ticks.data_ptr())]
        pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(a) for a in arguments))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self._cuda.cuLaunchKernel(self._cover, 1, 1, 1, 1, 1, 1, 0, stream, pointers, None)

    def _reset_l2(self) -> None:
        """Nothing kept in the cache from one call to the next by the set-aside or by stream policies."""
        found = ctypes.c_size_t()
        if self._cuda.cuCtxGetLimit(ctypes.byref(found), _PERSISTING_L2_LIMIT) == 0:
            self.persisting_l2_bytes = max(self.persisting_l2_bytes, found.value)
        self._cuda.cuCtxSetLimit(_PERSISTING_L2_LIMIT, ctypes.c_size_t(0))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        no_window = ctypes.create_string_buffer(_POLICY_BYTES)
        self._cuda.cuStreamSetAttribute(stream, _ACCESS_POLICY_WINDOW, no_window)
        self._cuda.cuCtxResetPersistingL2Cache()


Stopwatch = HostStopwatch | CudaStopwatch


def make_stopwatch(device: torch.device, cover: bytes, flushed: torch.Tensor) -> Stopwatch:
    if device.type == "cuda":
        return CudaStopwatch(cover, flushed, device)
    return HostStopwatch(flushed)
