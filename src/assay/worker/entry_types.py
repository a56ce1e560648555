"""What every loaded candidate has in common, whatever its form: construct, load state, call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from assay.records.errors import CandidateFailure

CPU = torch.device("cpu")


@dataclass(frozen=True, slots=True)
class StateReport:
    """Where the given state went."""

    loaded: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """In the module, but not given: these keep what the constructor drew."""
    unexpected: tuple[str, ...] = ()
    """Given, but the candidate has no place for them."""
    mismatched: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    """Name -> (shape in the module, shape given); not loaded."""


@dataclass(frozen=True, slots=True)
class Construction:
    """How a candidate is to be constructed: as the specification is."""

    args: list[Any] = field(default_factory=list)
    kwargs: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    device: torch.device = CPU
    dtype: torch.dtype | None = None
    mode: str = "constructed"
    """"constructed", "train" or "eval"."""


class Entry(Protocol):
    """A loaded candidate."""

    def construct(self, how: Construction) -> None: ...

    def load_state(self, state: dict[str, torch.Tensor]) -> StateReport: ...

    def kept(self, names: list[str]) -> list[torch.Tensor]:
        """Tensors of its state, as calls have left them."""
        ...

    def __call__(self, inputs: list[Any]) -> Any: ...


def named_state(state: Mapping[str, torch.Tensor], names: list[str]) -> list[torch.Tensor]:
    """Those tensors; whoever lacks one cannot have kept it."""
    if missing := [name for name in names if name not in state]:
        text = f"keeps no {', '.join(missing)}, which are part of the answer"
        raise CandidateFailure("wrong", "state_not_kept", text)
    return [state[name] for name in names]


def flat_name(name: str) -> str:
    """How a function's parameter for it is called."""
    return name.replace(".", "_")
