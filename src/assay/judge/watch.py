"""The stopwatch that children are given: how much to flush, and the kernel that spins before each call."""

from __future__ import annotations

import torch

from assay.build import Toolchain, compile_cubin
from assay.judge.seat import FLUSHED_CACHES, Watch
from assay.records import JudgeFault

HOST_FLUSH_BYTES = 64 << 20
# One thread spins for so many nanoseconds and tells how often its multiprocessor's clock ticked meanwhile.
_COVER = """
extern "C" __global__ void cover(long long duration_ns, long long* told) {
    unsigned long long start_ns, now_ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start_ns));
    long long start = clock64();
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now_ns));
    } while (now_ns - start_ns < (unsigned long long)duration_ns);
    told[0] = clock64() - start;
    told[1] = (long long)(now_ns - start_ns);
}
"""


def make_watch(device: torch.device, toolchain: Toolchain) -> Watch:
    if device.type != "cuda":
        return Watch(b"", HOST_FLUSH_BYTES)
    cache_bytes = torch.cuda.get_device_properties(device).L2_cache_size
    if toolchain.nvrtc is None:
        raise JudgeFault("NVRTC is missing: without it no kernel can be timed; see `assay doctor`")
    options = [f"--gpu-architecture={toolchain.cuda_arch}"]
    result = compile_cubin(toolchain.nvrtc, _COVER, "cover.cu", options)
    if result.cubin is None:
        raise JudgeFault(f"the stopwatch's kernel does not compile: {result.log}")
    return Watch(result.cubin, FLUSHED_CACHES * cache_bytes)
