"""Small specifications for the tests of correctness: a function as a module, inputs as given."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from assay.correctness import Reference, Report, Yardstick, tensors_of
from assay.problems import Case, Precision

CPU = torch.device("cpu")
FLOATS = (torch.float32, torch.float16, torch.bfloat16)
Tensors = list[torch.Tensor]
LOG2E = 1.4426950408889634


class Function(torch.nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.function(*inputs)


class Given:
    """An instance of one function on given inputs."""

    case = Case("given")
    init_args: tuple[Any, ...] = ()

    def __init__(self, function: Callable[..., Any], inputs: Tensors) -> None:
        self._function, self._inputs = function, inputs

    def build_reference(self, seed: int, device: torch.device) -> torch.nn.Module:
        return Function(self._function)

    def make_inputs(self, seed: int, device: torch.device) -> Tensors:
        return self._inputs


def yardstick(spec: Callable[..., Any], inputs: Tensors, seed: int = 0, slack: float = 1.0) -> Yardstick:
    precision = Precision(slack=slack)
    return Yardstick(Reference(Given(spec, inputs), precision, CPU, 0), inputs, precision, seed)  # type: ignore[arg-type]


def judged(spec: Callable[..., Any], inputs: Tensors, got: Any, seed: int = 0) -> Report:
    """The widest check, as the judge makes it before it says wrong."""
    outputs = tensors_of(got)
    subject = yardstick(spec, inputs, seed)
    for mine, theirs in zip(outputs, subject.native, strict=True):
        assert mine.shape == theirs.shape and mine.dtype == theirs.dtype
    return subject.check(outputs)


def normal(*shape: int, seed: int, scale: float = 1.0, shift: float = 0.0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale + shift


def sequential(x: torch.Tensor) -> torch.Tensor:
    """Float32 sums over the last dimension, strictly one after the other."""
    return torch.from_numpy(np.cumsum(x.float().numpy(), axis=-1, dtype=np.float32)[..., -1].copy())


def first(x: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor], at: Any) -> torch.Tensor:
    out = x.clone()
    out[at] = change(out[at])
    return out


def online_softmax(x: torch.Tensor) -> torch.Tensor:
    largest = torch.full(x.shape[:-1], -math.inf)
    total = torch.zeros(x.shape[:-1])
    for start in range(0, x.shape[-1], 32):
        part = x[..., start : start + 32].float()
        new = torch.maximum(largest, part.amax(-1))
        total = total * (largest - new).exp() + (part - new[..., None]).exp().sum(-1)
        largest = new
    return (x.float() - largest[..., None]).exp() / total[..., None]


def product_one_by_one(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    total = np.zeros((a.shape[0], b.shape[1]), dtype=np.float32)
    for k in range(a.shape[1]):
        total += np.outer(a[:, k].float().numpy(), b[k].float().numpy())
    return torch.from_numpy(total)


def tf32(x: torch.Tensor) -> torch.Tensor:
    return (x.view(torch.int32) & ~0x1FFF).view(torch.float32)
