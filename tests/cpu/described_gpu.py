"""An H200 as `read_device` tells of it, for machines that have none."""

from __future__ import annotations

H200: dict[str, int | str] = {
    "name": "NVIDIA H200",
    "major": 9,
    "minor": 0,
    "multi_processor_count": 132,
    "total_memory": 150 << 30,
    "warp_size": 32,
    "max_threads_per_multi_processor": 2048,
    "regs_per_multiprocessor": 65536,
    "shared_memory_per_block_optin": 232_448,
    "shared_memory_per_multiprocessor": 233_472,
    "L2_cache_size": 50 << 20,
}
