"""The tutorial's levels: right on a CPU, and compiled for Hopper without a complaint.

Run as a program, this file is the interpreted half: it prints how far the levels in Triton are off, in fp16
(the interpreter's bf16 products are not those of a GPU).
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import pytest
import torch
from interpreting import interpreted

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "tutorial"))
tutorial = importlib.import_module("run")
IN_TRITON, IN_GLUON = tutorial.LEVELS[:3], tutorial.LEVELS[3:6]
ROUNDED = 4e-3
ANY_SIZE = ("level_3_descriptors", "level_6_persistent")


def off(got: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> float:
    wanted = a.float() @ b.float()
    return float((got.float() - wanted).abs().max() / wanted.abs().max())


def shapes(name: str) -> list[tuple[int, int, int]]:
    """One step, and more steps than a ring has slots, of which the first level, the slowest, has none."""
    steps = (128, 256, 128) if name == tutorial.LEVELS[0] else (256, 512, 448)
    return [(128, 256, 64), steps, *([(200, 264, 136)] if name in ANY_SIZE else [])]


@pytest.mark.parametrize("name", IN_TRITON)
def test_a_level_in_triton_is_right(name: str) -> None:
    errors = interpreted(__file__)[name]
    assert len(errors) == len(shapes(name)) and all(error < ROUNDED for error in errors)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", IN_GLUON)
def test_a_level_in_gluon_is_right(name: str, seed: int) -> None:
    from assay.tiles.emulate import Descriptor, emulate

    torch.manual_seed(seed)
    for m, n, k in shapes(name):
        a, b = torch.randn(m, k).bfloat16(), torch.randn(k, n).bfloat16()
        made = tutorial.launch_of(importlib.import_module(name), a, b, multiprocessors=2)
        made.result.fill_(float("nan"))
        given = [Descriptor(x.base, x.block_shape) if hasattr(x, "base") else x for x in made.arguments]
        emulate(made.kernel, made.grid, *given, *made.constants.values(), seed=seed)
        assert off(made.result, a, b) < ROUNDED


@pytest.mark.parametrize("name", tutorial.LEVELS)
def test_a_level_compiles_without_complaints(name: str) -> None:
    made, older = tutorial.compiled(name)
    assert made.complaints == []
    assert (made.products == 0 and older > 0) if name == tutorial.LEVELS[0] else made.products > 0


@pytest.mark.parametrize("name", [name for name in tutorial.LEVELS[:6] if name not in ANY_SIZE])
def test_sizes_between_tiles_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="multiples of the tile"):
        importlib.import_module(name).matmul(torch.ones(65, 64), torch.ones(64, 256))


def _interpreted() -> dict[str, list[float]]:
    torch.manual_seed(0)
    errors: dict[str, list[float]] = {name: [] for name in IN_TRITON}
    for name in IN_TRITON:
        matmul = importlib.import_module(name).matmul
        for m, n, k in shapes(name):
            a, b = torch.randn(m, k).half(), torch.randn(k, n).half()
            errors[name].append(off(matmul(a, b), a, b))
    return errors


if __name__ == "__main__":
    print(json.dumps(_interpreted()))
