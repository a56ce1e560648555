"""What a candidate ran, by name: whose code it is, and what the rules make of it."""

from __future__ import annotations

import pytest

from assay.judge.census import NEVER_LAUNCHED, findings_of, sort_kernels, sort_operators
from assay.records import Census, Rules, Share
from assay.worker.messages import Counted

OWN = Share("my_kernel", 1, 90.0, "own")
LIBRARY = Share("cublasGemmEx", 1, 10.0, "library")
MOVED = Share("aten::empty", 1, 0.0, "housekeeping")
STRICT = Rules(library_calls=False)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, GeluFunctor>", "library"),
        ("ampere_sgemm_128x64_tn", "library"),
        ("cutlass_80_tensorop_bf16_s16816gemm", "library"),
        ("cudnn_generated_fort_native_sdpa", "library"),
        ("triton_poi_fused_add_0", "library"),
        ("Memcpy DtoD (Device -> Device)", "housekeeping"),
        ("Memset (Device)", "housekeeping"),
        ("my_softmax", "own"),
        ("matmul_kernel", "own"),
    ],
)
def test_kernels_are_known_by_their_names(name: str, kind: str) -> None:
    (share,), own = sort_kernels([Counted(name, 3, 20.0)])
    assert (share.kind, share.calls, share.time_us) == (kind, 3, 20.0)
    assert own == (1.0 if kind == "own" else 0.0)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("aten::mm", "library"),
        ("aten::_softmax", "library"),
        ("aten::add.Tensor", "library"),
        ("aten::empty.memory_format", "housekeeping"),
        ("aten::view", "housekeeping"),
        ("candidate::fused", "own"),
    ],
)
def test_operators_are_known_by_their_names(name: str, kind: str) -> None:
    (share,), own = sort_operators([Counted(name, 1, 25.0)], 100.0)
    assert share.kind == kind
    assert own == pytest.approx(1.0 if kind == "own" else 0.75)


def test_the_share_of_ones_own_is_what_is_left() -> None:
    assert sort_kernels([Counted("mine", 1, 30.0), Counted("ampere_sgemm", 1, 90.0)])[1] == pytest.approx(
        0.25
    )
    assert sort_kernels([])[1] is None and sort_operators([], 0.0)[1] is None


@pytest.mark.parametrize(
    ("census", "codes"),
    [
        (Census((OWN, MOVED), 1.0, "wrong"), []),
        (Census((OWN, LIBRARY), 0.9, "wrong"), ["library_calls"]),
        (Census((), None, "failed", "it hides"), ["census_failed"]),
        (Census((OWN,), 1.0, "right"), ["kernel_does_not_matter"]),
        (Census((OWN,), 1.0, NEVER_LAUNCHED), ["kernel_does_not_matter"]),
        (Census((LIBRARY,), 0.0, NEVER_LAUNCHED), ["library_calls", "kernel_does_not_matter"]),
    ],
)
def test_rules_decide_what_is_fatal(census: Census, codes: list[str]) -> None:
    strict = findings_of(census, STRICT)
    assert [finding.code for finding in strict] == codes
    assert all(finding.fatal for finding in strict)
    assert not any(finding.fatal for finding in findings_of(census, Rules()))
    noted = [finding.code for finding in findings_of(census, Rules())]
    assert noted == [code for code in codes if code == "kernel_does_not_matter"]
