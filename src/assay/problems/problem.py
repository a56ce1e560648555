"""What a problem is: a PyTorch module as specification, oracle and baseline at once.

A `Problem` is source text plus the way to read it. A `Case` says which sizes, layout and distribution to
use. An `Instance` is a problem bound to a case: it builds the reference module and draws inputs.
Problem code is trusted: it runs in the judge's process. Candidates never see it.

Not covered: what a candidate may do with the inputs (see `assay.correctness`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from assay.records.about import About
from assay.records.rules import Rules

LAYOUTS = ("given", "strided", "offset", "transposed", "sliced", "mixed")
DISTRIBUTIONS = ("nominal", "normal", "row_scaled", "mixture", "shifted", "sparse", "positive", "special")


@dataclass(frozen=True, slots=True)
class Precision:
    """The precision contract: what an honest kernel may do with the numbers."""

    allow_tf32: bool = False
    """Matrix products and convolutions of float32 may round their inputs to TF32."""
    slack: float = 1.0
    """Multiplies the calibrated tolerance; a problem that needs more than 1 says why in its source."""
    deterministic: bool = False
    """Two calls on one input must agree bit for bit."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The least work the specification demands for one call."""

    bytes: int
    flops: int


@dataclass(frozen=True, slots=True)
class Case:
    """One concrete input recipe."""

    name: str
    sizes: Mapping[str, Any] = field(default_factory=dict)
    """Overrides of the problem's module-level constants (or a KernelBot case's arguments)."""
    dtype: str | None = None
    """Floating-point dtype for inputs and parameters, e.g. "float16"; None keeps what the problem makes."""
    layout: str = "given"
    distribution: str = "nominal"
    kept: tuple[int, ...] = ()
    """Inputs, counted through all nests, that stay as the problem draws them whatever the distribution."""
    one_signed: tuple[int, ...] = ()
    """Inputs, counted likewise, that keep the sign that the problem draws all of their numbers with."""
    hidden: bool = False
    """Not shown in templates or public listings."""
    derived: bool = False
    """Invented by the judge, not declared by the problem: a candidate may refuse it with a clean error."""
    mode: str = "constructed"
    """"constructed", "train" or "eval": which mode the module is put in before it is called."""


class Instance(Protocol):
    """A problem bound to one case."""

    case: Case
    init_args: list[Any]
    init_kwargs: dict[str, Any]

    def build_reference(self, seed: int, device: torch.device) -> torch.nn.Module:
        """Seed torch, construct on the CPU as candidates do, move to the device, apply dtype and mode."""
        ...

    def make_inputs(self, seed: int, device: torch.device) -> list[Any]:
        """Positional arguments of one call, made on the device: tensors, scalars, or nests of them.

        Layout is *not* applied here (the worker lays inputs out); dtype and distribution are.
        """
        ...

    def task_check(self) -> Callable[[list[Any], Any], str | None] | None:
        """The task's own check, or None: called as check(inputs, outputs), returns what is wrong."""
        ...

    def cost(self) -> Cost | None: ...


@dataclass(frozen=True, slots=True)
class Specification:
    """A specification as text, to be run somewhere else: baselines are made of it."""

    source: str
    """Defines Model, or ref_kernel where the problem is a task."""
    support_files: Mapping[str, str]


class Problem(Protocol):
    """A specification that can be bound to cases."""

    name: str
    kind: str
    """"native", "kernelbench" or "kernelbot"."""
    path: str
    digest: str
    """sha256 over everything that defines the problem."""
    precision: Precision
    rules: Rules
    """What a candidate may do, precision apart."""
    about: About
    argument_names: tuple[str, ...]
    """Parameter names of forward(), for error messages and for bare kernels that name their inputs."""
    entry: str
    """What a candidate must define: "ModelNew" or "custom_kernel"."""
    support_files: Mapping[str, str]
    """Modules a candidate may import by name (KernelBot's task.py, utils.py); never the reference."""
    files: Mapping[str, str]
    """Everything that defines the problem, by absolute path."""

    def nominal(self) -> Case:
        """The size the problem is scored at."""
        ...

    def declared_cases(self) -> tuple[Case, ...]:
        """Every case the problem names itself, the nominal one first."""
        ...

    def derived_cases(self, seed: int) -> tuple[Case, ...]:
        """Hidden cases invented from the problem's structure, chosen by the seed; empty if none are legal."""
        ...

    def specification(self) -> Specification: ...

    def bind(self, case: Case) -> Instance: ...
