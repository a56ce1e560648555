"""What lies between a call and a launch, as far as no GPU is needed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

from assay.tiles.kernels.attention import BALANCED_FROM, together
from assay.tiles.kernels.gemm import TILES, Gemm
from assay.tiles.launch import (
    again,
    call_of,
    can_be_described,
    describe,
    launch,
    start,
    tile_that_ends_first,
    told_apart,
)
from assay.tiles.op import Op, op


def double(x: torch.Tensor) -> torch.Tensor:
    return 2 * x


def test_a_description_is_found_again_and_keeps_nothing_alive() -> None:
    tensor = torch.zeros(64, 64, dtype=torch.bfloat16)
    first = describe(tensor, [64, 64])
    assert describe(tensor.view(64, 64), [64, 64]) is first
    assert describe(tensor, [32, 64]) is not first
    assert describe(tensor[:, :32], [64, 32]).strides == [64, 1]
    assert not isinstance(first.base, torch.Tensor) and first.base.data_ptr() == tensor.data_ptr()


def test_leading_axes_are_described_as_one_where_nothing_lies_between() -> None:
    heads = torch.zeros(2, 3, 16, 64, dtype=torch.bfloat16)
    assert (describe(heads, [1, 16, 64]).shape, describe(heads, [1, 16, 64]).strides) == (
        [6, 16, 64],
        [1024, 64, 1],
    )
    single = torch.zeros(2, 16, 1, 64, dtype=torch.bfloat16).transpose(1, 2)
    assert describe(single, [1, 16, 64]).strides == [1024, 64, 1]
    with pytest.raises(ValueError, match="has gaps"):
        describe(heads.transpose(1, 2), [1, 16, 64])


def test_arguments_are_told_apart_as_triton_does() -> None:
    tensor = torch.zeros(64, dtype=torch.bfloat16)
    pairs = (
        (1, 2),
        (16, 17),
        (2, 2.0),
        (2**31, 32),
        (tensor, tensor[1:]),
        (tensor, tensor.half()),
        (0, None),
    )
    for one, other in pairs:
        assert told_apart([one])[0] != told_apart([other])[0]
    for one, other in ((2, 3), (16, 32), (tensor, tensor[8:]), (0.5, 1.5), ((1, 2), (1, 3))):
        assert told_apart([one])[0] == told_apart([other])[0]
    assert told_apart([tensor, 3])[1] == [tensor.data_ptr(), 3]


def test_calls_differ_by_where_and_how_their_tensors_lie() -> None:
    kernel, tensor = Named(), torch.zeros(8, 8)
    same = call_of(kernel, tensor, None, "relu")
    assert call_of(kernel, tensor.view(8, 8), None, "relu") == same and hash(same)
    others = (tensor[1:], None, "relu"), (tensor.T, None, "relu"), (None, tensor, "relu"), (tensor, None, "")
    assert all(call_of(kernel, *other) != same for other in (*others, (tensor.int(), None, "relu")))


class Named:
    """A kernel that notes down where it is launched, and cannot be launched directly."""

    def __init__(self) -> None:
        self.fn = object()
        self.launched: list[tuple[Any, ...]] = []

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        return lambda *arguments, **constants: self.launched.append((Devices.current, grid, constants))


class Devices:
    """In place of torch.cuda.device: a machine with several."""

    current = 0

    def __init__(self, index: int) -> None:
        self._index = index

    def __enter__(self) -> None:
        self._index, Devices.current = Devices.current, self._index

    def __exit__(self, *_: Any) -> None:
        Devices.current = self._index


def test_a_launch_is_on_the_device_of_its_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device", Devices)
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: Devices.current, raising=False)
    kernel, on = Named(), torch.zeros(4)
    for _ in range(2):
        start(kernel, (3, 2), (on, 4), on, SIZE=8)
    assert kernel.launched == [(on.get_device(), (3, 2), {"SIZE": 8})] * 2 and Devices.current == 0
    with Devices(on.get_device()):
        start(kernel, (1,), (on, 4), on, SIZE=8)
    assert len(kernel.launched) == 3 and not again(call_of(kernel, on), on)


class Lying:
    """In place of a tensor on a GPU."""

    def __init__(self, index: int) -> None:
        self.get_device = lambda: index


def test_a_launch_is_not_done_again_on_another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the same addresses may be another tensor's."""
    launched: list[tuple[Any, ...]] = []
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: Devices.current, raising=False)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: index, raising=False)
    monkeypatch.setattr("assay.tiles.launch.direct", lambda *_: lambda *given: launched.append(given))
    monkeypatch.setattr("assay.tiles.launch._CALLS", {})
    kernel, call = Named(), ("call",)
    for _ in range(2):  # the first time Triton launches
        start(kernel, (1,), (4,), Lying(0), call, SIZE=8)
    assert again(call, Lying(0)) and launched == [((1,), 0, [4])] * 2
    with Devices(1):
        assert not again(call, Lying(1))
        for _ in range(2):
            start(kernel, (1,), (5,), Lying(1), call, SIZE=8)
        assert again(call, Lying(1)) and launched[2:] == [((1,), 1, [5])] * 2
    assert again(call, Lying(0)) and launched[-1] == ((1,), 0, [4])


