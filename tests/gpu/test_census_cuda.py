"""What one call runs on the device, by name and time."""

from __future__ import annotations

import pytest
import torch

from assay.judge.census import sort_kernels
from assay.worker.census import count_kernels
from assay.worker.messages import decode_counts

pytestmark = pytest.mark.gpu


def test_kernels_copies_and_fills_are_told_apart(device: str) -> None:
    x = torch.randn(1 << 22, device=device)

    def call() -> None:
        y = x.clone()
        torch.zeros_like(x)
        torch.relu(y)
        torch.relu(y)

    counted = decode_counts(count_kernels(call))
    shares, own_share = sort_kernels(counted)
    kinds = {share.kind for share in shares}
    assert kinds == {"library", "housekeeping"} and own_share == 0.0, shares
    (relu,) = [share for share in shares if share.kind == "library"]
    assert relu.calls == 2 and relu.time_us > 1.0


def test_counting_twice_counts_only_the_second_call(device: str) -> None:
    x = torch.randn(1 << 20, device=device)
    count_kernels(lambda: torch.relu(x))
    assert [row[1] for row in count_kernels(lambda: torch.sin(x))] == [1]
    assert count_kernels(lambda: None) == []
