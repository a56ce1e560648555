"""Honest variants of a specification: what right implementations may differ by.

Two dispatch modes wrap an unchanged reference module:
- `Reordered` runs at the contract's precision but adds in another order (sequential sums, split products);
- `RoundingNoise` runs in float64 and disturbs every rounded result by a few units in the last place of the
  contract's precision, and every sum by what adding it up in float32 in the worst order may cost. It shows
  how errors grow through this function on this input, and where a rounding operator (quantise, argmax,
  top-k) sits on a tie. One reordered run can be right by luck; this one is as wrong as may be.

Not covered: fused backward passes but softmax's, sparse and quantised tensors (they run undisturbed).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from assay.correctness.modes import DispatchMode
from assay.correctness.recipes import name_of, recipe_of

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
    "sigmoid", "silu", "sinh", "asinh", "atanh",
})  # fmt: skip
_NEAR_ONE_ERROR = 16 * 2.0**-23
"""In any precision: such numbers are float32 at least."""
_CHAIN_STEPS = 256
_LONG_CHAIN_STEPS = 2048
_CHAIN_LONGEST, _CHAIN_COUNTED = 1 << 16, 1 << 14
"""Nobody adds up more in one chain, and the error is not said to grow as long: what is longer is shared among
threads. Sums of millions would lend a tolerance in which a sample passes for the whole."""
_BLOCK_ELEMENTS = 1 << 22
_LEAST_FACTOR = 2 * torch.finfo(torch.float32).smallest_normal
"""What is smaller is zero in many kernels, and what they multiply it by may be large. Twice, because fast
exponentials end a little early: torch's attention on a CPU at 1.4 times the smallest normal number."""


class KeptWide(DispatchMode):
    """Keep a float64 run in float64 where the module names a dtype.

    float32 means "not less than float32". Half precisions mean that a result is rounded there; what follows
    is exact again. The largest number there is, with which scores are masked, stays that of the contract's
    `dtype`.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        largest = torch.finfo(torch.float64).max
        self._ends = {sign * largest: sign * torch.finfo(dtype).max for sign in (1, -1)}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        args = tuple(self._ends.get(arg, arg) if isinstance(arg, float) else arg for arg in args)
        dtype = kwargs.get("dtype")
        if dtype in (torch.float16, torch.bfloat16):
            return func(*args, **kwargs).double()
        return func(*args, **({**kwargs, "dtype": torch.float64} if dtype == torch.float32 else kwargs))


class Roundings(DispatchMode):
    """Note, in the order they happen, which operators round their results, and to what unit.

    A specification that takes bfloat16 and says `.float()` rounds to float32 from there on.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, float]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        units = [torch.finfo(t.dtype).eps for t in _tensors(out) if t.is_floating_point()]
        if units and _rounds(func):
            self.seen.append((name_of(func), max(units)))
        elif units and name_of(func) == "_to_copy" and self.seen:
            # float64 runs do not show it where the dtype is that of an input.
            name, before = self.seen[-1]
            self.seen[-1] = (name, max(before, *units))
        return out


