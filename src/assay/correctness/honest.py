"""Honest variants of a specification: what right implementations may differ by.

Two dispatch modes wrap an unchanged reference module:
- `Reordered` runs at the contract's precision but adds in another order (sequential sums, split products);
- `RoundingNoise` runs in float64 and disturbs every rounded result by a few units in the last place of the
  contract's precision, which shows how errors grow through this function on this input, and where a
  rounding operator (quantise, argmax, top-k) sits on a tie.

Not covered: fused backward passes, sparse and quantised tensors (they run undisturbed).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from assay.correctness.modes import DispatchMode

aten = torch.ops.aten

# Results that are exact by definition: moving, selecting or comparing values rounds nothing.
_EXACT = frozenset({
    "view", "reshape", "_unsafe_view", "expand", "permute", "transpose", "t", "clone", "copy", "_to_copy",
    "contiguous", "slice", "select", "index", "gather", "index_select", "cat", "stack", "split", "unbind",
    "squeeze", "unsqueeze", "flip", "roll", "repeat", "constant_pad_nd", "pad", "where", "masked_fill",
    "relu", "neg", "abs", "max", "min", "amax", "amin", "maximum", "minimum", "sort", "topk", "argmax",
    "argmin", "eq", "ne", "lt", "le", "gt", "ge", "sign", "floor", "ceil", "round", "trunc", "clamp",
    "clamp_min", "clamp_max", "hardtanh", "threshold", "max_pool2d_with_indices", "max_pool3d_with_indices",
    "as_strided", "zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "empty", "empty_like",
    "arange", "scalar_tensor", "lift_fresh", "detach", "alias", "tril", "triu", "diagonal", "embedding",
    "one_hot", "scatter", "index_put", "new_zeros", "new_ones", "new_full", "new_empty", "rand", "randn",
    "bernoulli", "native_dropout", "unfold", "im2col",
})  # fmt: skip
# Usually computed from numbers near one, 2 * sigmoid(2x) - 1 or exp(x) - 1, say: an honest error is absolute.
_NEAR_ONE = frozenset({
    "tanh", "erf", "gelu", "expm1", "log1p", "softplus", "mish", "elu", "celu", "selu", "log_sigmoid_forward",
})  # fmt: skip
_CHAIN_STEPS = 256
_LONG_CHAIN_STEPS = 2048
_BLOCK_ELEMENTS = 1 << 24


def _name(func: Any) -> str:
    return func._schema.name.split("::")[-1].removesuffix("_")


class KeptWide(DispatchMode):
    """Keep a float64 run in float64 where the module says `.float()`, meaning "not less than float32"."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _name(func) == "_to_copy" and kwargs.get("dtype") == torch.float32:
            kwargs = {**kwargs, "dtype": torch.float64}
        return func(*args, **kwargs)


class RoundingNoise(DispatchMode):
    """Disturb each rounded float64 result by a uniform relative error of up to `amplitude`.

    A negative amplitude gives the mirror image of the same noise: of two such runs one crosses any threshold
    that lies within the error of a result, which two independent runs do only half of the time.
    """

    def __init__(self, amplitude: float, seed: int, device: torch.device, *, full_size: bool = False) -> None:
        """Args:
        full_size: every error has the full amplitude, with a random sign. A small draw would hide the one
            error that a whole row shares; but equal sizes can cancel, which hides near-ties.
        """
        super().__init__()
        self._full_size = full_size
        self._amplitude = amplitude
        self._generator = torch.Generator(device=device).manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if _name(func) in _EXACT or func.is_view:
            return out
        for tensor in out if isinstance(out, (tuple, list)) else (out,):
            self.disturb(tensor, self._amplitude, absolute=_name(func) in _NEAR_ONE)
        return out

    def disturb(self, tensor: Any, amplitude: float, *, absolute: bool = False) -> None:
        """In place; integers, lower precisions and what is not finite are left alone.

        Args:
            absolute: disturb as if the result were at least one in size.
        """
        if not isinstance(tensor, torch.Tensor) or tensor.dtype != torch.float64 or tensor.numel() == 0:
            return
        # In pieces: noise for gigabytes would need gigabytes.
        pieces = tensor.view(-1).split(_BLOCK_ELEMENTS) if tensor.is_contiguous() else (tensor,)
        for piece in pieces:
            noise = torch.empty_like(piece)
            noise.uniform_(-1.0, 1.0, generator=self._generator)
            if self._full_size:
                noise.sign_()
            # An infinity (a mask, say) plus minus itself would be NaN.
            size = piece.abs().clamp_(min=1.0) if absolute else piece
            piece.add_(noise.mul_(size).mul_(amplitude).nan_to_num_(0.0, 0.0, 0.0))


