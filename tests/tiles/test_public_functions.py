"""What users call, where there is no GPU: answers from the reference, refusals that say what is taken."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from assay.tiles.kernel import Unsupported
from assay.tiles.kernels import attention as attention_module
from assay.tiles.kernels import gemm as gemm_module
from assay.tiles.kernels.attention import attention
from assay.tiles.kernels.gemm import choose, gemm

ENTRIES = [gemm_module.ENTRY, attention_module.ENTRY]


def half(*shape: int) -> torch.Tensor:
    return torch.randn(*shape).bfloat16()


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_case_is_answered_on_a_cpu(entry) -> None:
    for sizes in entry.cases:
        arguments = entry.inputs(**sizes, device="cpu")
        got = entry.run(*arguments)
        assert torch.equal(got, entry.reference(*arguments)) and got.dtype == torch.bfloat16
        cost = entry.cost(**sizes)
        assert cost.flops > cost.size_bytes > sum(t.nbytes for t in arguments if isinstance(t, torch.Tensor))


def test_a_product_takes_any_strides_and_leading_axes() -> None:
    a, b = half(3, 5, 64), half(32, 64)
    wanted = (a.float() @ b.float().T).bfloat16()
    assert torch.equal(gemm(a, b.T), wanted)
    assert torch.equal(gemm(a.mT.contiguous().mT, b.T), wanted)
    assert gemm(half(0, 64), b.T).shape == (0, 32) and not gemm(half(4, 0), half(0, 8)).any()


def test_a_product_can_be_differentiated() -> None:
    a, b, bias = half(6, 16).requires_grad_(), half(16, 8).requires_grad_(), half(8).requires_grad_()
    gemm(a, b, bias, activation="silu").sum().backward()
    assert all(t.grad is not None and t.grad.shape == t.shape for t in (a, b, bias))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((half(4, 8), half(8, 4).float()), "types differ"),
        ((half(4, 8).float(), half(8, 4).float()), "use bfloat16, float16"),
        ((half(4, 8), half(9, 4)), r"\[4, 8\] @ \[9, 4\]"),
        ((half(4, 8), half(8, 4), half(5)), "a bias of"),
        ((half(4, 8), half(8, 4), None, half(4, 5)), "a residual of"),
        ((half(4, 8), half(8, 4), None, None, "tanh"), "relu, silu, gelu"),
        ((half(4, 8), half(8, 4).to("meta")), "on different devices: cpu, meta"),
        (
            (torch.empty(1, device="meta", dtype=torch.bfloat16).expand(2**20, 2**12), half(8, 4).to("meta")),
            "split",
        ),
    ],
)
def test_what_is_no_product_is_refused(arguments: tuple, words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        gemm(*arguments)


def test_tiles_are_wide_where_there_are_many() -> None:
    assert choose(8192, 8192, 8192, 132).BN == 256 and choose(512, 512, 512, 132).BN == 64
    assert choose(8192, 8192, 8192, 132, has_residual=True).BN == 128


def test_attention_is_torchs_where_torch_means_the_same() -> None:
    q, k, v = half(2, 4, 33, 64), half(2, 2, 33, 64), half(2, 2, 33, 64)
    wanted = scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=True, enable_gqa=True)
    torch.testing.assert_close(attention(q, k, v, is_causal=True).float(), wanted, atol=2e-2, rtol=2e-2)


def test_the_last_query_sees_every_key() -> None:
    """And one that sees none gets zeros."""
    q, k, v = half(1, 1, 5, 64), half(1, 1, 3, 64), half(1, 1, 3, 64)
    got = attention(q, k, v, is_causal=True)
    assert not got[0, 0, :2].any()
    torch.testing.assert_close(got[0, 0, 2], v[0, 0, 0])
    whole = attention(q[:, :, -1:], k, v)
    torch.testing.assert_close(got[:, :, -1:], whole)


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        (((2, 4, 8, 64), (2, 3, 8, 64), (2, 3, 8, 64)), "4 heads cannot share 3"),
        (((2, 4, 8, 64), (2, 4, 8, 32), (2, 4, 8, 32)), "want"),
        (((2, 4, 8, 64), (2, 4, 8, 64), (2, 4, 9, 64)), "want"),
        (((4, 8, 64), (4, 8, 64), (4, 8, 64)), "want"),
    ],
)
def test_what_is_no_attention_is_refused(shapes: tuple, words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        attention(*(half(*shape) for shape in shapes))


def test_a_scale_is_used() -> None:
    q, k, v = half(1, 1, 4, 64), half(1, 1, 4, 64), half(1, 1, 4, 64)
    flat = attention(q, k, v, scale=1e-9)
    torch.testing.assert_close(flat[0, 0, 0], v[0, 0].float().mean(0).bfloat16(), atol=1e-2, rtol=1e-2)
    assert math.isfinite(float(flat.float().sum()))
