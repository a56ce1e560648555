"""Decoding against pages and packed sequences: the kernels interpreted on a CPU, and compiled for Hopper.

Run as a program, with TRITON_INTERPRET=1, this file makes every check below and prints what went wrong.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
import triton
from interpreting import interpreted
from torch.nn.functional import scaled_dot_product_attention
from triton.compiler import ASTSource

from assay.tiles.gate import HOPPER, MOST_SHARED_BYTES, assembled
from assay.tiles.kernel import Kernel, Unsupported
from assay.tiles.kernels import decode_attention as decode
from assay.tiles.kernels import varlen_attention as varlen

CLOSE = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
Check = Callable[[], None]


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape).to(dtype)


def ints(*values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def compare(entry: Kernel, *arguments: Any, **named: Any) -> None:
    got, wanted = entry.run(*arguments, **named), entry.reference(*arguments, **named)
    assert got.dtype == wanted.dtype and got.shape == wanted.shape and wanted.isfinite().all()
    close = CLOSE[got.dtype]
    torch.testing.assert_close(got.float(), wanted.float(), atol=close, rtol=close)


def case(entry: Kernel, k: int, dtype: torch.dtype) -> None:
    given = entry.inputs(**entry.cases[k], device="cpu")
    compare(entry, *(x.to(dtype) for x in given[:3]), *given[3:])


def cases_of(entry: Kernel) -> dict[str, Check]:
    kinds = [(k, dtype) for k in range(len(entry.cases)) for dtype in (torch.float32, torch.float16)]
    return {f"case {k} in {dtype}": partial(case, entry, k, dtype) for k, dtype in kinds}


def in_pages(
    batch: int, heads: int, kv_heads: int, d: int, page: int, most: int, dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, ...]:
    k, v = (randn(batch * most, page, kv_heads, d, dtype=dtype) for _ in range(2))
    return randn(batch, heads, d, dtype=dtype), k, v, torch.randperm(batch * most).int().view(batch, most)


def decode_in_shares(most: int, length: int) -> None:
    """Several steps for each share, and some shares without any."""
    decode.MOST_SHARES, before = most, decode.MOST_SHARES
    decode.shares_of.cache_clear()
    try:
        compare(decode.ENTRY, *in_pages(2, 3, 1, 128, 16, 17), ints(length, 40))
    finally:
        decode.MOST_SHARES = before
        decode.shares_of.cache_clear()


def decode_more_shares_than_at_once() -> None:
    compare(decode.ENTRY, *in_pages(1, 8, 1, 256, 16, 35), ints(555))


def decode_groups(heads: int) -> None:
    compare(decode.ENTRY, *in_pages(1, heads, 2, 64, 64, 1, torch.float16), ints(50))


def decode_any_strides() -> None:
    q, k, v, table = in_pages(2, 4, 2, 64, 16, 4)
    lengths = ints(64, 33)
    both = torch.stack([k, v], 1)
    compare(decode.ENTRY, torch.stack([q, q], 1)[:, 0], both[:, 0], both[:, 1], table, lengths)
    heads_first = k.transpose(1, 2).contiguous().transpose(1, 2)
    columns_last = v.mT.contiguous().mT
    compare(decode.ENTRY, q.mT.contiguous().mT, heads_first, columns_last, table.T.contiguous().T, lengths)
    compare(decode.ENTRY, q, k, v, table, torch.stack([lengths, lengths], 1)[:, 1])


def decode_never_reads_what_is_not_seen() -> None:
    q, k, v, table = in_pages(3, 4, 2, 64, 16, 5)
    lengths = ints(37, 0, 80)
    wanted = decode.reference(q, k, v, table, lengths)
    seen = torch.zeros(k.shape[:2], dtype=torch.bool)
    for b, length in enumerate(lengths.tolist()):
        for t in range(length):
            seen[table[b, t // 16], t % 16] = True
        table[b, math.ceil(length / 16) :] = 2**30
    for cache in (k, v):
        cache[~seen] = math.nan
    got = decode.decode_attention(q, k, v, table, lengths)
    torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-5)
    assert not got[1].any()
    assert torch.equal(decode.reference(q, k, v, table, lengths), wanted)


def decode_odd_lengths() -> None:
    compare(decode.ENTRY, *in_pages(3, 2, 1, 64, 16, 2), ints(-5, 1, 1000))


def decode_scales() -> None:
    given = in_pages(1, 2, 1, 64, 16, 3)
    for scale in (0.0, -0.3, 2.0):
        compare(decode.ENTRY, *given, ints(47), scale=scale)


def packed(
    lengths_q: list[int], lengths_k: list[int], heads: int = 2, kv_heads: int = 1, d: int = 64, **named: Any
) -> tuple[torch.Tensor, ...]:
    q = randn(sum(lengths_q), heads, d, **named)
    k, v = (randn(sum(lengths_k), kv_heads, d, **named) for _ in range(2))
    ends = (torch.tensor([0, *lengths]).cumsum(0).int() for lengths in (lengths_q, lengths_k))
    return q, k, v, *ends


def varlen_lengths(is_causal: bool, dtype: torch.dtype) -> None:
    """More queries than keys, fewer, none, no keys, whole blocks of either."""
    compare(varlen.ENTRY, *packed([70, 0, 64, 5, 32], [3, 9, 128, 0, 32], dtype=dtype), is_causal)


def varlen_one_long(is_causal: bool) -> None:
    compare(varlen.ENTRY, *packed([140], [270], 1, 1, 64, dtype=torch.float16), is_causal)


def varlen_any_strides() -> None:
    q, k, v, cu_q, cu_k = packed([20, 35], [20, 35], 2, 2)
    both = torch.stack([q, k, v], 1)
    compare(varlen.ENTRY, *both.unbind(1), cu_q, cu_k, True)
    heads_first = k.transpose(0, 1).contiguous().transpose(0, 1)
    strided = torch.stack([cu_k, cu_k], 1)[:, 0]
    compare(varlen.ENTRY, q.mT.contiguous().mT, heads_first, v.mT.contiguous().mT, cu_q, strided, True)


def varlen_padded_at_the_end() -> None:
    """Rows after the last sequence are zeros, whatever lies there."""
    q, k, v, cu_q, cu_k = packed([30, 40, 70], [50, 40, 70], 1)
    q[70:], k[90:], v[90:] = math.nan, math.nan, math.nan
    compare(varlen.ENTRY, q, k, v, cu_q[:3], cu_k[:3], True)
    assert not varlen.varlen_attention(q, k, v, cu_q[:3], cu_k[:3])[70:].any()


def varlen_many_sequences() -> None:
    """More of them than are looked at in one step."""
    varlen.MOST_AT_ONCE, before = 2, varlen.MOST_AT_ONCE
    try:
        compare(varlen.ENTRY, *packed([1, 40, 0, 2, 1], [5, 40, 2, 2, 0], 1), True)
    finally:
        varlen.MOST_AT_ONCE = before


def varlen_scale() -> None:
    compare(varlen.ENTRY, *packed([20], [30]), False, 1.5)


def has_no_gradients(run: Callable[..., Any], *given: torch.Tensor) -> None:
    with pytest.raises(Unsupported, match="no gradients"):
        run(given[0].clone().requires_grad_(), *given[1:])
    with torch.no_grad():
        run(given[0].clone().requires_grad_(), *given[1:])


def is_an_op(op: Any, *given: Any) -> None:
    torch.library.opcheck(op.overload, given, test_utils=("test_schema", "test_faketensor"))


def is_traced_whole(run: Callable[..., torch.Tensor], *given: torch.Tensor) -> None:
    traced = torch.compile(run, backend="aot_eager", fullgraph=True)
    assert torch.equal(traced(*given), run(*given))


DECODE: dict[str, Check] = {
    **cases_of(decode.ENTRY),
    **{f"at most {n} shares of {t}": partial(decode_in_shares, n, t) for n, t in ((1, 257), (3, 271))},
    "more shares than at once": decode_more_shares_than_at_once,
    **{f"{n} heads share two": partial(decode_groups, n) for n in (2, 34, 140)},
    "any strides": decode_any_strides,
    "what is not seen": decode_never_reads_what_is_not_seen,
    "odd lengths": decode_odd_lengths,
    "scales": decode_scales,
    "bfloat16": lambda: compare(decode.ENTRY, *in_pages(1, 2, 1, 64, 16, 3, torch.bfloat16), ints(33)),
    "gradients": lambda: has_no_gradients(decode.decode_attention, *in_pages(1, 1, 1, 64, 16, 1), ints(9)),
    "traced": lambda: is_traced_whole(decode.decode_attention, *in_pages(1, 2, 1, 64, 16, 3), ints(40)),
    "op": lambda: is_an_op(decode._decode, *in_pages(1, 2, 1, 64, 16, 9), ints(140), 0.1),
}
VARLEN: dict[str, Check] = {
    **cases_of(varlen.ENTRY),
    **{
        f"lengths, causal {c}, {dtype}": partial(varlen_lengths, c, dtype)
        for c, dtype in ((True, torch.float32), (False, torch.float32), (True, torch.float16))
    },
    **{f"one long, causal {c}": partial(varlen_one_long, c) for c in (True, False)},
    "any strides": varlen_any_strides,
    "padded at the end": varlen_padded_at_the_end,
    "many sequences": varlen_many_sequences,
    "scale": varlen_scale,
    "bfloat16": lambda: compare(varlen.ENTRY, *packed([20], [30], dtype=torch.bfloat16), True),
    "gradients": lambda: has_no_gradients(varlen.varlen_attention, *packed([9], [9])),
    "traced": lambda: is_traced_whole(varlen.varlen_attention, *packed([9, 3], [9, 4])),
    "op": lambda: is_an_op(varlen._varlen, *packed([9, 3], [9, 4]), True, 0.1),
}


def wrongs() -> Iterator[tuple[str, str]]:
    """What each check complains of; nothing where it is content."""
    assert triton.knobs.runtime.interpret
    for kernel, checks in (("decode", DECODE), ("varlen", VARLEN)):
        for name, check in checks.items():
            torch.manual_seed(0)
            try:
                check()
            except Exception as error:
                yield f"{kernel}: {name}", f"{type(error).__name__}: {error}"
            else:
                yield f"{kernel}: {name}", ""


@pytest.mark.parametrize("name", DECODE)
def test_decode_attention_interpreted(name: str) -> None:
    assert interpreted(__file__)[f"decode: {name}"] == ""


@pytest.mark.parametrize("name", VARLEN)
def test_varlen_attention_interpreted(name: str) -> None:
    assert interpreted(__file__)[f"varlen: {name}"] == ""


POINTERS = {
    **dict.fromkeys(("q", "k", "v", "out"), "*bf16"),
    **dict.fromkeys(("table", "lengths", "cu_q", "cu_k"), "*i32"),
    **dict.fromkeys(("state", "partial"), "*fp32"),
    "scale": "fp32",
}


def compiled(kernel: Any, constants: dict[str, Any], **named: Any) -> tuple[str, int]:
    """Its text, and the bytes that it shares; it spills nothing, and no product waits for another."""
    types = {**POINTERS, **named.pop("types", {})}
    names = kernel.arg_names
    signature = {name: "constexpr" if name in constants else types.get(name, "i32") for name in names}
    values = {(names.index(name),): value for name, value in constants.items()}
    strides = ("row", "head", "page", "slot", "seq")
    aligned = {
        (i,): [["tt.divisibility", 16]]
        for i, name in enumerate(names)
        if signature[name].startswith("*") or name.split("_")[-1] in strides
    }
    made = triton.compile(ASTSource(kernel, signature, values, aligned), target=HOPPER, options=named)
    told = assembled(made.asm["ptx"])
    assert " 0 bytes spill stores" in told and "instructions are serialized" not in told
    return made.asm["ptx"], made.metadata.shared


@pytest.mark.parametrize(("d", "rows", "is_whole"), [(64, 16, True), (128, 16, False), (256, 64, False)])
def test_decode_attention_compiles(d: int, rows: int, is_whole: bool) -> None:
    constants = {"IS_WHOLE": is_whole, "PAGE": 16, "D": d, "ROWS": rows, "KEYS": decode.STEP_BYTES // d // 2}
    how = {"types": {"out": "*bf16" if is_whole else "*fp32"}, "num_warps": 4, "num_stages": decode.STAGES}
    text, shared = compiled(decode.decode_attention_kernel, constants, **how)
    assert "cp.async" in text and "mma" in text
    copies = 1 if rows == 64 else decode.PROGRAMS_AT_ONCE
    assert 4 * decode.STEP_BYTES < shared <= MOST_SHARED_BYTES // copies
    compiled(decode.combine_kernel, {"D": d, "SHARES": 8192 // d}, num_warps=4)


@pytest.mark.parametrize(("d", "rows_each"), [(64, 1000), (128, 1000), (256, 1000), (128, 30)])
def test_varlen_attention_compiles(d: int, rows_each: int) -> None:
    blocks = varlen.blocks_for(d, 2, rows_each)
    options = {name: blocks.pop(name) for name in ("num_warps", "num_stages")}
    text, shared = compiled(
        varlen.varlen_attention_kernel, {"IS_CAUSAL": True, "D": d, "CHUNK": 16, **blocks}, **options
    )
    assert "wgmma.mma_async" in text and "cp.async" in text and shared <= MOST_SHARED_BYTES


def test_sizes_of_one_compile() -> None:
    """Triton makes constants of arguments that are 1."""
    ones = dict.fromkeys(("heads", "kv_heads", "max_pages"), 1)
    constants = {"IS_WHOLE": True, "PAGE": 16, "D": 64, "ROWS": 16, "KEYS": 128, **ones}
    compiled(decode.decode_attention_kernel, constants, num_warps=4, num_stages=decode.STAGES)
    ones = dict.fromkeys(("heads", "kv_heads", "batch", "total_q"), 1)
    constants = {"IS_CAUSAL": True, "D": 64, "ROWS": 64, "KEYS": 64, "CHUNK": 1, **ones}
    compiled(varlen.varlen_attention_kernel, constants, num_warps=4, num_stages=2)


def test_the_references_are_torchs_attention() -> None:
    q, k, v, table = in_pages(2, 4, 2, 64, 16, 3)
    got = decode.decode_attention(q, k, v, table, ints(40, 17))
    for b, length in enumerate((40, 17)):
        keys, values = (x[table[b].long()].flatten(0, 1)[:length].transpose(0, 1) for x in (k, v))
        wanted = scaled_dot_product_attention(q[b, :, None], keys, values, enable_gqa=True)
        torch.testing.assert_close(got[b], wanted[:, 0])
    q, k, v, cu_q, cu_k = packed([7, 12], [7, 12], 4, 2)
    got = varlen.varlen_attention(q, k, v, cu_q, cu_k, is_causal=True)
    for part in (slice(0, 7), slice(7, 19)):
        q_b, k_b, v_b = (x[part].transpose(0, 1) for x in (q, k, v))
        wanted = scaled_dot_product_attention(q_b, k_b, v_b, is_causal=True, enable_gqa=True)
        torch.testing.assert_close(got[part], wanted.transpose(0, 1))


def test_on_a_cpu_the_references_can_be_differentiated() -> None:
    for run, given in (
        (decode.decode_attention, (*in_pages(1, 2, 1, 64, 16, 2), ints(20))),
        (varlen.varlen_attention, packed([5], [8])),
    ):
        for x in given[:3]:
            x.requires_grad_()
        run(*given).sum().backward()
        assert all(x.grad.isfinite().all() and x.grad.shape == x.shape for x in given[:3])


def test_nothing_in_nothing_out() -> None:
    q, k, v, table = in_pages(2, 4, 2, 64, 16, 3)
    assert decode.decode_attention(q[:0], k, v, table[:0], ints()).shape == (0, 4, 64)
    assert not decode.decode_attention(q, k[:0], v[:0], table, ints(1, 2)).any()
    assert not decode.decode_attention(q, k, v, table[:, :0], ints(1, 2)).any()
    q, k, v, cu_q, cu_k = packed([4], [4])
    assert varlen.varlen_attention(q[:0], k, v, ints(0, 0), cu_k).shape == (0, 2, 64)
    assert not varlen.varlen_attention(q, k[:0], v[:0], cu_q, ints(0, 0)).any()
    assert not varlen.varlen_attention(q, k, v, ints(0), ints(0)).any()


def test_sequences_are_divided_where_there_are_few() -> None:
    assert decode.shares_of(8, 128, 264) == 32
    assert decode.shares_of(264, 128, 264) == 1 and decode.shares_of(4096, 128, 264) == 1
    assert decode.shares_of(1, 1, 264) == 1 and decode.shares_of(1, 4096, 264) == decode.MOST_SHARES
    assert decode.shares_of(300, 128, 264) > 1


PAGED = (*in_pages(2, 4, 2, 64, 16, 3), ints(5, 6))
PACKED = packed([4, 5], [6, 7], 4, 2)


@pytest.mark.parametrize(
    ("entry", "changed", "words"),
    [
        (decode.ENTRY, {0: PAGED[0].half()}, "types differ"),
        (decode.ENTRY, {k: PAGED[k].double() for k in range(3)}, "use bfloat16, float16"),
        (decode.ENTRY, {3: PAGED[3].long()}, "use int32"),
        (decode.ENTRY, {4: ints(1, 2, 3)}, r"for 2 queries: want \(batch, max_pages\)"),
        (decode.ENTRY, {2: PAGED[2][:, :8]}, "twice"),
        (decode.ENTRY, {1: PAGED[1][:, :12], 2: PAGED[2][:, :12]}, "pages of 12"),
        (decode.ENTRY, {0: PAGED[0][:, :3]}, "3 heads cannot share 2"),
        (decode.ENTRY, {k: PAGED[k][..., :32] for k in range(3)}, "heads of 32"),
        (decode.ENTRY, {0: PAGED[0].to("meta")}, "on different devices"),
        (decode.ENTRY, {3: PAGED[3][:, :1].expand(2, 2**28)}, "split"),
        (varlen.ENTRY, {0: PACKED[0].half()}, "types differ"),
        (varlen.ENTRY, {3: PACKED[3].long()}, "use int32"),
        (varlen.ENTRY, {3: PACKED[3][:2]}, r"want \(batch \+ 1,\) twice"),
        (varlen.ENTRY, {2: PACKED[2][1:]}, "twice"),
        (varlen.ENTRY, {0: PACKED[0][:, :3]}, "3 heads cannot share 2"),
        (varlen.ENTRY, {k: PACKED[k][..., :32] for k in range(3)}, "heads of 32"),
        (varlen.ENTRY, {0: PACKED[0][0]}, "want"),
        (varlen.ENTRY, {5: True, 6: -1.0}, "above 0"),
        (varlen.ENTRY, {0: PACKED[0][:1, :1].expand(2**16, 2**10, 64)}, "split"),
    ],
)
def test_what_is_not_taken_is_refused(entry: Kernel, changed: dict[int, Any], words: str) -> None:
    given = dict(enumerate(PAGED if entry is decode.ENTRY else PACKED)) | changed
    with pytest.raises(Unsupported, match=words):
        entry.run(*given.values())


@pytest.mark.parametrize("entry", [decode.ENTRY, varlen.ENTRY], ids=lambda entry: entry.name)
def test_costs_count_what_is_read_and_written(entry: Kernel) -> None:
    sizes = dict(entry.cases[1], least=entry.cases[1]["length"])
    given = entry.inputs(**sizes, device="cpu")
    unread = sizes["batch"] * (-sizes["length"] % sizes.get("page_size", 1)) * sizes["kv_heads"] * sizes["d"]
    moved = sum(x.nbytes for x in given if isinstance(x, torch.Tensor)) + given[0].nbytes - 4 * unread
    assert entry.cost(**sizes).size_bytes == moved and entry.cost(**sizes).flops > 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(json.dumps(dict(wrongs())))
