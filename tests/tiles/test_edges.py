"""Arguments at the edge of what public functions take: right, or refused in words."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.functional import scaled_dot_product_attention, silu

from assay import tiles
from assay.tiles import choice, operators
from assay.tiles.kernel import Unsupported
from assay.tiles.kernels import attention as attention_module
from assay.tiles.kernels import decode_attention, gemm, mamba2

Q, K, V = torch.randn(3, 1, 2, 5, 64).bfloat16()
ROWS = torch.randn(5, 2, 64).bfloat16()
IMAGE, WINDOW = torch.randn(1, 3, 6, 6), torch.randn(2, 3, 3, 3)


def ends(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


@pytest.mark.parametrize("scale", [0.0, -0.125, float("nan"), float("inf")])
def test_scales_that_kernels_cannot_take(scale: float) -> None:
    with pytest.raises(Unsupported, match="a scale of .*: use a number above 0"):
        tiles.attention(Q, K, V, scale=scale)
    with pytest.raises(Unsupported, match="a scale of .*: use a number above 0"):
        tiles.varlen_attention(ROWS, ROWS, ROWS, ends(0, 5), ends(0, 5), scale=scale)


@pytest.mark.parametrize("switch", [0.125, 1.0, None, "no", torch.tensor([False])])
def test_what_is_no_switch_is_not_taken_for_one(switch: Any) -> None:
    with pytest.raises(Unsupported, match="is_causal is .*: use True or False"):
        tiles.attention(Q, K, V, switch)
    with pytest.raises(Unsupported, match="is_causal is .*: use True or False"):
        tiles.varlen_attention(ROWS, ROWS, ROWS, ends(0, 5), ends(0, 5), switch)


def test_more_heads_that_share_than_a_grid_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_module, "MOST_HEADS", 1)
    with pytest.raises(Unsupported, match="2 heads cannot share 1"):
        tiles.attention(Q, K[:, :1], V[:, :1])


def test_heads_of_no_columns_have_no_scale() -> None:
    with pytest.raises(Unsupported, match="no columns"):
        tiles.attention(Q[..., :0], K[..., :0], V[..., :0])


@pytest.mark.parametrize("is_causal", [False, True])
def test_what_is_not_finite_shows(is_causal: bool) -> None:
    q, k, v = Q.float(), K.float(), V.float()
    k[0, 0, 1, 0] = torch.inf
    v[0, 1, 2, 3] = torch.nan
    wanted = scaled_dot_product_attention(q, k, v, is_causal=is_causal)
    got = attention_module.reference(q, k, v, is_causal)
    torch.testing.assert_close(got, wanted, equal_nan=True)
    assert got.isnan().any()


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
@pytest.mark.parametrize("is_causal", [False, True])
def test_more_heads_than_a_grid_has(monkeypatch: pytest.MonkeyPatch, kv_heads: int, is_causal: bool) -> None:
    asked: list[int] = []

    def answered(q, k, v, is_causal, scale, records):
        asked.append(q.shape[0] * q.shape[1])
        return attention_module.reference(q, k, v, is_causal, scale)

    q, k, v = (torch.randn(3, heads, 5, 64).bfloat16() for heads in (4, kv_heads, kv_heads))
    wanted = attention_module.reference(q, k, v, is_causal)
    monkeypatch.setattr(attention_module, "MOST_HEADS", 5)
    monkeypatch.setattr(attention_module, "runs_on_hopper", lambda *tensors: True)
    monkeypatch.setattr(attention_module, "_on_hopper", answered)
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda self: True))
    torch.testing.assert_close(tiles.attention(q, k, v, is_causal), wanted)
    assert sum(asked) == 12 and max(asked) <= 5 and len(asked) == 3


def test_heads_walked_together_are_no_more_than_there_are() -> None:
    assert attention_module._together(2, 128, False) == 2
    assert attention_module._together(2, 2**30, False) == 1


@pytest.mark.parametrize("activation", ["silu", "gelu", ""])
def test_second_gradients_of_a_product(activation: str) -> None:
    def seconds(product: Any) -> list[torch.Tensor]:
        sides = [[0.5, -1.0]], [[1.0, 2.0], [-0.5, 0.25]]
        a, b = (torch.tensor(side, dtype=torch.bfloat16, requires_grad=True) for side in sides)
        (first,) = torch.autograd.grad(product(a, b).float().square().sum(), a, create_graph=True)
        return list(torch.autograd.grad(first.float().square().sum(), (a, b)))

    by_operator = seconds(lambda a, b: gemm._gemm(a, b, None, None, activation))
    by_torch = seconds(lambda a, b: gemm.ACTIVATIONS[activation]((a @ b).float()))
    torch.testing.assert_close(by_operator, by_torch, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("bad", [(2, 5), (0, 4, 2, 5), (0, 9), (0, -2)])
def test_sequences_that_do_not_follow_each_other(bad: tuple[int, ...]) -> None:
    for q_ends, k_ends in ((ends(*bad), ends(*bad)), (ends(*bad), ends(*[0] * len(bad)))):
        with pytest.raises(Unsupported, match="cu_seqlens of"):
            tiles.varlen_attention(ROWS, ROWS, ROWS, q_ends, k_ends)


def test_packed_sequences_look_like_their_queries_before_they_are_read() -> None:
    made = tiles.varlen_attention(*(x.to("meta") for x in (ROWS, ROWS, ROWS, ends(0, 5), ends(0, 5))))
    assert made.shape == ROWS.shape and made.is_meta
    with FakeTensorMode() as mode:
        given = (mode.from_tensor(x) for x in (ROWS, ROWS, ROWS, ends(0, 5), ends(0, 5)))
        assert tiles.varlen_attention(*given).shape == ROWS.shape


def test_packed_sequences_have_gradients_on_a_cpu() -> None:
    q = ROWS.float().requires_grad_()
    tiles.varlen_attention(q, q, q, ends(0, 2, 5), ends(0, 2, 5)).sum().backward()
    assert q.grad is not None and q.grad.norm() > 0


@pytest.mark.parametrize("page", [-1, 7])
def test_pages_that_are_not_there(page: int) -> None:
    cache = torch.randn(3, 16, 2, 64)
    given = torch.randn(1, 2, 64), cache, cache, torch.tensor([[page]], dtype=torch.int32), ends(9)
    with pytest.raises((Unsupported, IndexError), match="out of range"):
        tiles.decode_attention(*given)
    unused = torch.tensor([[2, page]], dtype=torch.int32)
    assert decode_attention.reference(given[0], cache, cache, unused, ends(9)).isfinite().all()


def test_mamba2_of_any_length_is_compiled_once() -> None:
    compiled = torch.compile(mamba2.mamba2, fullgraph=True, backend="eager", dynamic=True)
    for length in (5, 6):
        given = mamba2.inputs(batch=1, length=length, heads=2, p=16, groups=1, n=16, device="cpu")
        torch.testing.assert_close(compiled(*given), mamba2.reference(*given))


def test_no_heads_and_no_groups() -> None:
    given = mamba2.inputs(batch=1, length=3, heads=2, p=16, groups=1, n=16, device="cpu")
    x, dt, a, b, c, d = given
    assert mamba2.mamba2(x[:, :, :0], dt[..., :0], a[:0], b[:, :, :0], c[:, :, :0], d[:0]).numel() == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda: tiles.conv2d(IMAGE, WINDOW, stride=1.5),
        lambda: tiles.conv2d(IMAGE, WINDOW, stride=None),
        lambda: tiles.conv2d(IMAGE, WINDOW, padding="ab"),
        lambda: tiles.conv2d(IMAGE, WINDOW, dilation=(1, 1, 1)),
        lambda: tiles.conv2d(IMAGE, WINDOW, stride=2**31),
        lambda: tiles.conv2d(IMAGE, WINDOW, stride=2**30, padding=2**30),
        lambda: tiles.conv2d_relu_maxpool(IMAGE, WINDOW[..., :1, :1], dilation=2**31),
        lambda: tiles.topk_route(torch.randn(4, 8), 2.0),
        lambda: tiles.gemm(Q[0, 0], K[0, 0].T, activation=[]),
        lambda: tiles.cross_entropy(torch.randn(3, 0), torch.zeros(3, dtype=torch.int64)),
    ],
)
def test_what_is_no_size_is_refused(call: Any) -> None:
    with pytest.raises(Unsupported):
        call()


def test_an_operator_in_one_thread_leaves_the_others_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, may_end, told = threading.Event(), threading.Event(), []

    def slow(*given: Any) -> str:
        inside.set()
        may_end.wait(30)
        return choice.who()

    op = operators.softmax
    monkeypatch.setattr(op, "_op", slow)
    thread = threading.Thread(target=lambda: told.append(op(silu(ROWS))))
    thread.start()
    assert inside.wait(30) and choice.who() == "faster"
    may_end.set()
    thread.join()
    assert told == ["tiles"] and choice.who() == "faster"


def test_who_always_answers_is_said_by_name() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import assay.tiles.choice"],
        capture_output=True,
        text=True,
        env={"ASSAY_TILES_ALWAYS": "nobody"},
    )
    assert "ASSAY_TILES_ALWAYS: 'nobody' cannot answer" in done.stderr


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--only", "zzz"), "no row matches 'zzz'"),
        (("--within", "nan"), "--within"),
        (("--out", "nowhere/table.json"), "there is no folder"),
        (("--out", "."), "cannot be kept"),
        (("--out", "text.json"), "cannot be kept"),
        (("--missing", "--out", "object.json"), "is no table of rows"),
    ],
)
def test_a_table_that_cannot_be_kept_is_one_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    words: tuple[str, ...],
    why: str,
) -> None:
    from assay.tiles import table

    (tmp_path / "text.json").write_text("text")
    (tmp_path / "object.json").write_text('{"label": 1}')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["table", *words])
    with pytest.raises(SystemExit) as ended:
        table.main()
    last = capsys.readouterr().err.splitlines()[-1]
    assert ended.value.code == 2 and why in last
