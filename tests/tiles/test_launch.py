"""What lies between a call and a launch, as far as no GPU is needed."""

from __future__ import annotations

import pytest
import torch

from assay.tiles.kernels.attention import BALANCED_FROM, together
from assay.tiles.kernels.gemm import WIDTHS
from assay.tiles.launch import can_be_described, describe, width_that_ends_first
from assay.tiles.op import op


def double(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


def test_a_description_is_found_again_and_keeps_nothing_alive() -> None:
    tensor = torch.zeros(64, 64, dtype=torch.bfloat16)
    first = describe(tensor, [64, 64])
    assert describe(tensor.view(64, 64), [64, 64]) is first
    assert describe(tensor, [32, 64]) is not first
    assert describe(tensor[:, :32], [64, 32]).strides == [64, 1]
    assert not isinstance(first.base, torch.Tensor) and first.base.data_ptr() == tensor.data_ptr()


def test_what_cannot_be_described() -> None:
    tensor = torch.zeros(64, 72, dtype=torch.bfloat16)
    assert can_be_described(tensor) and can_be_described(tensor.T)
    assert not can_be_described(tensor[:, 1:]) and not can_be_described(torch.zeros(64, 9)[:, :8])


@pytest.mark.parametrize(
    ("m", "n", "k", "width"),
    [
        (8192, 8192, 8192, 256),  # many tiles
        (1024, 6144, 4096, 128),  # two rounds of which the second is half empty, or three full ones
        (1024, 1024, 1024, 64),  # 64 tiles for 132 processors, or 128
        (8192, 4800, 1600, 128),  # short tiles, of which the rest counts
    ],
)
def test_the_width_that_ends_first(m: int, n: int, k: int, width: int) -> None:
    assert width_that_ends_first(WIDTHS, m, n, k // 64, 132) == width


def test_heads_that_the_cache_holds_are_walked_together() -> None:
    short, long = (torch.empty(8, t, 128, dtype=torch.bfloat16, device="meta") for t in (2048, 16384))
    assert together(short, is_causal=False) == together(short, is_causal=True) == 12
    assert together(long, is_causal=False) == 1
    assert long.shape[1] >= BALANCED_FROM and together(long, is_causal=True) == 8


def test_an_operator() -> None:
    made = op("test_double", has_backward=True)(double)
    made.register_fake(torch.empty_like)
    made.register_autograd(lambda ctx, grad: 2 * grad, setup_context=lambda ctx, inputs, output: None)
    x = torch.ones(3, requires_grad=True)
    assert torch.autograd.grad(made(x).sum(), x)[0].tolist() == [2.0] * 3
    torch.library.opcheck(made.overload, (x,))


def test_an_operator_without_a_backward_says_so() -> None:
    made = op("test_forward_only")(double)
    made.register_fake(torch.empty_like)
    assert made(torch.ones(2)).tolist() == [2.0, 2.0]
    with pytest.raises(RuntimeError, match="test_forward_only has no backward"):
        made(torch.ones(2, requires_grad=True)).sum().backward()


def test_a_name_is_taken_once() -> None:
    """Whoever holds the first one would call what is no longer there."""
    op("test_again")(double)
    with pytest.raises(RuntimeError, match="test_again"):
        op("test_again")(double)
