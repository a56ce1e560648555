"""`assay doctor`: what works here, and the fix for each thing that does not."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
from rich.markup import escape
from rich.table import Table

from assay.cli.terminal import Terminal, echo
from assay.records import to_plain

if TYPE_CHECKING:
    from assay.build import Toolchain

_SANDBOX_FIXES = {
    "pid_namespace": "run as root, or allow unprivileged user namespaces",
    "network_namespace": "run as root, or allow unprivileged user namespaces",
    "mount_namespace": "run as root, or allow unprivileged user namespaces",
    "ipc_namespace": "run as root, or allow unprivileged user namespaces",
    "user": "run as root: children then get a user of their own",
    "landlock": "Linux 5.13 or later with landlock among the lsm= modules",
    "seccomp": "a kernel with CONFIG_SECCOMP_FILTER",
    "rlimits": "raise the hard limits of this shell",
    "scratch_quota": "run as root, or allow unprivileged user namespaces",
}


@dataclass(frozen=True, slots=True)
class Item:
    """One thing that works here or does not."""

    name: str
    works: bool
    detail: str
    fix: str = ""


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def doctor(as_json: bool) -> None:
    """Print what works on this machine. Exit 0 even if something is missing."""
    from assay.build import find_toolchain

    toolchain = find_toolchain(None)
    items = [*_device_items(), *_compiler_items(toolchain), *_tool_items(toolchain), *_sandbox_items()]
    if as_json:
        echo(json.dumps({"items": [to_plain(item) for item in items]}))
        return
    table = Table(box=None, pad_edge=False, show_header=False)
    for item in items:
        mark = "[green]✓[/]" if item.works else "[red]✗[/]"
        fix = f" [yellow]→ {escape(item.fix)}[/]" if item.fix and not item.works else ""
        table.add_row(mark, item.name, escape(item.detail) + fix)
    Terminal().print(table)


def _device_items() -> list[Item]:
    import torch

    from assay.judge.environment import driver_version, installed_version

    items = [Item("torch", True, torch.__version__)]
    triton = installed_version("triton")
    items.append(Item("triton", triton is not None, triton or "not installed", "pip install triton"))
    if not torch.cuda.is_available():
        why = "torch is a CPU build" if torch.version.cuda is None else "no GPU answers"
        return [*items, Item("gpu", False, why, "install a CUDA build of torch and the NVIDIA driver")]
    name = torch.cuda.get_device_name(0)
    detail = f"{torch.cuda.device_count()} x {name}, driver {driver_version()}, CUDA {torch.version.cuda}"
    return [*items, Item("gpu", True, detail)]


def _compiler_items(toolchain: Toolchain) -> list[Item]:
    return [
        _found("c++", toolchain.cxx, toolchain.cxx_version, "apt install g++"),
        _found(
            "nvcc",
            toolchain.nvcc,
            toolchain.nvcc_version,
            "install the CUDA toolkit (only for .cu with torch headers)",
        ),
        _found(
            "nvrtc",
            toolchain.nvrtc,
            toolchain.nvrtc_version,
            "pip install nvidia-cuda-nvrtc (only for bare .cu)",
        ),
    ]


def _found(name: str, path: str | None, version: str | None, fix: str) -> Item:
    return Item(name, path is not None, f"{version} at {path}" if path else "not found", fix)


def _tool_items(toolchain: Toolchain) -> list[Item]:
    items = []
    for tool, path, fix in (
        ("ncu", shutil.which("ncu"), "comes with the CUDA toolkit; optional"),
        ("compute-sanitizer", toolchain.sanitizer, "install the CUDA toolkit, or set CUDA_HOME (for --deep)"),
    ):
        version = _version(path) if path else "not found"
        items.append(Item(tool, path is not None, version, fix))
    return items


def _version(path: str) -> str:
    run = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20, check=False)
    lines = [line for line in run.stdout.splitlines() if "ersion" in line]
    return lines[-1].strip() if lines else path


def _sandbox_items() -> list[Item]:
    from assay.sandbox import probe

    layers = probe()
    return [
        Item(f"sandbox {layer.name}", layer.active, layer.detail, _SANDBOX_FIXES.get(layer.name, ""))
        for layer in layers
    ]
