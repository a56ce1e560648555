"""Plain Triton, as other GPUs than Hopper run it: interpreted against references, compiled for Ampere.

Run as a program, this file is the interpreted half: it prints what went wrong.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator

import pytest
import torch
import triton
from interpreting import interpreted
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from assay.tiles.kernels import attention, gemm, plain

AMPERE = GPUTarget("cuda", 80, 32)
PRODUCTS = ((130, 140, 72), (1, 8, 8), (129, 257, 33), (300, 64, 1000))
HEADS = ((1, 2, 2, 130, 130, 64), (2, 4, 2, 33, 77, 128), (1, 2, 1, 100, 20, 64), (1, 1, 1, 5, 9, 40))


def half(*shape: int) -> torch.Tensor:
    return (torch.randn(shape) / 2).half()


def wrong_products() -> Iterator[str]:
    kinds = itertools.cycle(("", "relu", "silu", "gelu"))
    for (m, n, k), is_transposed in itertools.product(PRODUCTS, (False, True)):
        a, b = half(m, k), half(n, k).T if is_transposed else half(k, n)
        for bias, residual in ((None, None), (half(n), half(m, n))):
            given = (a, b, bias, residual, next(kinds))
            if not torch.allclose(plain.plain_gemm(*given), gemm.reference(*given), rtol=3e-3, atol=3e-3):
                yield f"product of {m, n, k, is_transposed} with {given[-1]}"
        next(kinds)
    strided = half(40, 48)[::2, ::3]
    if not torch.allclose(
        plain.plain_gemm(strided, strided.T, None, None, ""), strided @ strided.T, atol=3e-3
    ):
        yield "product with strides"


def wrong_attentions() -> Iterator[str]:
    for (batch, heads, kv_heads, s, t, d), is_causal in itertools.product(HEADS, (False, True)):
        q = half(batch, heads, s, d)
        k, v = half(batch, kv_heads, t, d), half(batch, kv_heads, t, d)
        got = plain.plain_attention(q, k, v, is_causal, d**-0.5)
        if not torch.allclose(got, attention.reference(q, k, v, is_causal), rtol=3e-3, atol=3e-3):
            yield f"attention of {heads, kv_heads, s, t, d, is_causal}"


def test_answers_are_those_of_the_references() -> None:
    assert interpreted(__file__) == []


KINDS = {"M": "i32", "N": "i32", "K": "i32", "S": "i32", "T": "i32", "group": "i32", "scale": "fp32"}


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("activation", ["", "relu", "silu", "gelu"])
def test_the_product_compiles_for_ampere(dtype: str, activation: str) -> None:
    compiled(plain.gemm_kernel, dtype, plain.GEMM_TILE, {"ACTIVATION": activation})


@pytest.mark.parametrize("columns", [64, 128, 256])
def test_attention_compiles_for_ampere(columns: int) -> None:
    constants = {"D": columns, "COLUMNS": columns, "IS_CAUSAL": True}
    compiled(plain.attention_kernel, "bf16", plain.ATTENTION_TILE, constants)


def compiled(
    kernel: triton.JITFunction, dtype: str, tile: dict[str, int], constants: dict[str, object]
) -> None:
    options = {name: tile[name] for name in ("num_warps", "num_stages")}
    constants = constants | {name: value for name, value in tile.items() if name not in options}
    strides = dict.fromkeys(("a_row", "a_step", "b_step", "b_column"), "i32")
    signature = {
        name: "constexpr" if name in constants else (KINDS | strides).get(name, f"*{dtype}")
        for name in kernel.arg_names
    }
    made = triton.compile(ASTSource(kernel, signature, constants), target=AMPERE, options=options)
    assert made.metadata.shared <= 163 * 1024
    assert "mma.sync" in made.asm["ptx"]


def test_it_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "some GPU")
    plain.say_so.cache_clear()
    device = torch.device("cuda", 0)
    with pytest.warns(
        UserWarning, match="gemm runs as plain Triton on some GPU: it is made for Hopper"
    ) as told:
        assert plain.told("gemm", plain.plain_gemm, device) is plain.plain_gemm
        plain.told("gemm", plain.plain_gemm, device)
    plain.say_so.cache_clear()
    assert len(told) == 1


if __name__ == "__main__":
    torch.manual_seed(0)
    print(json.dumps([*wrong_products(), *wrong_attentions()]))
