"""Small Triton functions that lifted kernels call in place of inductor's.

Written into the candidate's file where a kernel uses them, and nowhere imported. They behave as PyTorch does:
a NaN wins every maximum and minimum, integer division rounds down, of equal values the first place counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

LIBRARY: dict[str, str] = {
    "larger": '''
def larger(a, b):
    """The larger one; NaN if one of them is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "smaller": '''
def smaller(a, b):
    """The smaller one; NaN if one of them is."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "product": """
def product(a, b):
    return a * b
""",
    "either": """
def either(a, b):
    return a | b
""",
    "larger_at": '''
def larger_at(a, a_place, b, b_place):
    """The larger value and its place; NaN counts as largest, the first place wins a tie."""
    a_first = (a > b) | ((a != a) & (b == b))
    tie = (a == b) | ((a != a) & (b != b))
    a_first = a_first | (tie & (a_place < b_place))
    return tl.where(a_first, a, b), tl.where(a_first, a_place, b_place)
''',
    "smaller_at": '''
def smaller_at(a, a_place, b, b_place):
    """The smaller value and its place; NaN counts as smallest, the first place wins a tie."""
    a_first = (a < b) | ((a != a) & (b == b))
    tie = (a == b) | ((a != a) & (b != b))
    a_first = a_first | (tie & (a_place < b_place))
    return tl.where(a_first, a, b), tl.where(a_first, a_place, b_place)
''',
    "welford_step": '''
def welford_step(value, mean, spread, count, is_first):
    """One more value for running means and sums of squared distances."""
    if is_first:
        new_mean = value
        new_spread = tl.zeros_like(spread)
        new_count = tl.full(count.shape, 1, count.dtype)
    else:
        distance = value - mean
        new_count = count + 1
        new_mean = mean + distance / new_count
        new_spread = spread + distance * (value - new_mean)
    return new_mean, new_spread, new_count
''',
    "welford_join": '''
def welford_join(mean_a, spread_a, count_a, mean_b, spread_b, count_b):
    """Two groups' means and sums of squared distances as those of both."""
    count = count_a + count_b
    share = tl.where(count == 0.0, 0.0, count_b / count)
    distance = mean_b - mean_a
    return mean_a + distance * share, spread_a + spread_b + distance * distance * count_a * share, count
''',
    "softmax_step": '''
def softmax_step(top, total, value):
    """Running maximum and sum of exponentials, with one more value; -inf so far counts as nothing."""
    new_top = larger(top, value)
    nothing = new_top == float("-inf")
    kept = tl.where(nothing, 1.0, libdevice.exp(top - new_top))
    added = tl.where(nothing, 1.0, libdevice.exp(value - new_top))
    return new_top, total * kept + added
''',
    "softmax_fold": '''
def softmax_fold(top, total, value, count: tl.constexpr):
    """Running maximum and sum of exponentials, with so many more values for each lane."""
    value = tl.reshape(value, [top.shape[0], count, top.shape[1]])
    new_top = larger(top, tl.reduce(value, 1, larger))
    level = tl.where(new_top == float("-inf"), 0.0, new_top)
    added = tl.sum(libdevice.exp(value - tl.expand_dims(level, 1)), 1)
    return new_top, total * libdevice.exp(top - level) + added
''',
    "softmax_join": '''
def softmax_join(top, total, axis: tl.constexpr):
    """The maximum and the sum of exponentials along an axis, of running ones."""
    row_top = tl.reduce(top, axis, larger)
    apart = top - tl.expand_dims(row_top, axis)
    apart = tl.where(tl.expand_dims(row_top, axis) == float("-inf"), 0.0, apart)
    return row_top, tl.sum(total * libdevice.exp(apart), axis)
''',
    "softmax_top_and_total": '''
def softmax_top_and_total(value, mask, axis: tl.constexpr):
    """The maximum and the sum of exponentials of whole rows that are held at once."""
    value = tl.where(mask, value, float("-inf"))
    row_top = tl.reduce(value, axis, larger)
    level = tl.where(row_top == float("-inf"), 0.0, row_top)
    return row_top, tl.sum(libdevice.exp(value - tl.expand_dims(level, axis)), axis)
