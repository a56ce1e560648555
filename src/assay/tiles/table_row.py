"""One row of the table: a problem and a candidate as text, for the judge."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from textwrap import indent
from typing import Any

from assay.tiles.catalog import KERNELS
from assay.tiles.kernel import Cost

PROBLEM = '''"""{label}: the reference is {reference}."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

{shared}
{setup}

class Model({base}):
    def forward(self, {names}):
{body}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []


def cost():
    return {{"bytes": {size_bytes}, "flops": {flops}}}


RULES = {{"library_calls": True}}
'''
CANDIDATE = '''"""{label}: assay.tiles."""

import torch
from torch import nn

from assay.tiles import always, {kernel}

always("tiles")

{shared}
{candidate_setup}

class ModelNew({candidate_base}):
    def forward(self, {names}):
        return {call}
'''


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table.

    Texts name no sizes outside of functions: the judge would take those for sizes that may be changed.
    """

    label: str
    kernel: str
    sizes: Mapping[str, Any]
    reference: str
    names: str
    body: str
    """The reference's answer, as statements; plain torch for float64, in which the judge wants it too."""
    inputs: str
    call: str
    shared: str = ""
    """What stands above both modules."""
    setup: str = ""
    """What stands above the reference's."""
    candidate_setup: str = ""
    """What stands above the candidate's."""
    base: str = "nn.Module"
    candidate_base: str = "nn.Module"
    bytes_times: float = 1.0
    """What the call moves, by what the catalog's kernel does."""
    flops_times: float = 1.0
    more: tuple[str, ...] = ()
    """Modules whose kernels it runs beside those of the catalog's entry."""
    runs_entry: bool = True
    """Whether it runs those at all."""

    @property
    def modules(self) -> tuple[str, ...]:
        return ((KERNELS[self.kernel].run.__module__,) if self.runs_entry else ()) + self.more

    def cost(self) -> Cost:
        one = KERNELS[self.kernel].cost(**self.sizes)
        return Cost(round(one.size_bytes * self.bytes_times), round(one.flops * self.flops_times))

    def texts(self, size_bytes: int, flops: int) -> tuple[str, str]:
        """The problem and the candidate, as files for `assay check`."""
        fields = {name: getattr(self, name) for name in self.__slots__} | {"body": indent(self.body, " " * 8)}
        problem = PROBLEM.format(**fields, size_bytes=size_bytes, flops=flops)
        return problem, CANDIDATE.format(**fields)


@dataclass(frozen=True, slots=True)
class Missing:
    """A line that cannot be measured."""

    label: str
    why: str


def half(*shape: int) -> str:
    return f"torch.randn({', '.join(map(str, shape))}, dtype=torch.bfloat16)"


def needs(module: str, rows: Iterable[Row]) -> list[Row | Missing]:
    """Rows whose reference is a library that may not be there."""
    if importlib.util.find_spec(module) is not None:
        return list(rows)
    return [Missing(row.label, f"the reference, {module}, is not installed") for row in rows]
