"""Fill floating inputs from a named distribution, on their device, in blocks of rows.

A row is the last dimension; the elements of a 1-D tensor are cut into short runs. Blocks keep the extra
memory near one block, so that multi-GiB inputs can be redrawn where they lie.

Not covered: integer, boolean, complex and 8-bit inputs keep what the problem drew, and no distribution keeps
structure between elements (triangular, symmetric, normalised): see `assay.problems.derive`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from assay.problems.problem import DISTRIBUTIONS
from assay.records.errors import UserError

_RUN_OF_1D = 64
_BLOCK_ELEMENTS = {"cuda": 1 << 24, "cpu": 1 << 20}
_TAIL_LIMIT = 1000.0
_ROWS_TO_KEEP_ANY = 8
_PLACES_OF_SPECIALS = 256

_Draw = Callable[[int, int, torch.Tensor, torch.Generator], torch.Tensor]


def redraw(
    tensor: torch.Tensor, distribution: str, generator: torch.Generator, *, behind_prefix: bool = False
) -> None:
    """Overwrite `tensor` in place with a draw from `distribution`; "nominal" leaves it alone.

    Args:
        behind_prefix: some first rows stay as they are, so that no prefix tells that the rest is unusual.
    """
    if distribution not in DISTRIBUTIONS:
        raise UserError(f"unknown distribution '{distribution}': use one of {', '.join(DISTRIBUTIONS)}")
    if distribution == "nominal" or tensor.device.type == "meta" or tensor.numel() == 0:
        return
    if distribution == "special":
        _strew(tensor.view(-1), (math.nan, math.inf, -math.inf, -0.0), generator)
        return
    draw = _DRAWS[distribution]
    row_length = tensor.shape[-1] if tensor.dim() >= 2 else min(max(tensor.numel(), 1), _RUN_OF_1D)
    block_limit = _BLOCK_ELEMENTS.get(tensor.device.type, 1 << 20)
    block = max(1, block_limit // row_length) * row_length
    flat = tensor.view(-1)
    rows = flat.numel() // row_length
    if behind_prefix and rows >= _ROWS_TO_KEEP_ANY:
        kept = 1 + int(torch.randint(rows // 4, (), generator=generator, device=generator.device))
        flat = flat[kept * row_length :]
    # Half precision is drawn in float32: exp and powers would round twice otherwise.
    like = torch.empty(0, device=tensor.device, dtype=torch.promote_types(tensor.dtype, torch.float32))
    for start in range(0, flat.numel(), block):
        part = flat[start : start + block]
        row_count = -(-part.numel() // row_length)
        part.copy_(draw(row_count, row_length, like, generator).view(-1)[: part.numel()])


def _strew(flat: torch.Tensor, values: tuple[float, ...], generator: torch.Generator) -> None:
    """Each value in a few places, whatever else is there; only what asks for it by name is drawn so."""
    count = max(1, flat.numel() // _PLACES_OF_SPECIALS)
    for value in values:
        flat[torch.randint(flat.numel(), (count,), generator=generator, device=flat.device)] = value


def _normal(rows: int, columns: int, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return like.new_empty(rows, columns).normal_(generator=generator)


def _uniform(rows: int, columns: int, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return like.new_empty(rows, columns).uniform_(generator=generator)


def _row_scaled(rows: int, columns: int, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    exponents = like.new_empty(rows, 1).random_(-8, 9, generator=generator)
    _force(exponents, (8.0, -8.0), generator)
    return _normal(rows, columns, like, generator).mul_(torch.exp2(exponents))


def _positive(rows: int, columns: int, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return _row_scaled(rows, columns, like, generator).abs_()


def _force(choices: torch.Tensor, values: tuple[float, ...], generator: torch.Generator) -> None:
    """Each value is chosen by some row, because chance leaves out the rare, but never by the first: a prefix
    tells nothing of what follows. Zero stands for the ordinary choice."""
    rows = choices.shape[0]
    if rows <= len(values):
        return
    choices[0] = 0.0
    order = choices.new_empty(rows - 1, dtype=torch.float32).uniform_(generator=generator).argsort() + 1
    for row, value in zip(order[: len(values)], values, strict=True):
        choices[row] = value


def _shifted(rows: int, columns: int, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    offsets = like.new_empty(rows, 1).uniform_(-100.0, 100.0, generator=generator)
    _force(offsets, (100.0, -100.0), generator)
    return _normal(rows, columns, like, generator).add_(offsets)


def _sparse(rows: int, columns: int, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    keep = _uniform(rows, columns, like, generator) < 0.1
    return _normal(rows, columns, like, generator).mul_(keep)


def _lognormal(rows: int, columns: int, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return _normal(rows, columns, like, generator).exp_()


def _heavy_tailed(rows: int, columns: int, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    # Pareto with index 1.5 and a random sign; clamped so that float16 can hold it.
    uniform = like.new_empty(rows, columns).uniform_(-1.0, 1.0, generator=generator)
    size = uniform.abs().clamp_(min=1e-9).pow_(-1.0 / 1.5).clamp_(max=_TAIL_LIMIT)
    return size.copysign_(uniform)


def _mixture(rows: int, columns: int, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Each row from its own kind, so that no prefix and no maximum tells the rest."""
    kinds = (_normal, _uniform, _lognormal, _sparse, _heavy_tailed)
    kind = like.new_empty(rows, 1).random_(0, len(kinds), generator=generator)
    _force(kind, (float(len(kinds) - 1),), generator)
    values = _normal(rows, columns, like, generator)
    for number, draw in enumerate(kinds[1:], start=1):
        values = torch.where(kind == number, draw(rows, columns, like, generator), values)
    return values


_DRAWS: dict[str, _Draw] = {
    "normal": _normal,
    "row_scaled": _row_scaled,
    "mixture": _mixture,
    "shifted": _shifted,
    "sparse": _sparse,
    "positive": _positive,
}
