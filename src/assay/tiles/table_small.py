"""Every kernel at sizes that a checker of memory accesses gets through: `--small`."""

from __future__ import annotations

from collections.abc import Iterator

from assay.tiles import table_attention, table_norms, table_products, table_sequences, table_tokens
from assay.tiles.table_row import Row

HEADS = {"heads": 4, "kv_heads": 2, "d": 64}
ROUTE = {"tokens": 130, "experts": 60, "k": 3}


def small_rows() -> Iterator[Row]:
    """One for each kernel of the catalog and each way through it."""
    yield from _attention()
    yield table_products.gemm("small", 300, 200, 520)
    for per_tensor in (False, True):
        yield table_products.fp8_gemm(160, 256, 512, per_tensor=per_tensor)
    for m in (5, 40):
        yield table_products.int4_gemm(m, 48, 256)
    yield table_products.conv2d(2, 16, 9, 24, stride=2)
    yield table_products.conv2d(1, 32, 6, 16, window=1, padding=0)
    yield table_products.conv2d_relu_maxpool(2, 16, 8, 24)
    for channels, side, outputs in ((72, 9, 136), (64, 16, 40)):  # the second one's weight is held
        yield table_products.conv2d(2, channels, side, outputs)
        yield table_products.conv2d_relu_maxpool(2, channels, side, outputs)
    for columns in (520, 20000):
        yield table_norms.rms_norm(7, columns)
        yield table_norms.layer_norm(7, columns)
        yield table_norms.softmax(7, columns)
        yield table_norms.cross_entropy(7, columns)
    yield table_tokens.geglu(tokens=17, width=64)
    yield table_tokens.swiglu(tokens=17, width=64)
    yield table_tokens.rotary(batch=2, sequence=40, heads=4, kv_heads=2, d=64)
    yield table_tokens.topk_route(**ROUTE)
    yield table_tokens.topk_route(tokens=300, experts=256, k=8)
    yield table_tokens.topk_route(tokens=300, experts=8, k=2)
    yield table_tokens.dispatch(**ROUTE, n=200)
    yield table_tokens.combine(**ROUTE, n=200)
    yield table_sequences.long_convolution(batch=2, heads=3, length=1024)
    yield table_sequences.based("fused_chunk_based", batch=2, heads=2, length=100)
    yield table_sequences.hedgehog(batch=2, heads=2, length=100)
    for p, n in ((32, 16), (64, 128)):
        yield table_sequences.mamba2(batch=2, length=150, heads=4, p=p, groups=2, n=n)


def _attention() -> Iterator[Row]:
    for d in (64, 128):
        for is_causal in (False, True):
            yield table_attention.attention(200, d, is_causal, batch=1, heads=2)
            yield table_attention.forward_and_backward(200, d, is_causal, batch=1, heads=2)
    yield table_attention.attention(200, 256, True, batch=1, heads=2)
    yield table_attention.decode_attention(batch=3, **HEADS, page_size=16, least=5, length=60)
    yield table_attention.decode_attention(batch=1, **HEADS, page_size=16, least=700, length=700)  # in shares
    for is_causal in (False, True):
        yield table_attention.varlen_attention(batch=3, **HEADS, least=9, length=40, is_causal=is_causal)
