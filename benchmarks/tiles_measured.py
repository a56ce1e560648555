"""Fills the table by which the functions of `assay.tiles` choose between their kernel and torch.

    python benchmarks/tiles_measured.py [--only GLOB] [--out JSON]

Each function is called with "tiles" and with "torch" as the one that answers, in turns, on two sets of fresh
inputs; what is written down is what the function itself asks the table for. Answers that differ are an error.
Rows of kinds that are measured replace those that the file has for this device; others stay. Without a GPU,
where TRITON_INTERPRET lets kernels run, the host's clock says how it would go (`--small`).
"""

from __future__ import annotations

import argparse
import fnmatch
import itertools
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from assay.tiles import choice
from assay.tiles.catalog import KERNELS
from assay.tiles.table_rows import MODEL_SHAPES
from tiles import times

MOST_FLOPS = 1e13
MOST_ELEMENTS = 2**29
"""Of an operand."""
DIFFERENT = 0.05
SETS = 2
Sizes = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """A function of the catalog and its arguments."""

    kernel: str
    sizes: Sizes
    change: Callable[..., tuple[Any, ...]] = lambda *given: given
    """From the catalog's inputs to those that are meant."""
    has_gradients: bool = False

    def make(self, device: str) -> tuple[Any, ...]:
        return self.change(*KERNELS[self.kernel].inputs(**self.sizes, device=device))

    def call(self, *given: Any) -> Any:
        run = KERNELS[self.kernel].run
        if not self.has_gradients:
            with torch.no_grad():
                return run(*given)
        leaves = [x.detach().requires_grad_() if isinstance(x, torch.Tensor) else x for x in given]
        wanted = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        made = run(*leaves)
        return torch.autograd.grad(made, wanted, torch.ones_like(made))


def by_columns(x: torch.Tensor) -> torch.Tensor:
    return x.T.contiguous().T


def products() -> Iterator[Case]:
    """Both sides either way; what comes after a product, as linear layers have it."""
    sides = itertools.product((16, 128, 1024, 8192), (128, 1024, 4096, 16384), (64, 512, 4096, 16384, 131072))
    grid = [{"m": m, "n": n, "k": k} for m, n, k in sides]
    models = [dict(zip("mnk", shape, strict=True)) for shapes in MODEL_SHAPES.values() for shape in shapes]
    for sizes in (*grid, *KERNELS["gemm"].sizes, *models):
        yield Case("gemm", sizes)
        yield Case("gemm", sizes, lambda a, b: (a, by_columns(b)))
    for sizes in grid:
        yield Case("gemm", sizes, lambda a, b: (by_columns(a), b))
        yield Case("gemm", sizes, lambda a, b: (by_columns(a), by_columns(b)))
    for m, n, k in itertools.product((128, 2048, 8192), (1024, 8192), (512, 4096, 16384)):
        sizes = {"m": m, "n": n, "k": k}
        yield Case("gemm", sizes, lambda a, b: (a, by_columns(b), b[0].clone()))
        for activation in ("relu", "silu", "gelu"):
            yield Case(
                "gemm", sizes, lambda a, b, act=activation: (a, by_columns(b), b[0].clone(), None, act)
            )


def few_bits() -> Iterator[Case]:
    for m, n, k in itertools.product((128, 1024, 8192), (1024, 4096, 16384), (1024, 4096, 16384)):
        for per_tensor in (False, True):
            yield Case("fp8_gemm", {"m": m, "n": n, "k": k, "per_tensor": per_tensor})
    yield from (Case("fp8_gemm", dict(sizes)) for sizes in KERNELS["fp8_gemm"].sizes)


def attentions() -> Iterator[Case]:
    heads = ((1, 16, 16), (4, 32, 32), (4, 32, 8))
    for (batch, many, few), d, causal in itertools.product(heads, (64, 128, 256), (False, True)):
        own = {"batch": batch, "heads": many, "kv_heads": few, "d": d, "is_causal": causal}
        for s in (128, 512, 2048, 8192):
            yield Case("attention", own | {"s": s, "t": s})
            if d <= 128:
                yield Case("attention", own | {"s": s, "t": s}, has_gradients=True)
        if not causal:
            yield from (Case("attention", own | {"s": 16, "t": t}) for t in (1024, 8192))
    for sizes in KERNELS["attention"].sizes:
        yield Case("attention", dict(sizes))
        yield Case("attention", dict(sizes), has_gradients=True)


IMAGES = (
    {"channels": 64, "side": 56, "outputs": 64},
    {"channels": 128, "side": 28, "outputs": 128},
    {"channels": 256, "side": 14, "outputs": 256},
    {"channels": 512, "side": 7, "outputs": 512},
    {"channels": 128, "side": 56, "outputs": 128, "stride": 2},
    {"channels": 256, "side": 56, "outputs": 64, "window": 1, "padding": 0},
    {"channels": 64, "side": 56, "outputs": 256, "window": 1, "padding": 0},
    {"channels": 1024, "side": 14, "outputs": 256, "window": 1, "padding": 0},
    {"channels": 3, "side": 224, "outputs": 64, "window": 7, "stride": 2, "padding": 3},
    {"channels": 3, "side": 224, "outputs": 64},
)


def images() -> Iterator[Case]:
    for sizes, n, last in itertools.product(IMAGES, (4, 64), (True, False)):
        own = sizes | {"n": n, "last": last}
        yield Case("conv2d", own)
        yield Case("conv2d", own, lambda *given: (*given, True))
        if own.get("window", 3) == 3 and "stride" not in own:
            yield Case("conv2d_relu_maxpool", own)
    for kernel in ("conv2d", "conv2d_relu_maxpool"):
        yield from (Case(kernel, dict(sizes)) for sizes in KERNELS[kernel].sizes)


