"""Everything in this folder runs on the GPU, and says why where it does not."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="module")
def device() -> str:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    return "cuda"
