"""One floating-point output against its oracle: what honest variants differ by, and is a result inside?

Two tests, both for every element (the factors are the constants below):

  element  |got - oracle| <= 4 ulp + 12 x (honest error of its tile, or of its size if that is less)
           + its own sensitivity to rounding
  tile     rms(got - oracle) <= 3 x (honest rms error of that tile), but for one in ten thousand that is
           beyond it by less than twice

The element test is moderate and catches anything local; the tile test is tight and catches a lower precision
or a cluster of small errors. A tile is a short run of neighbouring elements, so rows of different magnitude
do not lend each other tolerance. NaN and infinities must stand where the oracle has them.

Works block by block with few passes, because outputs have gigabytes. Not covered: integers (yardstick.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from assay.correctness.magnitudes import Magnitudes, alike, class_of
from assay.records.verdict import Mismatch

ULP_FACTOR = 4.0
OWN_SHARE, LOW_OWN_SHARE = 0.5, 0.125
"""Of an element's own rounding unit, beside what its class shows; below float32 results are rounded once."""
TILE_TO_ELEMENT = 12.0
TILE_FACTOR = 3.0
SLIGHTLY, SELDOM = 2.0, 1e-4
"""A tile beyond its limit by less than twice, one of ten thousand: chance among many, no lower precision."""
FLOAT32_EPS = 2.0**-23
ELEMENT_FLOOR = 4.0
"""Times what a tile may lose near zero: a subnormal factor is multiplied by ten or more."""
JUMP_FACTOR = 64.0
"""A sensitivity this many times the rest of the tolerance is a rounding step, not a rounding error."""
LEAST_BLOCK_ELEMENTS, BLOCK_ELEMENTS = 1 << 21, 1 << 24
SHOWN = 5


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of one comparison."""

    ok: bool
    worst_ratio: float
    wrong_elements: int
    elements: int
    message: str
    mismatches: tuple[Mismatch, ...]


@dataclass(frozen=True, slots=True)
class _Span:
    """A run of whole tiles: where its elements and its tiles lie."""

    elements: slice
    tiles: slice

    @property
    def count(self) -> int:
        return self.elements.stop - self.elements.start


class FloatTolerance:
    """The tolerance of one output; it only grows as honest variants are learned."""

    def __init__(
        self, oracle: torch.Tensor, dtype: torch.dtype, output: int, floor: float, *, by_size: bool = True
    ) -> None:
        """Args:
        dtype: what the specification delivers, whose rounding unit counts.
        floor: multiplies the rounding unit where the oracle itself is rounded.
        by_size: small elements are held to what honest variants show of their like.
        """
        self._shape = oracle.shape
        self._oracle = oracle.flatten()
        self._info = torch.finfo(dtype)
        self._tiny = _absolute_floor(dtype)
        self._dtype = dtype
        self._output = output
        self._tile = tile_length(oracle.shape)
        count = -(-oracle.numel() // self._tile)
        self._tile_size = torch.zeros(count, dtype=torch.float64, device=oracle.device)
        self._unit = floor * self._info.eps
        self._honest_rms = torch.zeros_like(self._tile_size)
        self._classes: torch.Tensor | None = None
        """Of size, element by element; None where tiles have elements of about one size each."""
        self._sizes = Magnitudes(oracle.device)
        self._sensitivity: torch.Tensor | None = None
        self._loose: torch.Tensor | None = None
        for span in self._spans():
            size = self._finite(self._oracle[span.elements]).abs_()
            self._tile_size[span.tiles] = _tile_rms(size, self._tile)
            if by_size and not alike(-_tile_max(-size, self._tile), _tile_max(size, self._tile)):
                self._classify(span, size)

    def learn(self, variant: torch.Tensor) -> None:
        """Take in an honest result: its errors per tile, and where it is not finite, unlike the oracle."""
        flat = variant.flatten()
        for span in self._spans():
            o, v = self._oracle[span.elements], flat[span.elements].double()
            error = v - o
            rms = _tile_rms(error, self._tile)
            if not torch.isfinite(rms).all():
                strange = ~torch.isfinite(v) & (v != o) & ~(torch.isnan(v) & torch.isnan(o))
                if self._loose is None:
                    self._loose = torch.zeros_like(self._oracle, dtype=torch.bool)
                self._loose[span.elements] |= strange
                error = error.nan_to_num(0.0, 0.0, 0.0)
                rms = _tile_rms(error, self._tile)
            self._honest_rms[span.tiles] = torch.maximum(self._honest_rms[span.tiles], rms)
            if self._classes is not None:
                own = self._finite(o).abs_()
                self._sizes.learn(self._classes[span.elements], error, own, self._sizes_in(span))

    def learn_sensitivity(self, variant: torch.Tensor, factor: float = 1.0) -> None:
        """Take in a widely disturbed result: each element's own deviation, whole steps at near-ties too."""
        if self._sensitivity is None:
            self._sensitivity = torch.zeros_like(self._oracle, dtype=torch.float32)
        flat = variant.flatten()
        for span in self._spans():
            deviation = (flat[span.elements].double() - self._oracle[span.elements]).abs_()
            deviation = deviation.nan_to_num_(0.0, 0.0, 0.0).mul_(factor).float()
            part = self._sensitivity[span.elements]
            torch.maximum(part, deviation, out=part)

    def compare(self, got: torch.Tensor, slack: float) -> Report:
        """Every element of a result of the right form."""
        flat = got.flatten()
        worst, wrong, coarse, far, shown = 0.0, 0, 0, 0, []
        for span in self._spans():
            o, g = self._oracle[span.elements], flat[span.elements].double()
            ratio, special = self._quick(span, o, g, slack)
            if ratio <= 1.0 and special is None:
                worst = max(worst, ratio)
                continue
            bad, tile_ratio, ratio, limit = self._thorough(span, o, g, slack)
            worst = max(worst, ratio, _largest(tile_ratio))
            wrong += int(bad.sum())
            coarse += int((tile_ratio > 1).sum())
            far += int((tile_ratio > SLIGHTLY).sum())
            suspects = bad if bad.any() else self._spread(tile_ratio > 1, o.numel())
            shown += self._mismatches(suspects, span, o, g, limit, SHOWN - len(shown))
        if not far and coarse <= SELDOM * len(self._tile_size):
            coarse = 0
        message = self._message(wrong, coarse)
        count = self._oracle.numel()
        if not message:
            return Report(True, min(worst, 1.0), 0, count, "", ())
        return Report(False, worst, wrong, count, message, tuple(shown))

    def _quick(
        self, span: _Span, o: torch.Tensor, g: torch.Tensor, slack: float
    ) -> tuple[float, torch.Tensor | None]:
        """Both tests in few passes; the second value is set where a non-finite number needs a closer look."""
        error = (g - o).abs_()
        tile_ratio = _tile_rms(error, self._tile) / self._tile_limit(span, slack)
        if not torch.isfinite(tile_ratio).all():
            return math.inf, tile_ratio
        if self._sensitivity is not None:
            return math.inf, None
        error.sub_(o.abs(), alpha=ULP_FACTOR * self._info.eps * slack)
        if self._classes is None:
            element_ratio = _tile_max(error, self._tile) / (slack * self._element_allowance(span))
        else:
            element_ratio = error / (slack * self._element_allowances(span, o))
        return max(_largest(tile_ratio), _largest(element_ratio)), None

    def _thorough(
        self, span: _Span, o: torch.Tensor, g: torch.Tensor, slack: float
    ) -> tuple[torch.Tensor, torch.Tensor, float, torch.Tensor]:
        """Wrong elements, each tile's part of its limit, the worst element's part, and each one's limit."""
        rounded = o.to(self._dtype).double()
        special = ~torch.isfinite(rounded)
        same = torch.where(torch.isnan(rounded), torch.isnan(g), g == rounded)
        apart = (g - o).abs_()
        error = torch.where(special, 0.0, apart)
        limit = ULP_FACTOR * self._info.eps * self._finite(o).abs_()
        limit += self._element_allowances(span, o)
        jumps = torch.zeros_like(special)
        if self._sensitivity is not None:
            sensitivity = self._sensitivity[span.elements].double()
            jumps = sensitivity > JUMP_FACTOR * limit
            limit += sensitivity
        limit *= slack
        # On the brink of overflow one honest answer is infinite and another is not.
        brink = o.abs() + limit >= self._info.max
        overflowed = brink & torch.isinf(g) & (g.sign() == o.sign())
        bad = ~torch.where(special, same | (apart <= limit), (error <= limit) | overflowed)
        jumps |= overflowed
        if self._loose is not None:
            excused = self._loose[span.elements] & ~torch.isfinite(g)
            bad &= ~excused
            jumps |= excused
        # Near-ties flip by whole steps; they are held by the element test alone.
        calm = torch.where(jumps, 0.0, error).nan_to_num_(math.inf, math.inf)
        tile_ratio = _tile_rms(calm, self._tile) / self._tile_limit(span, slack)
        element_ratio = torch.where(special | jumps, bad.double() * math.inf, error / limit).nan_to_num(
            0.0, math.inf
        )
        element_ratio = torch.where(bad, element_ratio.clamp(min=1.0), element_ratio.clamp(max=1.0))
        return bad, tile_ratio, _largest(element_ratio), limit

    def _allowance(self, span: _Span) -> torch.Tensor:
        """Honest rms error per tile; small tiles get more of the rounding unit, being a poorer sample."""
        whole, sampling = (0.5, 8.0) if self._info.eps <= FLOAT32_EPS else (0.25, 1.0)
        share = whole + sampling / math.sqrt(self._tile)
        return self._honest_rms[span.tiles] + share * self._unit * self._tile_size[span.tiles]

    def _tile_limit(self, span: _Span, slack: float) -> torch.Tensor:
        return slack * (TILE_FACTOR * self._allowance(span) + self._tiny)

    def _element_allowance(self, span: _Span) -> torch.Tensor:
        return TILE_TO_ELEMENT * self._allowance(span) + ELEMENT_FLOOR * self._tiny

    def _element_allowances(self, span: _Span, o: torch.Tensor) -> torch.Tensor:
        """Element by element: what its tile allows, but no more than its size does."""
        by_tile = self._spread(self._element_allowance(span), span.count)
        if self._classes is None:
            return by_tile
        own = self._finite(o).abs_()
        by_size = self._sizes.allowance(self._classes[span.elements], own, self._sizes_in(span))
        by_size += (OWN_SHARE if self._info.eps <= FLOAT32_EPS else LOW_OWN_SHARE) * self._unit * own
        return torch.minimum(by_tile, TILE_TO_ELEMENT * by_size + ELEMENT_FLOOR * self._tiny)

    def _classify(self, span: _Span, size: torch.Tensor) -> None:
        if self._classes is None:
            self._classes = torch.zeros_like(self._oracle, dtype=torch.int8)
        self._classes[span.elements] = class_of(size, self._sizes_in(span))

    def _sizes_in(self, span: _Span) -> torch.Tensor:
        """Of each element's tile."""
        return self._spread(self._tile_size[span.tiles], span.count)

    def _finite(self, values: torch.Tensor) -> torch.Tensor:
        return torch.nan_to_num(values, 0.0, 0.0, 0.0)

    def _spread(self, per_tile: torch.Tensor, count: int) -> torch.Tensor:
        return per_tile.repeat_interleave(self._tile)[:count]

    def _spans(self) -> Iterator[_Span]:
        total, count = self._oracle.numel(), -(-self._oracle.numel() // self._tile)
        # A block takes a dozen times its size in float64: next to nothing beside a large output.
        elements = min(BLOCK_ELEMENTS, max(LEAST_BLOCK_ELEMENTS, total // 8))
        per_span = max(1, elements // self._tile)
        for first in range(0, count, per_span):
            last = min(first + per_span, count)
            yield _Span(slice(first * self._tile, min(last * self._tile, total)), slice(first, last))

    def _mismatches(
        self,
        suspects: torch.Tensor,
        span: _Span,
        expected: torch.Tensor,
        got: torch.Tensor,
        limit: torch.Tensor,
        room: int,
    ) -> list[Mismatch]:
        found = []
        for at in torch.nonzero(suspects).flatten()[: max(room, 0)].tolist():
            index = unravel(span.elements.start + at, self._shape)
            values = (float(expected[at]), float(got[at]), float(limit[at]))
            found.append(Mismatch(self._output, index, *values))
        return found

    def _message(self, wrong: int, coarse: int) -> str:
        if wrong:
            return f"{wrong} of {self._oracle.numel()} elements are outside tolerance"
        if coarse:
            return f"{coarse} runs of {self._tile} elements are less precise than any honest implementation"
        return ""


def _absolute_floor(dtype: torch.dtype) -> float:
    """What may be lost near zero: subnormals where float32 arithmetic flushes them, else a few of them.

    A whole `smallest_normal` would be a quarter of a float16 softmax over 4096 elements.
    """
    info = torch.finfo(dtype)
    steps = max(4 * info.eps * info.smallest_normal, torch.finfo(torch.float32).smallest_normal)
    return min(info.smallest_normal, steps)


def tile_length(shape: torch.Size) -> int:
    """Whole rows where they are neither tiny nor huge."""
    last = shape[-1] if shape else 1
    length = last if 64 <= last <= 1024 else (1024 if last > 1024 else 256)
    return max(1, min(length, math.prod(shape)))


def unravel(position: int, shape: torch.Size) -> tuple[int, ...]:
    index = []
    for size in reversed(shape):
        index.append(position % size)
        position //= size
    return tuple(reversed(index))


def _tile_rms(values: torch.Tensor, tile: int) -> torch.Tensor:
    """Root mean square of each tile; the last one counts only the elements it has."""
    whole = values.numel() // tile * tile
    rms = torch.linalg.vector_norm(values[:whole].reshape(-1, tile), dim=-1) / math.sqrt(tile)
    rest = values[whole:]
    if not rest.numel():
        return rms
    return torch.cat([rms, (torch.linalg.vector_norm(rest) / math.sqrt(rest.numel())).reshape(1)])


def _tile_max(values: torch.Tensor, tile: int) -> torch.Tensor:
    whole = values.numel() // tile * tile
    largest = values[:whole].reshape(-1, tile).amax(-1) if whole else values.new_empty(0)
    rest = values[whole:]
    return torch.cat([largest, rest.amax().reshape(1)]) if rest.numel() else largest


def _largest(values: torch.Tensor) -> float:
    return float(values.max()) if values.numel() else 0.0