class Reordered(DispatchMode):
    """Run at native precision with sums in another order than torch's own; other operators as they are."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        recipe = _RECIPES.get(f"{_name(func)}.{func._overloadname}")
        if recipe is None or not _is_real(args[0]):
            return func(*args, **kwargs)
        return recipe(*args, **kwargs)


def _is_real(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.dtype in (torch.float32, torch.float16, torch.bfloat16)


def _sum(x: torch.Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> torch.Tensor:
    """Sum over dimensions, one element after the other on the CPU, in a long chain on the GPU."""
    chosen = [dim] if isinstance(dim, int) else list(dim or range(x.dim()))
    dims = [d % x.dim() for d in chosen]
    kept = [d for d in range(x.dim()) if d not in dims]
    flat = x.float().permute(*kept, *dims).reshape(*[x.shape[d] for d in kept], -1)
    total = _running_sum(flat).to(dtype or x.dtype)
    return total.reshape([1 if d in dims else n for d, n in enumerate(x.shape)]) if keepdim else total


def _running_sum(flat: torch.Tensor) -> torch.Tensor:
    if flat.shape[-1] == 0:
        return flat.new_zeros(flat.shape[:-1])
    if flat.device.type != "cpu":
        total = torch.zeros_like(flat[..., 0])
        for part in flat.tensor_split(min(flat.shape[-1], _LONG_CHAIN_STEPS), dim=-1):
            total = total + part.sum(-1)
        return total
    # torch's CPU cumsum accumulates in double; numpy's stays in the dtype it is given.
    rows = flat.reshape(-1, flat.shape[-1]).numpy()
    sums = np.cumsum(rows, axis=-1, dtype=rows.dtype)[:, -1]
    return torch.from_numpy(np.ascontiguousarray(sums)).reshape(flat.shape[:-1])


def _sum_all(x: torch.Tensor, *, dtype: Any = None) -> torch.Tensor:
    return _sum(x, None, dtype=dtype)


def _mean(x: torch.Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> torch.Tensor:
    total = _sum(x.float(), dim, keepdim)
    return (total * (total.numel() / max(x.numel(), 1))).to(dtype or x.dtype)


def _mean_all(x: torch.Tensor, *, dtype: Any = None) -> torch.Tensor:
    return _mean(x, None, dtype=dtype)


def _softmax(x: torch.Tensor, dim: int, _half_to_float: bool) -> torch.Tensor:
    powers = (x.float() - x.float().amax(dim, keepdim=True)).exp()
    return (powers / _sum(powers, dim, True)).to(x.dtype)


def _log_softmax(x: torch.Tensor, dim: int, _half_to_float: bool) -> torch.Tensor:
    shifted = x.float() - x.float().amax(dim, keepdim=True)
    return (shifted - _sum(shifted.exp(), dim, True).log()).to(x.dtype)


def _layer_norm(x: torch.Tensor, shape: Any, weight: Any, bias: Any, eps: float) -> tuple[torch.Tensor, ...]:
    dims = list(range(x.dim() - len(shape), x.dim()))
    mean = _mean(x.float(), dims, True)
    centred = x.float() - mean
    scale = (_mean(centred * centred, dims, True) + eps).rsqrt()
    out = centred * scale
    out = out if weight is None else out * weight.float()
    out = out if bias is None else out + bias.float()
    return out.to(x.dtype), mean, scale


def _cumsum(x: torch.Tensor, dim: int, *, dtype: Any = None) -> torch.Tensor:
    if x.device.type != "cpu" or x.dim() == 0:
        return aten.cumsum.default(x, dim, dtype=dtype)
    sums = np.cumsum(x.float().numpy(), axis=dim, dtype=np.float32)
    return torch.from_numpy(sums).to(dtype or x.dtype)


def _variance(
    x: torch.Tensor, dim: Any = None, *, correction: Any = None, keepdim: bool = False
) -> torch.Tensor:
    """In two passes, each summed in sequence."""
    centred = x.float() - _mean(x.float(), dim, True)
    total = _sum(centred * centred, dim, keepdim)
    count = x.numel() / max(total.numel(), 1)
    return (total / max(count - (1 if correction is None else correction), 0)).to(x.dtype)


def _deviation(x: torch.Tensor, dim: Any = None, **options: Any) -> torch.Tensor:
    return _variance(x, dim, **options).sqrt()


def _variance_and_mean(x: torch.Tensor, dim: Any = None, **options: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return _variance(x, dim, **options), _mean(x, dim, bool(options.get("keepdim", False)))


def _vector_norm(x: torch.Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, **kwargs: Any) -> Any:
    if ord != 2:
        return aten.linalg_vector_norm.default(x, ord, dim, keepdim, **kwargs)
    return _sum(x.float() * x.float(), dim, keepdim).sqrt().to(x.dtype)


def _product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """A matrix product as a chain of short ones, accumulated in float32."""
    depth = left.shape[-1]
    step = max(8, -(-depth // _CHAIN_STEPS))
    total = torch.zeros((*left.shape[:-1], right.shape[-1]), dtype=torch.float32, device=left.device)
    for start in range(0, depth, step):
        a = left[..., start : start + step].float()
        b = right[..., start : start + step, :].float()
        total = total + a @ b
    return total.to(left.dtype)


def _product_and_add(
    bias: torch.Tensor, left: torch.Tensor, right: torch.Tensor, *, beta: float = 1, alpha: float = 1
) -> torch.Tensor:
    return beta * bias + alpha * _product(left, right)


_RECIPES: dict[str, Any] = {
    "sum.default": _sum_all,
    "sum.dim_IntList": _sum,
    "mean.default": _mean_all,
    "mean.dim": _mean,
    "_softmax.default": _softmax,
    "_log_softmax.default": _log_softmax,
    "native_layer_norm.default": _layer_norm,
    "linalg_vector_norm.default": _vector_norm,
    "cumsum.default": _cumsum,
    "var.correction": _variance,
    "std.correction": _deviation,
    "var_mean.correction": _variance_and_mean,
    "mm.default": _product,
    "bmm.default": _product,
    "addmm.default": _product_and_add,
    "baddbmm.default": _product_and_add,
}
