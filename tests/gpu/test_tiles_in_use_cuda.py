"""Every tile kernel as a model uses it: on a stream of its own, in a CUDA graph whose inputs change,
compiled, traced without data, and with gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_tiles_cuda import CASES, ROUNDED, listed, off
from torch._subclasses.fake_tensor import FakeTensorMode

from assay.tiles import always
from assay.tiles.catalog import KERNELS

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(900)]
WHILE_CYCLES = 50_000_000
"""A kernel that did not wait for its stream would be done long before."""
WITH_GRADIENTS = (
    "gemm", "attention", "swiglu", "geglu", "rms_norm", "layer_norm", "softmax", "cross_entropy", "rotary",
)  # fmt: skip
GRADIENTS = [case for case in CASES if case[0] in WITH_GRADIENTS]
LARGE = [(name, number) for name in KERNELS for number in (0, -1)]
"""The first and the last of those that the table is about."""
SLACK_BYTES = 2 * 2**20
"""A kernel's own tables, and what the allocator rounds."""


def inputs_of(name: str, number: int, device: str, seed: int = 0) -> tuple[Any, ...]:
    torch.manual_seed(seed)
    entry = KERNELS[name]
    return entry.inputs(**entry.cases[number], device=device)


def change(given: tuple[Any, ...], fresh: tuple[Any, ...]) -> None:
    """Numbers alone: places, lengths and targets stay."""
    for old, new in zip(given, fresh, strict=True):
        if isinstance(old, torch.Tensor) and old.is_floating_point():
            old.copy_(new)


def error(name: str, got: Any, given: tuple[Any, ...]) -> float:
    pairs = zip(listed(got), listed(KERNELS[name].reference(*given)), strict=True)
    return max(off(one, other) for one, other in pairs)


@pytest.mark.parametrize(("name", "number"), CASES)
def test_on_a_stream_of_its_own(name: str, number: int, device: str) -> None:
    given, fresh = inputs_of(name, number, device), inputs_of(name, number, device, seed=1)
    with always("tiles"):
        KERNELS[name].run(*given)  # compiled before
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(WHILE_CYCLES)
            change(given, fresh)
            got = KERNELS[name].run(*given)
        stream.synchronize()
    assert error(name, got, given) < ROUNDED


@pytest.mark.parametrize(("name", "number"), CASES)
def test_replayed_from_a_graph_with_other_inputs(name: str, number: int, device: str) -> None:
    given, fresh = inputs_of(name, number, device), inputs_of(name, number, device, seed=1)
    with always("tiles"):
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            KERNELS[name].run(*given)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            got = KERNELS[name].run(*given)
    for _ in range(2):
        change(given, fresh)
        graph.replay()
        assert error(name, got, given) < ROUNDED
        fresh = inputs_of(name, number, device, seed=2)


@pytest.mark.parametrize("name", KERNELS)
def test_compiled_whole(name: str, device: str) -> None:
    torch._dynamo.reset()
    given = inputs_of(name, len(KERNELS[name].cases) - 1, device)
    with always("tiles"):
        got = torch.compile(KERNELS[name].run, fullgraph=True)(*given)
    assert error(name, got, given) < ROUNDED


@pytest.mark.parametrize(("name", "number"), CASES)
def test_what_is_traced_looks_like_what_is_computed(name: str, number: int, device: str) -> None:
    given = inputs_of(name, number, device)
    with always("tiles"):
        real = listed(KERNELS[name].run(*given))
        with FakeTensorMode() as mode:
            fakes = [mode.from_tensor(x) if isinstance(x, torch.Tensor) else x for x in given]
            traced = listed(KERNELS[name].run(*fakes))
    told = [[(x.shape, x.dtype, x.stride(), x.device) for x in each] for each in (traced, real)]
    assert told[0] == told[1]


@pytest.mark.parametrize(("name", "number"), LARGE)
def test_needs_no_more_memory_on_the_way_than_inputs_and_results(name: str, number: int, device: str) -> None:
    """Images laid out channels first are copied on both ways, which is what that leaves room for."""
    entry = KERNELS[name]
    given = entry.inputs(**entry.sizes[number], device=device)
    with always("tiles"):
        entry.run(*given)  # what is made once is there
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        results = listed(entry.run(*given))
        most = torch.cuda.max_memory_allocated() - before
    size_bytes = sum(x.nbytes for x in results)
    inputs_bytes = sum(x.nbytes for x in given if isinstance(x, torch.Tensor))
    assert most - size_bytes <= size_bytes + inputs_bytes + SLACK_BYTES


@pytest.mark.parametrize(("name", "number"), GRADIENTS)
def test_gradients_are_those_of_the_reference(name: str, number: int, device: str) -> None:
    ours = inputs_of(name, number, device)
    places = [k for k, x in enumerate(ours) if isinstance(x, torch.Tensor) and x.dtype is torch.bfloat16]
    theirs = [x.float() if k in places else x for k, x in enumerate(ours)]
    leaves = [[each[k].requires_grad_() for k in places] for each in (ours, theirs)]
    with always("tiles"):
        made = listed(KERNELS[name].run(*ours))
    exact = listed(KERNELS[name].reference(*theirs))
    slopes = [torch.randn_like(x) for x in made]
    got = torch.autograd.grad(made, leaves[0], slopes)
    wanted = torch.autograd.grad(
        exact, leaves[1], [x.to(y.dtype) for x, y in zip(slopes, exact, strict=True)]
    )
    for one, other in zip(got, wanted, strict=True):
        assert one.shape == other.shape
        # Of a row of one element the gradient of a norm is zero, as the difference of terms that are not.
        assert (one - other).norm() < 2 * ROUNDED * other.norm().clamp_min(1e-3)
