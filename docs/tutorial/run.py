"""Checks and times every level of the tutorial.

    python docs/tutorial/run.py --sizes 4096 8192 --out results.json

On a Hopper every level is compared with torch at several sizes and then timed: CUDA events, fresh random
inputs in every round, the L2 cache flushed before every call, all levels in every round, the median of the
rounds. Clocks are left as they are. Elsewhere every level is compiled for sm_90a, and what the assembler says
is printed; that is no measurement.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import statistics
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import triton
from triton.compiler import ASTSource
from triton.experimental.gluon._runtime import GluonASTSource, GluonJITFunction

from assay.tiles.gate import HOPPER, NAMES, Compiled, assembled, block, compile_for_hopper, pointer

LEVELS = (
    "level_1_naive",
    "level_2_tiles",
    "level_3_descriptors",
    "level_4_async",
    "level_5_producer",
    "level_6_persistent",
    "level_7_template",
)
CHECKED = ((128, 256, 64), (512, 768, 320), (1152, 1280, 4160))
"""Multiples of every level's tile; fewer steps than a ring has slots, and more."""
MOST_ERROR = 4e-3
"""Of the largest value: bfloat16 rounds by half of that."""
FLUSHED_BYTES = 512 << 20
AHEAD_CYCLES = 2_000_000
"""For so long, a millisecond, the device idles before a timed call: the host's part of it is then over."""
TORCH = "torch.mm"


@dataclass(frozen=True)
class Launch:
    """What a level's `matmul` would have launched."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    constants: dict[str, Any]
    options: dict[str, Any]
    result: torch.Tensor


def launch_of(
    level: types.ModuleType, a: torch.Tensor, b: torch.Tensor, multiprocessors: int = 132
) -> Launch:
    """Calls `matmul` with a kernel that only remembers: tensors may lie on a CPU."""
    kernel, seen = level.matmul_kernel, []

    class Remembers:
        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
            return lambda *args, **more: seen.append((grid, args, more))

    device = types.SimpleNamespace(multi_processor_count=multiprocessors)
    with (
        mock.patch.object(level, "matmul_kernel", Remembers()),
        mock.patch.object(torch.cuda, "get_device_properties", lambda _: device),
    ):
        result = level.matmul(a, b)
    grid, args, more = seen[0]
    constants = {name: value for name, value in more.items() if name in kernel.arg_names}
    options = {name: value for name, value in more.items() if name not in constants}
    return Launch(kernel, grid, args, constants, options, result)


def compiled(name: str) -> tuple[Compiled, int]:
    """A level for sm_90a, and how many of its products are those of older devices."""
    if name == LEVELS[-1]:
        return _compiled_template(), 0
    made = launch_of(importlib.import_module(name), *(torch.empty(1024, 1024).bfloat16() for _ in range(2)))
    names = made.kernel.arg_names
    signature = {n: _type_of(arg) for n, arg in zip(names, made.arguments, strict=False)}
    signature |= dict.fromkeys(made.constants, "constexpr")
    values = {(names.index(n),): value for n, value in made.constants.items()}
    aligned = {(k,): [["tt.divisibility", 16]] for k, arg in enumerate(made.arguments) if _is_aligned(arg)}
    kind = GluonASTSource if isinstance(made.kernel, GluonJITFunction) else ASTSource
    binary = triton.compile(
        kind(made.kernel, signature, values, aligned), target=HOPPER, options=made.options
    )
    text = binary.asm["ptx"]
    told = assembled(text)
    spilled = sum(int(n) for n in re.findall(r"(\d+) bytes spill", told))
    registers = max(int(n) for n in re.findall(r"Used (\d+) registers", told))
    is_serialised = "wgmma.mma_async instructions are serialized" in told
    products = text.count("wgmma.mma_async")
    return Compiled(registers, spilled, binary.metadata.shared, products, is_serialised), text.count(
        "mma.sync"
    )


def _compiled_template() -> Compiled:
    from assay.tiles.kernels.gemm import Gemm, gemm_kernel

    work, dtype = Gemm(), torch.bfloat16
    blocks = {"a": [64, work.BK], "b": [work.BK, work.BN], "c": [64, work.BN]}
    kinds = {name: block(dtype, shape) for name, shape in blocks.items()} | dict.fromkeys("MNK", "i32")
    kinds |= dict.fromkeys(("bias", "residual"), pointer(dtype))
    return compile_for_hopper(gemm_kernel, kinds, {"w": work.constant})


def _type_of(arg: Any) -> str:
    if isinstance(arg, torch.Tensor):
        return pointer(arg.dtype)
    if isinstance(arg, int):
        return "i32"
    if hasattr(arg, "layout"):
        return block(arg.base.dtype, arg.block_shape)
    return f"tensordesc<{NAMES[arg.base.dtype]}{arg.block_shape}>"


def _is_aligned(arg: Any) -> bool:
    """As a launch finds out by itself."""
    return isinstance(arg, torch.Tensor) or (isinstance(arg, int) and arg % 16 == 0)


def inputs(m: int, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(m, k, device="cuda").bfloat16(), torch.randn(k, n, device="cuda").bfloat16()


def check(name: str, matmul: Callable[..., torch.Tensor], sizes: Sequence[tuple[int, int, int]]) -> None:
    """Inputs are new each time: memory that still holds another level's result is then wrong."""
    for m, n, k in sizes:
        a, b = inputs(m, n, k)
        wanted = a.float() @ b.float()
        error = float((matmul(a, b).float() - wanted).abs().max() / wanted.abs().max())
        if not error < MOST_ERROR:
            raise SystemExit(f"{name} is wrong at {m} x {n} x {k}: off by {error:.2g} of the largest value")