class RoundingNoise(DispatchMode):
    """Disturb each rounded float64 result by a uniform relative error of up to `amplitude`.

    A negative amplitude gives the mirror image of the same noise: of two such runs one crosses any threshold
    that lies within the error of a result, which two independent runs do only half of the time.
    """

    def __init__(
        self,
        amplitude: float,
        seed: int,
        device: torch.device,
        *,
        native: Sequence[tuple[str, float]] = (),
        chain_amplitude: float = 0.0,
        full_size: bool = False,
        stored_amplitude: float = 0.0,
        alike: bool = False,
    ) -> None:
        """Args:
        native: operators in the order they are run, each with an amplitude of its own; as soon as another
            one is met, `amplitude` is that of all.
        chain_amplitude: the error of one addition, of which a sum of n has the square root of n, and what a
            fused operator's steps are off by, whatever its result is rounded to.
        full_size: every error has about the full amplitude, with a random sign. A small draw would hide the
            one error that a whole row shares, and equal ones cancel where two elements compete.
        stored_amplitude: of what a fused kernel has to round, where nothing else is; zero where all is.
        alike: those errors have one sign, as they may have in rows that are alike.
        """
        super().__init__()
        self._full_size = full_size
        self._amplitude = amplitude
        self._native = list(reversed(native))
        self._chain = chain_amplitude
        self._stored, self._alike = stored_amplitude, alike
        self.can_be_fused = False
        """Something was met that fused kernels make another way."""
        self._product: tuple[torch.Tensor, ...] = ()
        """The last one, and of what; kept, so that nothing else takes its place in memory."""
        self._generator = torch.Generator(device=device).manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        recipe = recipe_of(func) if self._chain and _is_wide(func, args) else None
        out = func(*args, **kwargs) if recipe is None else recipe(self, *args, **kwargs)
        if name_of(func) in ("mm", "bmm"):
            self._product = (out, args[0], args[1])
        if not _rounds(func) or not any(t.is_floating_point() for t in _tensors(out)):
            return out
        amplitude = self._amplitude_of(name_of(func))
        for tensor in _tensors(out):
            self.disturb(tensor, amplitude, absolute=name_of(func) in _NEAR_ONE)
        return out

    def _amplitude_of(self, name: str) -> float:
        if self._native and self._native[-1][0] == name:
            return self._native.pop()[1]
        self._native = []
        return self._amplitude

    def disturb(self, tensor: torch.Tensor, amplitude: float, *, absolute: bool = False) -> None:
        """In place; integers, lower precisions and what is not finite are left alone.

        Args:
            absolute: disturb as if the result were at least one in size.
        """
        if tensor.dtype != torch.float64 or tensor.numel() == 0:
            return
        # In pieces: noise for gigabytes would need gigabytes.
        pieces = tensor.view(-1).split(_BLOCK_ELEMENTS) if tensor.is_contiguous() else (tensor,)
        for piece in pieces:
            self._add(piece, piece.abs().clamp_(min=self._one(amplitude)) if absolute else piece, amplitude)

    def _one(self, amplitude: float) -> float:
        """The least size of what is made of numbers near one, which are float32 where the result is less."""
        return min(1.0, _NEAR_ONE_ERROR / max(abs(amplitude), _NEAR_ONE_ERROR))

    def _add(
        self, tensor: torch.Tensor, size: torch.Tensor, amplitude: float, *, alike: bool = False
    ) -> None:
        noise = torch.empty_like(tensor)
        noise.uniform_(-1.0, 1.0, generator=self._generator)
        if self._full_size:
            noise = (noise + noise.sign()).mul_(2 / 3)
        noise = noise.abs_() if alike else noise
        # An infinity (a mask, say) plus minus itself would be NaN.
        tensor.add_(noise.mul_(size).mul_(amplitude).nan_to_num_(0.0, 0.0, 0.0))

    def wide(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def step(self, x: torch.Tensor) -> torch.Tensor:
        self.disturb(x, self._chain)
        return x

    def _chained(self, total: torch.Tensor, squares: torch.Tensor, depth: int) -> torch.Tensor:
        """A sum with the error of a chain: on its way it is as large as its end, or as its largest terms."""
        size = torch.maximum(total.abs(), squares.sqrt_())
        self._add(total, size, self._chain * math.sqrt(min(depth, _CHAIN_COUNTED)))
        return total

    def total(self, x: torch.Tensor) -> torch.Tensor:
        return self._chained(x.sum(-1), torch.linalg.vector_norm(x, dim=-1).square_(), x.shape[-1])

    def running(self, x: torch.Tensor) -> torch.Tensor:
        return self._chained(x.cumsum(-1), x.square().cumsum_(-1), x.shape[-1])

    def product(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        left, right = _flushed(left), _flushed(right)
        return self._chained(left @ right, left.square() @ right.square(), left.shape[-1])

    def linear(self, apply: Callable[..., Any], x: torch.Tensor, weight: torch.Tensor, depth: int) -> Any:
        x, weight = _flushed(x), _flushed(weight)
        return self._chained(apply(x, weight), apply(x.square(), weight.square()), depth)

    def transform(self, apply: Callable[[torch.Tensor], Any], x: torch.Tensor, dims: list[int]) -> Any:
        """Each result of a transform mixes all elements, so its error is that of the largest."""
        out = apply(x)
        parts = torch.view_as_real(out) if out.is_complex() else out
        size = out.abs().square().mean(dims, keepdim=True).sqrt()
        stages = max(1.0, math.log2(max(2, math.prod(out.shape[d] for d in dims))))
        self._add(parts, size.unsqueeze(-1) if out.is_complex() else size, self._chain * stages)
        return out

    def factors(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Found by where it lies: on its way through autograd a product is viewed and not copied."""
        if not self._product:
            return None
        product, left, right = self._product
        same = product.data_ptr() == x.data_ptr() and product.numel() == x.numel() and x.is_contiguous()
        self.can_be_fused |= same
        return (left, right) if same and self._stored else None

    def stored(self, x: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
        self._add(x, size, self._stored, alike=self._alike)
        return x


class Reordered(DispatchMode):
    """Run at native precision with sums in another order than torch's own; other operators as they are."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        recipe = recipe_of(func) if _is_narrow(args) else None
        return func(*args, **(kwargs or {})) if recipe is None else recipe(self, *args, **(kwargs or {}))

    def wide(self, x: torch.Tensor) -> torch.Tensor:
        return x.float()

    def step(self, x: torch.Tensor) -> torch.Tensor:
        return x

    def total(self, x: torch.Tensor) -> torch.Tensor:
        """One element after the other on the CPU, in a long chain on the GPU."""
        if x.shape[-1] == 0:
            return x.new_zeros(x.shape[:-1])
        total = torch.zeros_like(x[..., 0])
        if x.device.type == "cpu":
            for part in x.split(_CHAIN_LONGEST, dim=-1):
                total = total + self.running(part)[..., -1]
            return total
        for part in x.tensor_split(min(x.shape[-1], _LONG_CHAIN_STEPS), dim=-1):
            total = total + part.sum(-1)
        return total

    def running(self, x: torch.Tensor) -> torch.Tensor:
        if x.device.type != "cpu":
            return x.cumsum(-1)
        # torch's CPU cumsum accumulates in double; numpy's stays in the dtype it is given.
        return torch.from_numpy(np.cumsum(x.numpy(), axis=-1, dtype=np.float32))

    def product(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """A chain of short products, accumulated in float32."""
        depth = left.shape[-1]
        step = max(8, -(-depth // _CHAIN_STEPS))
        total = torch.zeros((*left.shape[:-1], right.shape[-1]), dtype=torch.float32, device=left.device)
        for start in range(0, depth, step):
            a = left[..., start : start + step].float()
            b = right[..., start : start + step, :].float()
            total = total + a @ b
        return total

    def linear(self, apply: Callable[..., Any], x: torch.Tensor, weight: torch.Tensor, depth: int) -> Any:
        return apply(x, weight)

    def transform(self, apply: Callable[[torch.Tensor], Any], x: torch.Tensor, dims: list[int]) -> Any:
        return apply(x)

    def factors(self, x: torch.Tensor) -> None:
        """Nothing is fused here."""

    def stored(self, x: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
        return x


def _tensors(out: Any) -> list[torch.Tensor]:
    return [t for t in (out if isinstance(out, (tuple, list)) else (out,)) if isinstance(t, torch.Tensor)]


def _flushed(factor: torch.Tensor) -> torch.Tensor:
    return factor.masked_fill(factor.abs() < _LEAST_FACTOR, 0.0)


def _rounds(func: Any) -> bool:
    return name_of(func) not in _EXACT and not func.is_view


def _is_narrow(args: Any) -> bool:
    dtype = _dtype_of_first(args)
    return dtype in (torch.float32, torch.float16, torch.bfloat16)


def _is_wide(func: Any, args: Any) -> bool:
    """Complex numbers are looked at where a transform makes them; their products run undisturbed."""
    dtype = _dtype_of_first(args)
    return dtype == torch.float64 or (dtype == torch.complex128 and name_of(func).startswith("_fft"))


def _dtype_of_first(args: Any) -> torch.dtype | None:
    """None where there is nothing to add up."""
    first = args[0] if args else None
    return first.dtype if isinstance(first, torch.Tensor) and first.numel() else None
