"""Direct launches, byte by byte against Triton's own; on a driver without a device."""

from __future__ import annotations

import functools
import json
import struct
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import stubbed_cuda
import torch
import triton

from assay.tiles import direct, launch
from assay.tiles.kernels import attention, fp8_gemm, gated, gemm, layer_norm, rms_norm, rotary, softmax

STREAM = 9
pytestmark = pytest.mark.skipif(not stubbed_cuda.HAS_COMPILER, reason="needs gcc")


def half(*shape: int) -> torch.Tensor:
    return torch.randn(shape).bfloat16()


def calls() -> dict[str, Callable[[], Any]]:
    """Each with tensors of its own."""
    x, w, row, long = half(40, 64), half(64, 48), half(64), half(2, 20_000)
    by_columns, added, bias = half(48, 64).T, half(40, 48), half(48)
    q, k, v = half(2, 4, 130, 64), half(2, 2, 200, 64), half(2, 2, 200, 64)
    one = half(2, 130, 1, 64).transpose(1, 2)  # dense, with strides that say otherwise
    odd, odd_row = half(33, 101)[:, 1:], half(101)[1:]
    turned, cos = half(2, 10, 4, 64), torch.rand(10, 32)
    fp8 = fp8_gemm.inputs(150, 136, 272, True, "cpu")
    return {
        "attention": lambda: attention._attention(q, k, v, True, 0.125),
        "attention of one head": lambda: attention._attention(one, one, one, False, 0.125),
        "fp8_gemm": lambda: fp8_gemm._fp8_gemm(*fp8),
        "gated": lambda: gated.gated(x, None, False),
        "gemm": lambda: gemm._gemm(x, w, None, None, ""),
        "gemm with all": lambda: gemm._gemm(x, by_columns, bias, added, "silu"),
        "layer_norm": lambda: layer_norm._op(x, row, row, None, 1e-5),
        "long softmax": lambda: softmax._op(long),
        "odd rms_norm": lambda: rms_norm._op(odd, odd_row, None, 1e-6),
        "rms_norm": lambda: rms_norm._op(x, row, None, 1e-6),
        "rms_norm with residual": lambda: rms_norm._op(x, row, x, 1e-6),
        "rotary": lambda: rotary._op([turned, turned], cos, cos, 0),
        "softmax": lambda: softmax._op(x),
    }


class Bench:
    """Calls the operators on the driver that notes down launches."""

    def __init__(self) -> None:
        self.driver = stubbed_cuda.Driver()
        self.seen: Counter[str] = Counter()
        self._made: dict[Any, torch.Tensor] = {}
        self._turn = 0
        launch._facts = lambda device: (9, 132)
        fp8_gemm.runs_on_hopper = lambda *tensors: True
        launch.direct = self._direct
        direct.Direct.__call__ = self._count("direct", direct.Direct.__call__)
        launch.told_apart = self._count("arguments", launch.told_apart)
        torch.Tensor.new_empty = self._same(torch.Tensor.new_empty)
        torch.empty_like = self._same(torch.empty_like)

    def _direct(self, compiled: Any, arguments: Any) -> Any:
        self.driver.expect(compiled)
        return direct.direct(compiled, arguments)

    def _count(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*given: Any) -> Any:
            self.seen[name] += 1
            return function(*given)

        return counted

    def _same(self, function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        """Results lie where those of the last call lay, so that launches can be compared."""

        def made(*given: Any, **options: Any) -> torch.Tensor:
            self._turn += 1
            if self._turn not in self._made:
                self._made[self._turn] = function(*given, **options)
            return self._made[self._turn]

        return made

    def note(self, call: Callable[[], Any]) -> bytes:
        self._turn = 0
        self.seen.clear()
        call()
        return self.driver.note()

    def told(self, call: Callable[[], Any]) -> dict[str, Any]:
        """Compares the ways, once the sizes of the arguments are known."""
        self._made.clear()
        self.driver.expect(None)
        triton.knobs.runtime.launch_enter_hook.add(hook := self._count("hook", lambda told: None))
        self.note(call)
        own, hooked = self.note(call), dict(self.seen)
        triton.knobs.runtime.launch_enter_hook.remove(hook)
        first, counted = self.note(call), dict(self.seen)
        second, again = self.note(call), dict(self.seen)
        self.driver.stream = STREAM
        elsewhere = struct.unpack("6Q", self.note(call)[:48])[4]
        self.driver.stream = stubbed_cuda.STREAM
        return {
            "same": own == first == second and any(own[48:]),
            "own way": hooked.get("hook") == 1 and "direct" not in hooked,
            "direct": counted.get("direct") == again.get("direct") == 1,
            "remembered": "arguments" not in again,
            "stream": elsewhere,
        }


@functools.cache
def told() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", __file__],
            env=stubbed_cuda.build(Path(folder)),
            capture_output=True,
            text=True,
            timeout=280,
        )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", list(calls()))
def test_a_direct_launch_is_what_triton_would_launch(name: str) -> None:
    for tensors in told()[name]:
        assert tensors["same"] and tensors["direct"], "the same bytes reach the driver"
        assert tensors["own way"], "with a hook, Triton launches and tells it"
        assert tensors["stream"] == STREAM


def test_the_same_call_is_remembered() -> None:
    assert all(tensors["remembered"] for tensors in told()["gemm"] + told()["attention"] + told()["softmax"])


def test_what_triton_has_to_launch_itself() -> None:
    assert direct.direct(None, ()) is None


if __name__ == "__main__":
    bench = Bench()
    sets = calls(), calls()
    with torch.no_grad():
        print(json.dumps({name: [bench.told(given[name]) for given in sets] for name in sets[0]}))