def norms() -> Iterator[Case]:
    """Long rows are softmax's alone."""
    columns = (128, 1024, 4096, 16384, 32768, 131072)
    for rows, wide in itertools.product((16, 256, 4096, 65536), columns):
        for dtype in (torch.bfloat16, torch.float32):
            own = {"rows": rows, "columns": wide, "dtype": dtype}
            yield Case("softmax", own)
            for kernel in ("rms_norm", "layer_norm") if wide <= 32768 else ():
                yield Case(kernel, own)
                yield Case(kernel, own | {"residual": True})
    for kernel in ("softmax", "rms_norm", "layer_norm"):
        yield from (Case(kernel, dict(sizes)) for sizes in KERNELS[kernel].sizes)


def is_quick(case: Case) -> bool:
    cost = KERNELS[case.kernel].cost(**case.sizes)
    limit = MOST_FLOPS / (10 if case.has_gradients else 1)
    return cost.flops <= limit and cost.size_bytes <= 4 * MOST_ELEMENTS


def cases() -> list[Case]:
    made = (*products(), *few_bits(), *attentions(), *images(), *norms())
    return [case for case in made if is_quick(case)]


def small_cases() -> list[Case]:
    """One of each function that has a choice; images in float16, whose products interpreters can do."""
    names = ("gemm", "fp8_gemm", "attention", "softmax", "rms_norm", "layer_norm")
    made = [Case(name, dict(KERNELS[name].cases[1])) for name in names]
    half = {"dtype": torch.float16}
    return made + [Case(name, KERNELS[name].cases[1] | half) for name in ("conv2d", "conv2d_relu_maxpool")]


def host_times(*functions: Callable[[], Any]) -> list[float]:
    """Microseconds of a call each, where there is no GPU."""
    taken = []
    for function in functions:
        begin = time.perf_counter()
        function()
        taken.append(1e6 * (time.perf_counter() - begin))
    return taken


def measured(case: Case, device: str) -> dict[str, Any] | None:
    """A row; None where the function does not ask."""
    sets = [case.make(device) for _ in range(SETS)]
    with choice.always("tiles"):
        asked, tiles = noted(case, sets[0])
    if not asked:
        return None
    with choice.always("torch"):
        _, by_torch = noted(case, sets[0])
    need_alike(tiles, by_torch)
    clock = times if device == "cuda" else host_times
    torch_us, tile_us = clock(*(turns(case, sets, who) for who in ("torch", "tiles")))
    (question,) = asked
    return {
        "kernel": question.kernel,
        "kind": question.kind,
        "device": question.device,
        "sizes": dict(question.sizes),
        "ratio": round(torch_us / tile_us, 3),
        "torch_us": round(torch_us, 1),
        "tile_us": round(tile_us, 1),
    }


def noted(case: Case, given: tuple[Any, ...]) -> tuple[list[choice.Question], list[torch.Tensor]]:
    """What it asks, and what it gives back."""
    made: list[Any] = []
    asked = choice.questions(lambda: made.append(case.call(*given)))
    found = made[0] if isinstance(made[0], tuple | list) else made
    return [question for question, _ in asked], [x.float() for x in found]


def need_alike(tiles: list[torch.Tensor], by_torch: list[torch.Tensor]) -> None:
    for one, other in zip(tiles, by_torch, strict=True):
        off = float((one - other).norm() / other.norm().clamp_min(1e-9))
        if not off < DIFFERENT:
            raise ValueError(f"the answers are {off:.2g} apart")


def turns(case: Case, sets: list[tuple[Any, ...]], who: str) -> Callable[[], Any]:
    """A call on the next of the inputs, answered by the one named."""
    given = itertools.cycle(sets)

    def call() -> Any:
        with choice.always(who):
            return case.call(*next(given))

    return call


def written(rows: list[dict[str, Any]], path: Path) -> None:
    """With the rows that the file has of other devices and kinds."""
    anew = {(row["device"], row["kernel"], row["kind"]) for row in rows}
    found = json.loads(path.read_text()) if path.exists() else {"rows": []}
    kept = [row for row in found["rows"] if (row["device"], row["kernel"], row["kind"]) not in anew]
    about = json.dumps("Speed of tile kernels in torch's, in device time: benchmarks/tiles_measured.py.")
    lines = ",\n".join("  " + json.dumps(row) for row in (*kept, *rows))
    path.write_text(f'{{\n "about": {about},\n "rows": [\n{lines}\n ]\n}}\n')


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default="*", help="kernels whose name matches")
    parser.add_argument("--out", type=Path, default=choice.MEASURED)
    parser.add_argument("--small", action="store_true", help="one small size for each kernel")
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu" and not options.small:
        raise SystemExit("there is no GPU here")
    rows, failed, begin = [], 0, time.monotonic()
    for case in small_cases() if options.small else cases():
        if not fnmatch.fnmatch(case.kernel, options.only):
            continue
        try:
            row = measured(case, device)
        except (RuntimeError, ValueError) as error:
            failed += 1
            row = f"failed: {str(error).splitlines()[0]}"
        if isinstance(row, dict):
            rows.append(row)
            written(rows, options.out)
            row = f"{row['kind']}: {row['ratio']:.3f} of torch's {row['torch_us']:.1f} us"
        told = " ".join(str(size) for size in case.sizes.values())
        print(
            f"[{time.monotonic() - begin:5.0f}s] {case.kernel} {told}  {row or 'nothing to choose'}",
            flush=True,
        )
    print(f"{len(rows)} rows, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