def milliseconds(matmuls: dict[str, Callable[..., torch.Tensor]], size: int, rounds: int) -> dict[str, Any]:
    """Of every call in every round."""
    flushed = torch.empty(FLUSHED_BYTES, dtype=torch.int8, device="cuda")
    times: dict[str, list[float]] = {name: [] for name in matmuls}
    names = list(matmuls)
    for turn in range(rounds):
        a, b = inputs(size, size, size)
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            flushed.zero_()
            torch.cuda._sleep(AHEAD_CYCLES)
            began.record()
            matmuls[name](a, b)
            ended.record()
            ended.synchronize()
            times[name].append(began.elapsed_time(ended))
    return times


def measure(levels: Sequence[str], sizes: Sequence[int], rounds: int) -> dict[str, Any]:
    matmuls = {TORCH: torch.mm} | {name: importlib.import_module(name).matmul for name in levels}
    for name in levels:
        check(name, matmuls[name], [*CHECKED, *((n, n, n) for n in sizes)])
        print(f"{name}: right", flush=True)
    rows = []
    print(f"\n{'size':>6} {'level':<20} {'ms':>9} {'TFLOP/s':>8} {'of torch':>8}")
    for size in sizes:
        times = milliseconds(matmuls, size, rounds)
        fastest = statistics.median(times[TORCH])
        for name, each in times.items():
            ms = statistics.median(each)
            speed, ratio = 2 * size**3 / ms / 1e9, fastest / ms
            rows.append(
                {"size": size, "level": name, "ms": ms, "tflops": speed, "ratio": ratio, "each": each}
            )
            print(f"{size:>6} {name:<20} {ms:>9.4f} {speed:>8.1f} {ratio:>8.3f}", flush=True)
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "clocks": "not touched",
        "rounds": rounds,
        "rows": rows,
    }


def describe(levels: Sequence[str]) -> dict[str, Any]:
    print("No Hopper GPU here: nothing is run or timed. Every level compiled for sm_90a:\n")
    heads = f"{'registers':>9} {'spilled':>8} {'shared':>8} {'wgmma':>6} {'mma.sync':>8}"
    print(f"{'level':<20} {heads}  complaints")
    rows = []
    for name in levels:
        made, older = compiled(name)
        words = "; ".join(made.complaints) or "none"
        print(
            f"{name:<20} {made.registers:>9} {made.spilled_bytes:>8} {made.shared_bytes:>8} "
            f"{made.products:>6} {older:>8}  {words}",
            flush=True,
        )
        numbers = {"registers": made.registers, "spilled": made.spilled_bytes, "shared": made.shared_bytes}
        rows.append(
            {"level": name, **numbers, "wgmma": made.products, "mma.sync": older, "complaints": words}
        )
    return {"device": None, "torch": torch.__version__, "triton": triton.__version__, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description="Checks and times every level of the tutorial.")
    parser.add_argument("--sizes", type=int, nargs="+", default=[4096, 8192], help="of M, N and K: 256s")
    parser.add_argument("--levels", type=int, nargs="+", default=list(range(1, len(LEVELS) + 1)))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--out", type=Path, help="all numbers as JSON")
    given = parser.parse_args()
    levels = [LEVELS[number - 1] for number in given.levels]
    is_hopper = torch.cuda.is_available() and torch.cuda.get_device_capability()[0] == 9
    found = measure(levels, given.sizes, given.rounds) if is_hopper else describe(levels)
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
