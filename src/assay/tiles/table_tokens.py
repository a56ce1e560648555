"""Rows of the table: what is done to each token beside products and attention."""

from __future__ import annotations

from assay.tiles.table_row import Row, half

TURNED = """
def turned(x, cos, sin):
    left, right = x.transpose(1, 2).chunk(2, -1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), -1).to(x.dtype)
"""


def rotary(*, batch: int, sequence: int, heads: int, kv_heads: int, d: int) -> Row:
    """Queries, keys and values come in one tensor, as a product makes them."""
    angles = f"torch.outer(torch.arange({sequence}), 10_000.0 ** (-torch.arange(0, {d}, 2) / {d}))"
    return Row(
        label=f"rotary {batch}x{sequence}x{heads}/{kv_heads} D={d}",
        kernel="rotary",
        sizes={"batch": batch, "sequence": sequence, "heads": heads, "kv_heads": kv_heads, "d": d},
        reference="torch, compiled",
        names="x, cos, sin",
        body=f"""q, k, v = x.split(({heads}, {kv_heads}, {kv_heads}), 2)
return turned(q, cos, sin), turned(k, cos, sin), v.transpose(1, 2).contiguous()""",
        inputs=f"{half(batch, sequence, heads + 2 * kv_heads, d)}, {angles}.cos(), {angles}.sin()",
        call=f"rotary(x, None, cos, sin, {kv_heads})",
        setup=TURNED,
    )


def geglu(*, tokens: int, width: int) -> Row:
    return _gated("geglu", 'F.gelu({}, approximate="tanh")', tokens, width)


def swiglu(*, tokens: int, width: int) -> Row:
    return _gated("swiglu", "F.silu({})", tokens, width)


def _gated(kernel: str, gate: str, tokens: int, width: int) -> Row:
    return Row(
        label=f"{kernel} {tokens}x{width}",
        kernel=kernel,
        sizes={"tokens": tokens, "width": width},
        reference="torch, compiled",
        names="x",
        body=f"return {gate.format(f'x[:, :{width}]')} * x[:, {width}:]",
        inputs=half(tokens, 2 * width),
        call=f"{kernel}(x)",
    )


CHOSEN = '''
def chosen(logits, k):
    """The k highest, of equal ones the first: topk promises that only where no two are alike, which bf16
    is with its place in the bits that float32 has more."""
    if logits.dtype != torch.bfloat16:
        return logits.sort(dim=1, descending=True, stable=True).indices[:, :k]
    bits = (logits.float() + 0.0).view(torch.int32)
    place = torch.arange(logits.shape[1], device=logits.device, dtype=torch.int32)
    keys = (bits ^ ((bits >> 31) & 0x7FFFFFFF)) & -0x10000 | (0xFFFF - place)
    return keys.topk(k, 1).indices
'''


def topk_route(*, tokens: int, experts: int, k: int) -> Row:
    return Row(
        label=f"topk_route {tokens} to {k} of {experts}",
        kernel="topk_route",
        sizes={"tokens": tokens, "experts": experts, "k": k},
        reference="torch, compiled",
        names="logits",
        body=f"""experts = chosen(logits, {k})
weights = logits.gather(1, experts).float().softmax(1)
ordered, order = experts.flatten().sort(stable=True)
items = torch.arange(order.numel(), device=order.device)
position = torch.empty_like(order).scatter_(0, order, items).view(experts.shape)
offsets = torch.searchsorted(ordered, torch.arange({experts} + 1, device=order.device))
whole = (experts, order, position, offsets.diff(), offsets)
return (weights, *(x.int() for x in whole))""",
        inputs=half(tokens, experts),
        call=f"tuple(topk_route(logits, {k}))",
        setup=CHOSEN,
    )


def dispatch(*, tokens: int, experts: int, k: int, n: int) -> Row:
    """Places are a permutation, which is all that a route has to say."""
    return Row(
        label=f"dispatch {tokens}x{n} to {k} of {experts}",
        kernel="dispatch",
        sizes={"tokens": tokens, "experts": experts, "k": k, "n": n},
        reference="torch, compiled",
        names="x, position",
        body=f"return x[position.flatten().long().argsort() // {k}]",
        inputs=f"{half(tokens, n)}, {_places(tokens, k)}",
        call="dispatch(x, position)",
    )


def combine(*, tokens: int, experts: int, k: int, n: int) -> Row:
    return Row(
        label=f"combine {tokens}x{n} of {k} of {experts}",
        kernel="combine",
        sizes={"tokens": tokens, "experts": experts, "k": k, "n": n},
        reference="torch, compiled",
        names="rows, position, weights",
        body="return (rows[position.long()] * weights[:, :, None]).sum(1).to(rows.dtype)",
        inputs=f"{half(tokens * k, n)}, {_places(tokens, k)}, torch.rand({tokens}, {k})",
        call="combine(rows, position, weights)",
    )


def _places(tokens: int, k: int) -> str:
    return f"torch.randperm({tokens * k}).int().view({tokens}, {k})"
