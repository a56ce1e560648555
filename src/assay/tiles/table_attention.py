"""Rows of the table: attention, with gradients, on pages, and on packed sequences."""

from __future__ import annotations

from itertools import accumulate

from assay.tiles.table_row import Row, half

CUDNN = """if q.dtype == torch.float64 or not q.is_cuda:
    # The scores of all heads at once are more than there is memory for.
    heads = zip(*(x.flatten(0, 1)[:, None] for x in (q, k, v)))
    made = [F.scaled_dot_product_attention(*head, is_causal={causal}) for head in heads]
    return torch.stack(made).view(q.shape)
with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
    return F.scaled_dot_product_attention(q, k, v, is_causal={causal})"""


def attention(s: int, d: int, is_causal: bool, *, batch: int, heads: int) -> Row:
    return Row(
        label=f"attention D={d} S={s}{' causal' if is_causal else ''}",
        kernel="attention",
        sizes={"batch": batch, "heads": heads, "kv_heads": heads, "s": s, "t": s, "d": d}
        | {"is_causal": is_causal},
        reference="cuDNN attention",
        names="q, k, v",
        body=CUDNN.format(causal=is_causal),
        inputs=", ".join([half(batch, heads, s, d)] * 3),
        call=f"attention(q, k, v, is_causal={is_causal})",
    )  # fmt: skip


GRADIENTS = '''
def gradients(attend, q, k, v, do):
    """Whatever mode the call is made in."""
    with torch.inference_mode(False), torch.enable_grad():
        leaves = [x.detach().requires_grad_() for x in (q, k, v)]
        return torch.autograd.grad(attend(*leaves), leaves, do)
'''
GRADIENT_FILES = (
    "assay.tiles.kernels.attention_backward",
    "assay.tiles.kernels.attention_one_walk",
    "assay.tiles.kernels.attention_causal_walk",
    "assay.tiles.kernels.attention_two_walks",
)
CUDNN_GRADIENTS = '''
def attend(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal={causal})


def by_cudnn(q, k, v):
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        return attend(q, k, v)


def head_by_head(*tensors):
    """The scores of all heads at once are more than there is memory for."""
    heads = zip(*(x.flatten(0, 1)[:, None] for x in tensors), strict=True)
    made = zip(*(gradients(attend, *head) for head in heads), strict=True)
    return tuple(torch.stack(each).view(x.shape) for each, x in zip(made, tensors))
'''


def attention_backward(s: int, d: int, is_causal: bool, *, batch: int, heads: int) -> Row:
    """Five products are needed, of which the forward alone has two, and seven tensors in place of four."""
    return Row(
        label=f"attention forward and backward D={d} S={s}{' causal' if is_causal else ''}",
        kernel="attention",
        sizes={"batch": batch, "heads": heads, "kv_heads": heads, "s": s, "t": s, "d": d}
        | {"is_causal": is_causal},
        reference="cuDNN attention",
        names="q, k, v, do",
        body="""if q.dtype == torch.float64 or not q.is_cuda:
    return head_by_head(q, k, v, do)
return gradients(by_cudnn, q, k, v, do)""",
        inputs=", ".join([half(batch, heads, s, d)] * 4),
        call=f"gradients(lambda *x: attention(*x, is_causal={is_causal}), q, k, v, do)",
        shared=GRADIENTS,
        setup=CUDNN_GRADIENTS.format(causal=is_causal),
        bytes_times=7 / 4,
        flops_times=5 / 2,
        more=GRADIENT_FILES,
    )  # fmt: skip


PAGES = """keys, values = (x[table.long()].flatten(1, 2).transpose(1, 2) for x in (k, v))
seen = torch.arange(keys.shape[2], device=q.device) < lengths[:, None]
queries = q.unflatten(1, (keys.shape[1], -1))
return F.scaled_dot_product_attention(queries, keys, values, attn_mask=seen[:, None, None]).flatten(1, 2)"""


def decode_attention(
    *, batch: int, heads: int, kv_heads: int, d: int, page_size: int, least: int, length: int
) -> Row:
    """The queries that share a key are the reference's rows: it has no copies of keys to make for them."""
    most = -(-length // page_size)
    pages = half(batch * most, page_size, kv_heads, d)
    table = f"torch.randperm({batch * most}).int().view({batch}, {most})"
    lengths = f"torch.tensor({_lengths(batch, least, length)}, dtype=torch.int32)"
    sizes = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "d": d, "page_size": page_size}
    return Row(
        label=f"decode_attention {batch}x{heads}/{kv_heads} D={d} keys {least}-{length}",
        kernel="decode_attention",
        sizes=sizes | {"least": least, "length": length},
        reference="torch: gather, attention",
        names="q, k, v, table, lengths",
        body=PAGES,
        inputs=f"{half(batch, heads, d)}, {pages}, {pages}, {table}, {lengths}",
        call="decode_attention(q, k, v, table, lengths)",
    )


PACKED = '''
def one_by_one(q, k, v, ends):
    """Each sequence for itself."""
    made = []
    for first, end in zip(ends.tolist(), ends.tolist()[1:]):
        own = (x[first:end].transpose(0, 1) for x in (q, k, v))
        out = F.scaled_dot_product_attention(*own, is_causal={causal}, enable_gqa=True)
        made.append(out.transpose(0, 1))
    return torch.cat(made)
'''


def varlen_attention(
    *, batch: int, heads: int, kv_heads: int, d: int, least: int, length: int, is_causal: bool
) -> Row:
    lengths = _lengths(batch, least, length)
    ends = f"torch.tensor({list(accumulate(lengths, initial=0))}, dtype=torch.int32)"
    q, k = half(sum(lengths), heads, d), half(sum(lengths), kv_heads, d)
    sizes = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "d": d, "least": least, "length": length}
    flash = f"q, k, v, ends, ends, {length}, {length}, 0.0, {is_causal}, False"
    return Row(
        label=f"varlen_attention {batch} of {least}-{length} D={d}{' causal' if is_causal else ''}",
        kernel="varlen_attention",
        sizes=sizes | {"more": 0, "is_causal": is_causal},
        reference="torch, flash varlen",
        names="q, k, v, ends",
        body=f"""if q.dtype == torch.float64 or not q.is_cuda:
    return one_by_one(q, k, v, ends)
return torch.ops.aten._flash_attention_forward({flash})[0]""",
        inputs=f"{q}, {k}, {k}, {ends}",
        call=f"varlen_attention(q, k, v, ends, ends, is_causal={is_causal})",
        setup=PACKED.format(causal=is_causal),
    )


def _lengths(batch: int, least: int, length: int) -> list[int]:
    """As the catalog's costs have them: from the longest to the shortest in even steps."""
    return [length - (length - least) * i // max(batch - 1, 1) for i in range(batch)]
