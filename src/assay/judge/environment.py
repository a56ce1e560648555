"""What this machine is, as a record that travels with every verdict."""

from __future__ import annotations

import importlib.metadata
import platform

import torch

import assay
from assay.records.verdict import Environment


def read_environment(device: torch.device) -> Environment:
    on_gpu = device.type == "cuda"
    return Environment(
        assay=assay.__version__,
        python=platform.python_version(),
        torch=torch.__version__,
        triton=installed_version("triton"),
        cuda=torch.version.cuda,
        driver=driver_version() if on_gpu else None,
        device=str(device),
        device_name=torch.cuda.get_device_name(device) if on_gpu else processor_name(),
        host_kernel=platform.release(),
    )


def installed_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def driver_version() -> str | None:
    try:
        with open("/proc/driver/nvidia/version") as file:
            words = file.readline().split()
    except OSError:
        return None
    return next((w for w in words if w.count(".") >= 1 and w[0].isdigit()), None)


def processor_name() -> str:
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()
