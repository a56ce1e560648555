"""The rows of the table: what is compared with what, at which sizes, as text for the judge.

The first twelve are those of ThunderKittens' own table. For four of them there is no machine here.
"""

from __future__ import annotations

from collections.abc import Iterator

from assay.tiles import table_attention, table_norms, table_products, table_sequences, table_tokens
from assay.tiles.table_row import Missing, Row, needs

SEQUENCES = (2048, 4096, 8192, 16384)
SQUARES = (1024, 2048, 4096, 8192, 16384)


def attention_rows() -> Iterator[Row]:
    for d in (128, 64):
        for is_causal in (False, True):
            for s in SEQUENCES:
                yield table_attention.attention(s, d, is_causal, batch=16384 // s, heads=2048 // d)


MODEL_SHAPES = {
    "Llama 8B": ((4096, 6144, 4096), (4096, 4096, 4096), (4096, 28672, 4096), (4096, 4096, 14336)),
    "Llama 70B": ((2048, 10240, 8192), (2048, 8192, 8192), (2048, 57344, 8192), (2048, 8192, 28672)),
    "Qwen 32B": ((4096, 7168, 5120), (4096, 5120, 5120), (4096, 51200, 5120), (4096, 5120, 25600)),
    "Mixtral": ((1024, 6144, 4096), (1024, 28672, 4096), (1024, 4096, 14336), (8192, 32000, 4096)),
    "GPT-2 XL": ((8192, 4800, 1600), (8192, 1600, 1600), (8192, 6400, 1600), (8192, 1600, 6400)),
}
"""Rows, columns and depth of the products of a layer: attention in and out, both of the feed-forward part."""


def gemm_rows() -> Iterator[Row]:
    for n in SQUARES:
        yield table_products.gemm(str(n), n, n, n)
    for model, shapes in MODEL_SHAPES.items():
        for shape in shapes:
            yield table_products.gemm(model, *shape)


def memory_rows() -> Iterator[Row]:
    """Kernels that a device's memory bounds: torch's own, compiled where that is faster."""
    for rows, columns in ((32768, 4096), (16384, 8192)):
        yield table_norms.rms_norm(rows, columns)
        yield table_norms.layer_norm(rows, columns)
        yield table_norms.softmax(rows, columns)
    yield table_norms.cross_entropy(8192, 32000)
    yield table_tokens.swiglu(tokens=8192, width=14336)


def gradient_rows() -> Iterator[Row]:
    for d in (128, 64):
        for is_causal in (False, True):
            for s in SEQUENCES:
                shape = {"batch": 16384 // s, "heads": 2048 // d}
                yield table_attention.forward_and_backward(s, d, is_causal, **shape)
                yield table_attention.backward(s, d, is_causal, **shape)


def few_bit_rows() -> Iterator[Row]:
    for per_tensor in (True, False):
        for n in SQUARES:
            yield table_products.fp8_gemm(n, n, n, per_tensor=per_tensor)
    for m in (1, 16, 256):
        yield table_products.int4_gemm(m, 8192, 8192)


def image_rows() -> Iterator[Row]:
    yield table_products.conv2d(64, 64, 56, 64)
    yield table_products.conv2d(64, 256, 14, 256)
    yield table_products.conv2d(64, 256, 56, 64, window=1, padding=0)
    yield table_products.conv2d_relu_maxpool(64, 64, 112, 64)
    yield table_products.conv2d_relu_maxpool(64, 128, 56, 256)


def sequence_rows() -> Iterator[Row | Missing]:
    yield table_sequences.long_convolution(batch=64, heads=768, length=1024)
    yield table_sequences.long_convolution(batch=16, heads=768, length=4096)
    for length in (2048, 8192):
        own = {"batch": 4, "heads": 16, "length": length}
        functions = ("fused_chunk_based", "parallel_based")
        yield from needs("fla", (table_sequences.based(function, **own) for function in functions))
        yield from needs("fla", [table_sequences.hedgehog(**own)])
        yield from needs("mamba_ssm", [table_sequences.mamba2(**own)])


def serving_rows() -> Iterator[Row]:
    shape = {"heads": 32, "kv_heads": 8, "d": 128}
    paged = table_attention.decode_attention
    yield paged(batch=1, **shape, page_size=64, least=131_072, length=131_072)
    yield paged(batch=16, **shape, page_size=16, least=8192, length=8192)
    yield paged(batch=64, **shape, page_size=64, least=128, length=8192)
    packed = table_attention.varlen_attention
    for is_causal in (False, True):
        yield packed(batch=8, **shape, least=256, length=4096, is_causal=is_causal)
    yield packed(batch=64, **shape, least=16, length=512, is_causal=True)


def token_rows() -> Iterator[Row]:
    yield table_tokens.rotary(batch=4, sequence=4096, heads=32, kv_heads=8, d=128)
    yield table_tokens.rotary(batch=4, sequence=4096, heads=32, kv_heads=32, d=64)
    yield table_tokens.geglu(tokens=8192, width=14336)
    for tokens, experts, k in ((8192, 8, 2), (65536, 64, 6), (65536, 256, 8)):
        route = {"tokens": tokens, "experts": experts, "k": k}
        yield table_tokens.topk_route(**route)
    for routed in (table_tokens.dispatch, table_tokens.combine):
        yield routed(tokens=8192, experts=8, k=2, n=4096)
        yield routed(tokens=8192, experts=256, k=8, n=7168)


def rows() -> list[Row | Missing]:
    return [
        *attention_rows(),
        *gradient_rows(),
        *gemm_rows(),
        *few_bit_rows(),
        *image_rows(),
        *memory_rows(),
        *token_rows(),
        *serving_rows(),
        *sequence_rows(),
        Missing("attention D=64 on an RTX 4090", "there is no such machine here"),
        Missing("attention D=128 on an RTX 4090", "there is no such machine here"),
        Missing("attention on an Apple M2", "there is no such machine here"),
        Missing("gemm on an Apple M2", "there is no such machine here"),
    ]