def test_a_launch_that_waits_itself_is_told_to_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: -1, raising=False)  # where these tensors are
    kernel, on, work = Named(), torch.zeros(4), Gemm()
    launch(kernel, 3, (on,), work, on)
    launch(kernel, 3, (on,), work, on, waits_itself=True)
    (_, _, alone), (_, _, overlapping) = kernel.launched
    assert overlapping == {**alone, "launch_pdl": True} and alone["w"] == work.constant


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
def test_the_tile_that_ends_first(m: int, n: int, k: int, width: int) -> None:
    assert tile_that_ends_first(TILES, m, n, k // 64, 132) == (128, width)


def test_heads_that_the_cache_holds_are_walked_together() -> None:
    short, long = (torch.empty(16, t, 128, dtype=torch.bfloat16, device="meta") for t in (2048, 16384))
    assert together(short, is_causal=False) == together(short, is_causal=True) == 12
    assert together(long, is_causal=False) == 1
    assert long[0].numel() * 2 >= BALANCED_FROM and together(long, is_causal=True) == 16
    assert together(short[:8], is_causal=False) == 8
    narrow = torch.empty(8, 8192, 64, dtype=torch.bfloat16, device="meta")
    assert together(narrow, is_causal=True) == together(narrow, is_causal=False) == 6


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


@pytest.fixture
def counted(request: pytest.FixtureRequest) -> Op:
    """An operator whose overload counts its calls."""
    name = "test_" + "".join(letter if letter.isalnum() else "_" for letter in request.node.name)
    made = op(name, has_backward=True)(double)
    made.register_fake(torch.empty_like)
    made.register_autograd(lambda ctx, grad: 2 * grad, setup_context=lambda ctx, inputs, output: None)
    return made


def calls_of_dispatcher(made: Op, x: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    """While it is called once."""
    calls = []
    overload = made.overload
    monkeypatch.setattr(made, "overload", lambda *args: (calls.append(args), overload(*args))[1])
    made(x)
    monkeypatch.undo()
    return len(calls)


@pytest.mark.parametrize("given", ["tensor", "parameter", "no_grad", "inference"])
def test_a_plain_call_goes_past_the_dispatcher(
    counted: Op, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    x = torch.ones(3, requires_grad=given == "no_grad")
    x = torch.nn.Parameter(x, requires_grad=False) if given == "parameter" else x
    within = {"no_grad": torch.no_grad, "inference": torch.inference_mode}.get(given, contextlib.nullcontext)
    with within():
        assert calls_of_dispatcher(counted, x, monkeypatch) == 0
        assert torch.equal(counted(x), counted.overload(x)) and not counted(x).requires_grad


class Subclass(torch.Tensor):
    pass


@pytest.mark.parametrize(
    "given",
    [
        torch.ones(3, requires_grad=True),
        torch.nn.Parameter(torch.ones(3)),
        torch.ones(3).as_subclass(Subclass),
        torch.conj(torch.ones(3, dtype=torch.complex64)).imag,  # whose sign is told by a bit
        FakeTensorMode().from_tensor(torch.ones(3)),
        torch.ones(3, device="meta"),
    ],
    ids=["gradient", "parameter", "subclass", "sign", "fake", "meta"],
)
def test_what_is_not_a_plain_tensor_goes_through_the_dispatcher(
    counted: Op, monkeypatch: pytest.MonkeyPatch, given: torch.Tensor
) -> None:
    assert calls_of_dispatcher(counted, given, monkeypatch) == 1
    assert calls_of_dispatcher(counted, torch.ones(3), monkeypatch) == 0


@pytest.mark.parametrize(
    "within",
    [
        lambda: FlopCounterMode(display=False),
        lambda: torch.device("cpu"),
        lambda: torch.autograd.profiler.profile(),
        forward_ad.dual_level,
    ],
    ids=["dispatch mode", "function mode", "profiler", "forward gradients"],
)
def test_a_call_that_is_watched_goes_through_the_dispatcher(
    counted: Op, monkeypatch: pytest.MonkeyPatch, within: Any
) -> None:
    x = torch.ones(3)
    with within():
        assert calls_of_dispatcher(counted, x, monkeypatch) == 1
    assert calls_of_dispatcher(counted, x, monkeypatch) == 0


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_a_call_that_is_transformed_goes_through_the_dispatcher(
    counted: Op, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, calls = torch.ones(2, 3), []
    torch.func.vmap(lambda y: (calls.append(calls_of_dispatcher(counted, y, monkeypatch)), y)[1])(x)
    assert calls == [1] and torch.func.vmap(counted)(x).tolist() == [[2.0] * 3] * 2
    with pytest.raises(RuntimeError, match="setup_context"):  # torch's word for what it does not do
        torch.func.grad(lambda y: counted(y).sum())(x)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize(
    "by",
    [
        lambda f, x: torch.func.jvp(f, (x,), (x,)),
        lambda f, x: torch.func.jacfwd(f)(x),
        lambda f, x: torch.func.jvp(torch.func.vmap(f), (x,), (x,)),
        lambda f, x: beside_itself(f, x),
        lambda f, x: beside_itself(torch.no_grad(f), x),
        lambda f, x: beside_itself(torch.compile(f, backend="eager"), x),
    ],
    ids=["jvp", "jacfwd", "vmap", "dual", "no_grad", "compiled"],
)
@pytest.mark.parametrize("has_backward", [True, False])
def test_a_forward_derivative_is_refused_rather_than_lost(
    counted: Op, by: Callable[[Op, torch.Tensor], Any], has_backward: bool
) -> None:
    made = counted if has_backward else op(counted.name.removeprefix("assay::") + "_again")(double)
    made.register_fake(torch.empty_like)
    with pytest.raises(RuntimeError, match="has no forward-mode derivative"):
        by(made, torch.ones(2, 3))


def beside_itself(f: Callable[[torch.Tensor], Any], x: torch.Tensor) -> Any:
    """With x as its own tangent."""
    with forward_ad.dual_level():
        return f(forward_ad.make_dual(x, x))


def test_what_has_no_forward_derivative_may_stand_beside_one() -> None:
    made = op("test_beside")(summed)
    x, y = torch.ones(2), torch.full((2,), 3.0)
    assert torch.func.jvp(lambda z: made([x, x]) * z, (y,), (x,))[1].tolist() == [2.0] * 2
    with pytest.raises(RuntimeError, match="test_beside has no forward-mode derivative"):
        torch.func.jvp(lambda z: made([x, z]), (y,), (x,))


def summed(parts: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(parts).sum(0)


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_traced_call_is_the_operator(counted: Op) -> None:
    x, graphs = torch.ones(3), [make_fx(counted)(torch.ones(3))]
    compiled = torch.compile(counted, backend=lambda graph, _: graphs.append(graph) or graph, fullgraph=True)
    assert compiled(x).tolist() == [2.0] * 3
    graphs.append(torch.export.export(Called(counted), (x,)).graph_module)
    assert len(graphs) == 3
    for graph in graphs:
        assert counted.overload in [node.target for node in graph.graph.nodes]
    assert counted.overload.name() in str(torch.jit.trace(lambda y: counted(y), x).graph)


class Called(torch.nn.Module):
    def __init__(self, made: Op) -> None:
        super().__init__()
        self.made = made

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.made(x)