''',
    "mean_and_spread": '''
def mean_and_spread(value, mask, count: tl.constexpr, axis: tl.constexpr):
    """Mean, sum of squared distances from it and number of values, of whole rows that are held at once."""
    mean = tl.sum(tl.where(mask, value, 0.0), axis) / count
    distance = tl.where(mask, value - tl.expand_dims(mean, axis), 0.0)
    return mean, tl.sum(distance * distance, axis), tl.full(mean.shape, count, tl.float32)
''',
    "tanh_by_exp": '''
def tanh_by_exp(x):
    """tanh, off by some 1e-7 wherever x is."""
    return 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0
''',
    "only_at": '''
def only_at(value, place, axis: tl.constexpr, keep_dims: tl.constexpr):
    """The one value along an axis where `place` holds."""
    return tl.sum(tl.where(place, value, 0), axis, keep_dims=keep_dims).to(value.dtype)
''',
    "floor_divide": '''
def floor_divide(a, b):
    """Integer division that rounds down, not towards zero."""
    towards_zero = a // b
    is_between = (a % b != 0) & ((a < 0) != (b < 0))
    return tl.where(is_between, towards_zero - 1, towards_zero)
''',
    "floor_remainder": '''
def floor_remainder(a, b):
    """What floor_divide leaves: it has the sign of b."""
    rest = a % b
    return tl.where((rest != 0) & ((a < 0) != (b < 0)), rest + b, rest)
''',
    "fraction_and_exponent": '''
def fraction_and_exponent(x):
    """x as a fraction between one half and one, and the power of two that belongs to it."""
    exponent = libdevice.ilogb(x) + 1
    return tl.where(x == 0, 0.0, libdevice.ldexp(x, -exponent)), tl.where(x == 0, 0, exponent)
''',
    "places_in_sorted": '''
def places_in_sorted(value, edges, count, limit, stride, start, place_dtype: tl.constexpr,
                     after_equal: tl.constexpr):
    """How many of the sorted edges lie below each value, or not above it, by halving."""
    low = tl.zeros(value.shape, place_dtype)
    high = tl.full(value.shape, count, place_dtype)
    width = count + 1
    while width > 1:
        middle = (low + high) // 2
        inside = (middle < count) & (start + middle * stride < limit)
        edge = tl.load(edges + start + middle * stride, mask=inside, other=0)
        if after_equal:
            is_above = value >= edge
        else:
            is_above = value > edge
        low = tl.where(is_above & inside, middle + 1, low)
        high = tl.where(is_above, high, middle)
        width = (width + 1) // 2
    return low
''',
}


WORD = re.compile(r"(?<![.\w])[a-z_]\w*(?=[(,)])")
"""A name that is called or handed on."""
FAST = "_fast"
"""Ends the name of a function that takes Triton's own exponential."""
WITH_EXP = frozenset(name for name, text in LIBRARY.items() if "libdevice.exp(" in text)


def library_text(name: str) -> str:
    if not name.endswith(FAST):
        return "@triton.jit\n" + LIBRARY[name].strip() + "\n"
    slow = name.removesuffix(FAST)
    return library_text(slow).replace(f"def {slow}(", f"def {name}(").replace("libdevice.exp(", "tl.exp(")


def needed(texts: Iterable[str]) -> tuple[str, ...]:
    """The library's functions that these texts call, and those that they call in turn, callees first."""
    known = [name for slow in LIBRARY for name in ((slow, slow + FAST) if slow in WITH_EXP else (slow,))]
    wanted: set[str] = set()
    waiting = [name for text in texts for name in set(WORD.findall(text)) & set(known)]
    while waiting:
        name = waiting.pop()
        if name not in wanted:
            wanted.add(name)
            waiting.extend(set(WORD.findall(library_text(name))) & set(known) - {name})
    return tuple(name for name in known if name in wanted)
