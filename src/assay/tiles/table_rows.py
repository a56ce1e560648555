"""The rows of the table: what is compared with what, at which sizes, as text for the judge.

The first twelve are those of ThunderKittens' own table. For four of them there is no machine here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

PROBLEM = '''"""{label}: the reference is {reference}."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


class Model(nn.Module):
    def forward(self, {names}):
        {body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []


def cost():
    return {{"bytes": {size_bytes}, "flops": {flops}}}


RULES = {{"library_calls": True}}
'''
CANDIDATE = '''"""{label}: assay.tiles."""

import torch
from torch import nn

from assay.tiles import {kernel}


class ModelNew(nn.Module):
    def forward(self, {names}):
        return {call}
'''


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    label: str
    kernel: str
    sizes: Mapping[str, Any]
    reference: str
    names: str
    body: str
    """The reference's answer, as statements."""
    inputs: str
    call: str

    def texts(self, size_bytes: int, flops: int) -> tuple[str, str]:
        """The problem and the candidate, as files for `assay check`."""
        fields = {name: getattr(self, name) for name in self.__slots__}
        problem = PROBLEM.format(**fields, size_bytes=size_bytes, flops=flops)
        return problem, CANDIDATE.format(**fields)


@dataclass(frozen=True, slots=True)
class Missing:
    """A line that cannot be measured."""

    label: str
    why: str


CUDNN = """if q.dtype == torch.float64 or not q.is_cuda:
            return F.scaled_dot_product_attention(q, k, v, is_causal={causal})
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return F.scaled_dot_product_attention(q, k, v, is_causal={causal})"""


def half(*shape: int) -> str:
    return f"torch.randn({', '.join(map(str, shape))}, dtype=torch.bfloat16)"


def attention_rows() -> Iterator[Row]:
    for d in (128, 64):
        for causal in (False, True):
            for s in (2048, 4096, 8192, 16384):
                batch, heads = 16384 // s, 2048 // d
                yield Row(
                    label=f"attention D={d} S={s}{' causal' if causal else ''}",
                    kernel="attention",
                    sizes={"batch": batch, "heads": heads, "kv_heads": heads, "s": s, "t": s, "d": d}
                    | {"is_causal": causal},
                    reference="cuDNN attention",
                    names="q, k, v",
                    body=CUDNN.format(causal=causal),
                    inputs=", ".join([half(batch, heads, s, d)] * 3),
                    call=f"attention(q, k, v, is_causal={causal})",
                )  # fmt: skip


MODEL_SHAPES = {
    "Llama 8B": ((4096, 6144, 4096), (4096, 4096, 4096), (4096, 28672, 4096), (4096, 4096, 14336)),
    "Llama 70B": ((2048, 10240, 8192), (2048, 8192, 8192), (2048, 57344, 8192), (2048, 8192, 28672)),
    "Qwen 32B": ((4096, 7168, 5120), (4096, 5120, 5120), (4096, 51200, 5120), (4096, 5120, 25600)),
    "Mixtral": ((1024, 6144, 4096), (1024, 28672, 4096), (1024, 4096, 14336), (8192, 32000, 4096)),
    "GPT-2 XL": ((8192, 4800, 1600), (8192, 1600, 1600), (8192, 6400, 1600), (8192, 1600, 6400)),
}
"""Rows, columns and depth of the products of a layer: attention in and out, both of the feed-forward part."""


def gemm_rows() -> Iterator[Row]:
    squares = [(f"{n}", (n, n, n)) for n in (1024, 2048, 4096, 8192, 16384)]
    layers = [(model, shape) for model, shapes in MODEL_SHAPES.items() for shape in shapes]
    for name, (m, n, k) in squares + layers:
        inputs = f"{half(m, k)}, {half(k, n)}"
        yield Row(
            label=f"gemm {name} {m}x{n}x{k}",
            kernel="gemm",
            sizes={"m": m, "n": n, "k": k},
            reference="cuBLAS",
            names="a, b",
            body="return a @ b",
            inputs=inputs,
            call="gemm(a, b)",
        )


def memory_rows() -> Iterator[Row]:
    """Kernels that a device's memory bounds: torch's own, compiled where that is faster."""
    torch_best = "torch, compiled"
    for rows, columns in ((32768, 4096), (16384, 8192)):
        sizes = {"rows": rows, "columns": columns}
        x, weight = half(rows, columns), half(columns)
        body = f"return F.rms_norm(x, ({columns},), w, 1e-6)"
        label = f"{rows}x{columns}"
        yield Row(
            f"rms_norm {label}",
            "rms_norm",
            sizes,
            torch_best,
            "x, w",
            body,
            f"{x}, {weight}",
            "rms_norm(x, w)",
        )
        body = f"return F.layer_norm(x, ({columns},), w, b, 1e-5)"
        inputs = f"{x}, {weight}, {weight}"
        yield Row(
            f"layer_norm {label}",
            "layer_norm",
            sizes,
            torch_best,
            "x, w, b",
            body,
            inputs,
            "layer_norm(x, w, b)",
        )
        body = "return torch.softmax(x, -1)"
        yield Row(f"softmax {label}", "softmax", sizes, torch_best, "x", body, x, "softmax(x)")
    sizes = {"rows": 8192, "columns": 32000}
    inputs = f"{half(8192, 32000)}, torch.randint(32000, (8192,))"
    body, call = 'return F.cross_entropy(x, t, reduction="none")', 'cross_entropy(x, t, reduction="none")'
    yield Row("cross_entropy 8192x32000", "cross_entropy", sizes, torch_best, "x, t", body, inputs, call)
    sizes, x = {"tokens": 8192, "width": 14336}, half(8192, 28672)
    body = "return F.silu(x[:, :14336]) * x[:, 14336:]"
    yield Row("swiglu 8192x14336", "swiglu", sizes, torch_best, "x", body, x, "swiglu(x)")


def rows() -> list[Row | Missing]:
    return [
        *attention_rows(),
        *gemm_rows(),
        *memory_rows(),
        Missing("attention D=64 on an RTX 4090", "there is no such machine here"),
        Missing("attention D=128 on an RTX 4090", "there is no such machine here"),
        Missing("attention on an Apple M2", "there is no such machine here"),
        Missing("gemm on an Apple M2", "there is no such machine here"),
    ]
