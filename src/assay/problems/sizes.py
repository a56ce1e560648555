"""Find the integers that give a problem its size, and smaller or awkward values the reference accepts.

Not covered: sizes written inside get_inputs() itself, or computed by function calls; such problems keep
their nominal size.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.problems.source import ModuleSource
from assay.problems.trials import Shapes, Trials

TARGET_BYTES = 1 << 18
# Different starts for neighbouring sizes: a kernel that swaps two equal dimensions must not come out right.
_SMALL = ((37, 33, 64, 32, 128, 16), (33, 41, 64, 32, 128, 16), (41, 37, 32, 64, 16, 128))
_AT_ONCE = ((37, 33, 41), (64, 32, 128))
_AT_ONCE_EQUAL = ((32,), (16,), (8,), (4,))
_SMALLER = (24, 17, 16, 13, 8, 7, 5, 4, 3, 2)
_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 83, 97, 101)
_WEIGHT_SIZE_FLOOR = 64
_SHRINK_TRIALS = 48
_SHRINK_TRIALS_LARGE_MODEL = 14
_LARGE_MODEL_PARTS = 80


@dataclass(frozen=True, slots=True)
class Knob:
    """One integer of the problem: a constant, or one item of a constant tuple."""

    name: str
    index: int | None
    value: int
    feeds_inputs: bool = False
    leads: bool = False
    """It sets the first dimension of an input: most often the batch."""


Setting = dict[Knob, int]


def as_sizes(
    setting: Mapping[Knob, int], constants: Mapping[str, Any], links: Mapping[str, Mapping[int, str]]
) -> dict[str, Any]:
    """A case's `sizes` for the setting; values equal to the problem's own are left out."""
    sizes: dict[str, Any] = {}
    for knob, value in setting.items():
        if knob.index is None:
            sizes[knob.name] = value
        else:
            items = list(sizes.get(knob.name, constants[knob.name]))
            items[knob.index] = value
            sizes[knob.name] = type(constants[knob.name])(items)
    for name, items in links.items():
        if name in sizes:
            # (batch, 3, 224): a replaced tuple must still follow the constants it names.
            linked = {index: sizes.get(other, constants[other]) for index, other in items.items()}
            kept = enumerate(sizes[name])
            sizes[name] = type(constants[name])(linked.get(index, item) for index, item in kept)
    changed = {name: value for name, value in sizes.items() if value != constants[name]}
    return {name: value for name, value in changed.items() if not _follows(name, setting, constants)}


class SizeSearch:
    """Settings of a problem's knobs that its reference accepts."""

    def __init__(self, source: ModuleSource, trials: Trials, case_sizes: Mapping[str, Any]) -> None:
        self._trials = trials
        module = source.namespace(case_sizes)
        self._constants = {name: getattr(module, name) for name in source.constants}
        fixed = source.fixed_constants()
        self._links = {name: items for name, items in source.linked_items().items() if name not in fixed}
        self._literal = [name for name in source.literal_constants() if name not in fixed]
        self.knobs = self._find_knobs()
        self.groups: list[tuple[Knob, ...]] = [(knob,) for knob in self.knobs if knob.feeds_inputs]
        """Input sizes that move together: the reference refused to have one of a group changed alone."""

    def sizes(self, setting: Mapping[Knob, int]) -> dict[str, Any]:
        """The setting as a case's sizes."""
        return as_sizes(setting, self._constants, self._links)

    def legal(self, setting: Mapping[Knob, int]) -> bool:
        """Whether the reference runs on the setting."""
        return self._trials.legal(self.sizes(setting))

    def shapes(self, setting: Mapping[Knob, int]) -> Shapes | None:
        """Shapes under the setting."""
        return self._trials.shapes(self.sizes(setting))

    def total_bytes(self, setting: Mapping[Knob, int], *, with_weights: bool = False) -> int:
        """Bytes of the inputs; a setting the file refuses counts as endless."""
        shapes = self.shapes(setting)
        if shapes is None:
            return 1 << 62
        return shapes.input_bytes + (shapes.state_bytes if with_weights else 0)

    def shrunk(self) -> Setting | None:
        """A small legal setting, or None."""
        setting = self._shrunk_at_once(_AT_ONCE)
        if setting is None and self._trials.works_on_meta:
            setting = self._shrink_each({knob: knob.value for knob in self.knobs})
        elif setting is None:
            setting = self._shrunk_at_once(_AT_ONCE_EQUAL)
        return None if setting is None else self._shrink_to_target(setting)

    def halved(self, setting: Mapping[Knob, int]) -> Setting:
        """Every input size halved where the reference accepts it."""
        smaller = dict(setting)
        for group in self.groups:
            move = dict.fromkeys(group, smaller[group[0]] // 2)
            if smaller[group[0]] >= 4 and self.legal({**smaller, **move}):
                smaller.update(move)
        return smaller

    def awkward(
        self, base: Mapping[Knob, int], choices: Callable[[int], Sequence[int]], rng: random.Random
    ) -> Setting | None:
        """The base with as many input sizes as possible moved to one of `choices(size)`; None if none."""
        moves: list[Setting] = []
        taken: set[int] = set()
        for group in self.groups:
            options = [value for value in choices(base[group[0]]) if value != base[group[0]]]
            if options:
                # Two equal sizes would hide a kernel that swaps them.
                value = rng.choice([value for value in options if value not in taken] or options)
                taken.add(value)
                moves.append(dict.fromkeys(group, value))
        everything = dict(base)
        for move in moves:
            everything.update(move)
        if moves and self.legal(everything):
            return everything
        setting = dict(base)
        for move in rng.sample(moves, len(moves)):
            if self.legal({**setting, **move}):
                setting.update(move)
        return setting if setting != dict(base) else None

    def single(
        self, base: Mapping[Knob, int], value: int, rng: random.Random, *, leading: bool = False
    ) -> Iterable[Setting]:
        """Legal settings with one input size set to `value`, in random order.

        Args:
            leading: only sizes that come first, of which there may be none; torch itself gives the wrong
                shape for a convolution of no channels.
        """
        for group in rng.sample(self.groups, len(self.groups)):
            if leading and not any(knob.leads for knob in group):
                continue
            setting = {**base, **dict.fromkeys(group, value)}
            if base[group[0]] != value and self.legal(setting):
                yield setting

    def _find_knobs(self) -> tuple[Knob, ...]:
        # Where the meta device cannot make the inputs they are made for real: probe around small ones.
        base: Setting = {}
        knobs = list(_integers(self._constants, self._literal, self._links))
        self._trials.must_be_small = frozenset(knob.name for knob in knobs)
        if self._trials.shapes({}) is None:
            base = {knob: min(knob.value, 16) for knob in knobs}
        before = self._trials.shapes(self.sizes(base))
        if before is None:
            return ()
        found: list[Knob] = []
        for knob in knobs:
            start = base.get(knob, knob.value)
            for probe in (start + 1, start * 2, start // 2):
                after = self._trials.shapes(self.sizes({**base, knob: probe}))
                if probe != start and after is not None and after != before:
                    found.extend(_sized(knob, before, after))
                    break
        self._trials.must_be_small = frozenset(knob.name for knob in found)
        return tuple(found)

    def _shrink_each(self, nominal: Setting) -> Setting:
        setting = dict(nominal)
        stuck: list[Knob] = []
        limit = self._trial_limit()
        for place, knob in enumerate(sorted(self.knobs, key=lambda knob: -knob.value)):
            for value in _SMALL[place % len(_SMALL)]:
                if value >= knob.value or self._trials.used > limit:
                    continue
                if self.legal({**setting, knob: value}):
                    setting[knob] = value
                    break
            else:
                stuck.append(knob)
        self._shrink_together(setting, stuck)
        return setting

    def _shrink_together(self, setting: Setting, stuck: list[Knob]) -> None:
        """Sizes that must agree (the two sides of a square) only move together."""
        for shared in sorted({knob.value for knob in stuck}):
            group = tuple(knob for knob in stuck if knob.value == shared)
            for value in _SMALL[0]:
                move = dict.fromkeys(group, value)
                if len(group) > 1 and value < shared and self.legal({**setting, **move}):
                    setting.update(move)
                    if any(knob.feeds_inputs for knob in group):
                        self.groups = [*(other for other in self.groups if other[0] not in group), group]
                    break

    def _shrink_to_target(self, setting: Setting) -> Setting:
        limit = self._trials.used + self._trial_limit()
        moved = True
        while moved and self.total_bytes(setting) > TARGET_BYTES and self._trials.used < limit:
            moved = False
            for group in sorted(self.groups, key=lambda group: -setting[group[0]]):
                moves = [dict.fromkeys(group, value) for value in _SMALLER if value < setting[group[0]]]
                smaller = next((move for move in moves if self.legal({**setting, **move})), None)
                if smaller is not None:
                    setting.update(smaller)
                    moved = True
                    break
        return setting

    def _shrunk_at_once(self, choices: Sequence[Sequence[int]]) -> Setting | None:
        """All sizes small in one step: most problems accept it, and only this way is every trial cheap."""
        for values in choices:
            setting = {
                knob: min(knob.value, values[place % len(values)]) for place, knob in enumerate(self.knobs)
            }
            if self.legal(setting):
                return setting
        return None

    def _trial_limit(self) -> int:
        nominal = self._trials.shapes({})
        large = nominal is not None and nominal.part_count > _LARGE_MODEL_PARTS
        return _SHRINK_TRIALS_LARGE_MODEL if large else _SHRINK_TRIALS


def ragged(size: int) -> Sequence[int]:
    """Primes near the size."""
    return [prime for prime in _PRIMES if max(2, size // 2) <= prime <= max(3, size + size // 2)]


def off_by_one(size: int) -> Sequence[int]:
    """One above and one below a multiple of 32 (of 8 for sizes too small for that)."""
    if size < 8:
        return []
    if size < 24:
        return (7, 9, 15, 17)
    return (31, 33, 63, 65)


def _integers(
    constants: Mapping[str, Any], literal: Sequence[str], links: Mapping[str, Mapping[int, str]]
) -> Iterable[Knob]:
    for name, value in constants.items():
        if name not in literal and name not in links:
            continue
        if _is_size(value):
            yield Knob(name, None, value)
        elif isinstance(value, (tuple, list)):
            for index, item in enumerate(value):
                if _is_size(item) and index not in links.get(name, {}):
                    yield Knob(name, index, item)


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _follows(name: str, setting: Mapping[Knob, int], constants: Mapping[str, Any]) -> bool:
    """Whether a tuple's own items are all unchanged, so that it need not be replaced at all."""
    own = [(knob, value) for knob, value in setting.items() if knob.name == name and knob.index is not None]
    return bool(own) and all(constants[name][knob.index] == value for knob, value in own)


def _sized(knob: Knob, before: Shapes, after: Shapes) -> Iterable[Knob]:
    if after.inputs != before.inputs:
        leads = any(a[:1] != b[:1] for a, b in zip(after.inputs, before.inputs, strict=False))
        yield Knob(knob.name, knob.index, knob.value, feeds_inputs=True, leads=leads)
    elif after.state != before.state and knob.value > _WEIGHT_SIZE_FLOOR:
        # Small numbers that only shape the weights are structure (kernel size, groups), not size.
        yield Knob(knob.name, knob.index, knob.value)
