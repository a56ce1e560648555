"""The catalog: every kernel says what it computes, and its function can be had from the package."""

from __future__ import annotations

import pytest

import assay.tiles
from assay.tiles.catalog import KERNELS
from assay.tiles.kernel import Kernel


def test_the_package_gives_every_kernel_by_name() -> None:
    assert set(assay.tiles.__all__) == {*KERNELS, "always", "chosen"}
    for name, kernel in KERNELS.items():
        assert getattr(assay.tiles, name) is kernel.run
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        assay.tiles.nothing  # noqa: B018


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_an_entry_is_whole(kernel: Kernel) -> None:
    assert kernel.formula and len(kernel.cases) > 1 and kernel.sizes and kernel.run.__doc__
    for sizes in (*kernel.cases, *kernel.sizes):
        cost = kernel.cost(**sizes)
        assert cost.size_bytes > 0 and cost.flops >= 0
    assert kernel.inputs(**kernel.cases[0], device="cpu")


def test_models_on_hopper_are_told_of_every_kernel() -> None:
    from assay.cli.search import _tiles_for

    told = _tiles_for("NVIDIA H200, compute capability 9.0, 132 multiprocessors")
    assert all(f"- {name}(" in told for name in KERNELS)
    assert "- rms_norm(x, weight, residual=None, eps=1e-06): " in told
    assert _tiles_for("NVIDIA A100, compute capability 8.0") == _tiles_for("CPU") == ""
