"""Operators that add many numbers up, taken apart into their sums and products.

How a sum is made is left to an `Arithmetic`: in float32 one element after the other, or in float64 with the
error that such a chain would have made (honest.py). Fused operators (softmax, layer norm) share one sum among
a whole row, so an error within them is no error of single elements. Behind a product, softmax's backward pass
is attention's, and fused kernels make the mean of a row another way.

Not covered: batch norm, fused attention, other backward passes; they are run as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import torch

aten = torch.ops.aten


class Arithmetic(Protocol):
    """How numbers are added."""

    def wide(self, x: torch.Tensor) -> torch.Tensor:
        """The precision sums are made in."""

    def step(self, x: torch.Tensor) -> torch.Tensor:
        """A result in between, rounded."""

    def total(self, x: torch.Tensor) -> torch.Tensor:
        """Sum over the last dimension."""

    def running(self, x: torch.Tensor) -> torch.Tensor:
        """Running sum over the last dimension."""

    def product(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """Matrix product."""

    def linear(self, apply: Callable[..., Any], x: torch.Tensor, weight: torch.Tensor, depth: int) -> Any:
        """Any other sum of products, `depth` of them for each result."""

    def transform(self, apply: Callable[[torch.Tensor], Any], x: torch.Tensor, dims: list[int]) -> Any:
        """A Fourier transform over `dims`."""

    def factors(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
        """The matrices whose product `x` is, rows in the same order; None where it is none or nobody asks."""

    def stored(self, x: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
        """What a fused kernel rounds as the contract does, or makes of that: off by a share of `size`."""


def name_of(func: Any) -> str:
    return func._schema.name.split("::")[-1].removesuffix("_")


def recipe_of(func: Any) -> Callable[..., Any] | None:
    return _RECIPES.get(f"{name_of(func)}.{func._overloadname}")


def _sum(
    how: Arithmetic, x: torch.Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> torch.Tensor:
    chosen = [dim] if isinstance(dim, int) else list(dim or range(x.dim()))
    dims = [d % x.dim() for d in chosen]
    kept = [d for d in range(x.dim()) if d not in dims]
    flat = how.wide(x).permute(*kept, *dims).reshape(*[x.shape[d] for d in kept], -1)
    total = how.total(flat).to(dtype or x.dtype)
    return total.reshape([1 if d in dims else n for d, n in enumerate(x.shape)]) if keepdim else total


def _sum_all(how: Arithmetic, x: torch.Tensor, *, dtype: Any = None) -> torch.Tensor:
    return _sum(how, x, None, dtype=dtype)


def _mean(
    how: Arithmetic, x: torch.Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> torch.Tensor:
    total = _sum(how, how.wide(x), dim, keepdim)
    return how.step(total * (total.numel() / max(x.numel(), 1))).to(dtype or x.dtype)


def _mean_all(how: Arithmetic, x: torch.Tensor, *, dtype: Any = None) -> torch.Tensor:
    return _mean(how, x, None, dtype=dtype)


def _shifted(how: Arithmetic, x: torch.Tensor, dim: Any) -> torch.Tensor:
    wide = how.wide(x)
    return how.step(wide - wide.amax(dim, keepdim=True))


def _softmax(how: Arithmetic, x: torch.Tensor, dim: int, _half_to_float: bool) -> torch.Tensor:
    powers = how.step(_shifted(how, x, dim).exp())
    return (powers / _sum(how, powers, dim, True)).to(x.dtype)


def _softmax_backward(
    how: Arithmetic, slopes: torch.Tensor, shares: torch.Tensor, dim: int, dtype: torch.dtype
) -> torch.Tensor:
    slopes, shares, given = how.wide(slopes), how.wide(shares), slopes
    mean = _sum(how, how.step(slopes * shares), dim, True)
    factors = how.factors(given) if dim % given.dim() == given.dim() - 1 else None
    if factors is None:
        return (shares * how.step(slopes - mean)).to(dtype)
    mean = how.stored(mean, _size_by_outputs(mean, slopes, shares, *factors))
    made = shares * how.step(slopes - mean)
    return how.stored(made, made.clone()).to(dtype)


def _size_by_outputs(
    mean: torch.Tensor,
    slopes: torch.Tensor,
    shares: torch.Tensor,
    incoming: torch.Tensor,
    values: torch.Tensor,
) -> torch.Tensor:
    """What the error of a row's mean slope is a share of, where it is made of attention's outputs.

    Fused kernels have outputs and the gradient that comes in, and multiply them. The outputs were rounded, as
    were the shares that they were made of: errors that the slopes do not have, and that do not cancel against
    theirs. Each kind is as large as all its terms together, or as their sum where all are off alike.
    """
    outputs = shares.reshape(*incoming.shape[:-1], -1) @ values.mT
    by_outputs = torch.linalg.vector_norm(incoming * outputs, dim=-1).reshape(mean.shape)
    by_shares = torch.linalg.vector_norm(slopes * shares, dim=-1, keepdim=True)
    sizes = (torch.maximum(size, mean.abs()) for size in (by_outputs, by_shares))
    return torch.hypot(*sizes).copysign(mean)


def _log_softmax(how: Arithmetic, x: torch.Tensor, dim: int, _half_to_float: bool) -> torch.Tensor:
    shifted = _shifted(how, x, dim)
    powers = how.step(shifted.exp())
    return (shifted - how.step(_sum(how, powers, dim, True).log())).to(x.dtype)


def _log_sum_exp(how: Arithmetic, x: torch.Tensor, dim: Any, keepdim: bool = False) -> torch.Tensor:
    wide = how.wide(x)
    most = wide.amax(dim, keepdim=True)
    most = torch.where(torch.isfinite(most), most, 0.0)
    powers = how.step(how.step(wide - most).exp())
    sums = how.step(_sum(how, powers, dim, True).log()) + most
    return (sums if keepdim else sums.reshape(wide.amax(dim).shape)).to(x.dtype)


def _normalised(how: Arithmetic, x: torch.Tensor, dims: list[int], eps: float) -> tuple[torch.Tensor, ...]:
    """Centred and scaled over `dims`, in two passes, each summed on its own."""
    mean = _mean(how, how.wide(x), dims, True)
    centred = how.step(how.wide(x) - mean)
    scale = how.step((_mean(how, how.step(centred * centred), dims, True) + eps).rsqrt())
    return how.step(centred * scale), mean, scale


def _layer_norm(
    how: Arithmetic, x: torch.Tensor, shape: Any, weight: Any, bias: Any, eps: float
) -> tuple[torch.Tensor, ...]:
    out, mean, scale = _normalised(how, x, list(range(x.dim() - len(shape), x.dim())), eps)
    out = out if weight is None else out * how.wide(weight)
    out = out if bias is None else out + how.wide(bias)
    return out.to(x.dtype), mean, scale


def _group_norm(
    how: Arithmetic, x: torch.Tensor, weight: Any, bias: Any, n: int, c: int, hw: int, groups: int, eps: float
) -> tuple[torch.Tensor, ...]:
    out, mean, scale = _normalised(how, x.reshape(n, groups, -1), [2], eps)
    by_channel = [1, c, *[1] * (x.dim() - 2)]
    out = out.reshape(x.shape)
    out = out if weight is None else out * how.wide(weight).reshape(by_channel)
    out = out if bias is None else out + how.wide(bias).reshape(by_channel)
    return out.to(x.dtype), mean.reshape(n, groups), scale.reshape(n, groups)


def _cumsum(how: Arithmetic, x: torch.Tensor, dim: int, *, dtype: Any = None) -> torch.Tensor:
    if x.dim() == 0 or x.numel() == 0:
        return aten.cumsum.default(x, dim, dtype=dtype)
    sums = how.running(how.wide(x).movedim(dim, -1))
    return sums.movedim(-1, dim).contiguous().to(dtype or x.dtype)


def _variance(
    how: Arithmetic, x: torch.Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> torch.Tensor:
    """In two passes, each summed on its own."""
    centred = how.step(how.wide(x) - _mean(how, how.wide(x), dim, True))
    total = _sum(how, how.step(centred * centred), dim, keepdim)
    count = x.numel() / max(total.numel(), 1)
    return (total / max(count - (1 if correction is None else correction), 0)).to(x.dtype)


def _deviation(how: Arithmetic, x: torch.Tensor, dim: Any = None, **options: Any) -> torch.Tensor:
    return _variance(how, x, dim, **options).sqrt()


def _variance_and_mean(
    how: Arithmetic, x: torch.Tensor, dim: Any = None, **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    return _variance(how, x, dim, **options), _mean(how, x, dim, bool(options.get("keepdim", False)))


def _vector_norm(
    how: Arithmetic, x: torch.Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, **kwargs: Any
) -> Any:
    if ord != 2:
        return aten.linalg_vector_norm.default(x, ord, dim, keepdim, **kwargs)
    return _sum(how, how.step(how.wide(x) * how.wide(x)), dim, keepdim).sqrt().to(x.dtype)


def _product(how: Arithmetic, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return how.product(left, right).to(left.dtype)


def _product_and_add(
    how: Arithmetic,
    bias: torch.Tensor,
    left: torch.Tensor,
    right: torch.Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> torch.Tensor:
    return beta * bias + alpha * _product(how, left, right)


def _matrix_vector(how: Arithmetic, matrix: torch.Tensor, vector: torch.Tensor) -> torch.Tensor:
    return _product(how, matrix, vector.unsqueeze(-1)).squeeze(-1)


def _dot(how: Arithmetic, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return _sum(how, how.step(how.wide(left) * how.wide(right))).to(left.dtype)


def _convolution(how: Arithmetic, x: torch.Tensor, weight: torch.Tensor, bias: Any, *options: Any) -> Any:
    def apply(x: torch.Tensor, weight: torch.Tensor) -> Any:
        return aten.convolution.default(x, weight, None, *options)

    out = how.linear(apply, x, weight, math.prod(weight.shape[1:]))
    return out if bias is None else out + bias.reshape(-1, *[1] * (out.dim() - 2))


def _to_spectrum(how: Arithmetic, x: torch.Tensor, dim: list[int], *options: Any) -> Any:
    return how.transform(lambda x: aten._fft_r2c.default(x, dim, *options), x, list(dim))


def _through_spectrum(how: Arithmetic, x: torch.Tensor, dim: list[int], *options: Any) -> Any:
    return how.transform(lambda x: aten._fft_c2c.default(x, dim, *options), x, list(dim))


def _from_spectrum(how: Arithmetic, x: torch.Tensor, dim: list[int], *options: Any) -> Any:
    return how.transform(lambda x: aten._fft_c2r.default(x, dim, *options), x, list(dim))


_RECIPES: dict[str, Callable[..., Any]] = {
    "sum.default": _sum_all,
    "sum.dim_IntList": _sum,
    "mean.default": _mean_all,
    "mean.dim": _mean,
    "_softmax.default": _softmax,
    "_softmax_backward_data.default": _softmax_backward,
    "_log_softmax.default": _log_softmax,
    "logsumexp.default": _log_sum_exp,
    "native_layer_norm.default": _layer_norm,
    "native_group_norm.default": _group_norm,
    "linalg_vector_norm.default": _vector_norm,
    "cumsum.default": _cumsum,
    "var.correction": _variance,
    "std.correction": _deviation,
    "var_mean.correction": _variance_and_mean,
    "mm.default": _product,
    "bmm.default": _product,
    "mv.default": _matrix_vector,
    "dot.default": _dot,
    "addmm.default": _product_and_add,
    "baddbmm.default": _product_and_add,
    "convolution.default": _convolution,
    "_fft_r2c.default": _to_spectrum,
    "_fft_c2c.default": _through_spectrum,
    "_fft_c2r.default": _from_spectrum,
}
