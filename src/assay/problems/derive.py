"""Invent hidden cases for a module problem: awkward sizes, layouts and contents its own reference accepts.

Everything is tried on the reference first; what it refuses, or answers with a NaN or infinity, is dropped.
The nominal size is never made. The choice depends on the seed alone, not on the clock.

Not covered: references that stay too large to run on the CPU however small their inputs (none are derived);
sizes written inside get_inputs(); dtypes other than the nominal case's; structure of inputs that
no test below recognises (then a case may ask for contents the author did not mean: candidates may refuse
derived cases with a clean error).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace

import torch

from assay.problems.devices import META
from assay.problems.nests import is_working_float, tensors_in
from assay.problems.problem import Case, Problem
from assay.problems.sizes import Knob, Setting, SizeSearch, off_by_one, ragged
from assay.problems.source import ModuleSource
from assay.problems.trials import REFUSALS, Trials, size_bytes

MOST_CASES = 8
BEYOND = "beyond"
_MOST_CONFIRMATIONS = 32
_MOST_HALVINGS = 3
_FLOPS_LIMIT = 40_000_000_000
_LAYOUTS = ("strided", "offset", "transposed")
_LAYOUTS_OF_SEVERAL = ("mixed", "sliced")
"""Tried in every run: one of few would be left out too often."""
_UNEVEN = ("row_scaled", "mixture")
_OTHERS = ("normal", "shifted", "sparse")


class _Deriver:
    """One derivation: the search, the nominal case it starts from, and what was found."""

    def __init__(self, source: ModuleSource, nominal: Case, seed: int) -> None:
        self._nominal = nominal
        self._rng = random.Random(seed)
        self._trials = Trials(source, nominal)
        self._search = SizeSearch(source, self._trials, nominal.sizes)
        self._structured: tuple[int, ...] = ()
        self._one_signed: tuple[int, ...] = ()
        self._free_contents = True
        self._layouts: tuple[str, ...] = ()
        self._found: list[Case] = []

    def run(self) -> tuple[Case, ...]:
        base = self._affordable(self._search.shrunk())
        drawn = None if base is None else self._trials.confirmed(self._case("base", base))
        if base is None or drawn is None:
            return ()
        floats = {k: tensor for k, tensor in enumerate(tensors_in(drawn)) if is_working_float(tensor)}
        self._structured = tuple(k for k, tensor in floats.items() if looks_structured(tensor))
        self._free_contents = len(self._structured) < len(floats)
        if not self._accepts(self._case("base", base, distribution="normal")):
            self._one_signed = tuple(k for k, tensor in floats.items() if _has_one_sign(tensor))
        layouts = (*_LAYOUTS_OF_SEVERAL, *_LAYOUTS)
        self._layouts = tuple(name for name in layouts if self._accepts(self._case("base", base, name)))
        self._choose(base)
        return (*self._found[:MOST_CASES], *self._beyond())

    def _beyond(self) -> Iterator[Case]:
        """All sizes one more than the nominal ones: room for those alone, and tails of large inputs, show.

        Too large to be tried here: whoever prepares the problem drops it where the reference refuses."""
        knobs = self._search.knobs
        if any(knob.feeds_inputs for knob in knobs):
            yield self._case(BEYOND, {knob: knob.value + knob.feeds_inputs for knob in knobs})

    def _affordable(self, setting: Setting | None) -> Setting | None:
        """Smaller still where a call costs too much, and a bound on how many calls are made on the CPU."""
        if setting is None:
            return None
        for _ in range(_MOST_HALVINGS):
            # Counted, not timed, so that the choice repeats: a few seconds of one core at the very most.
            flops = self._trials.flops(self._search.sizes(setting))
            self._trials.confirmations_left = min(_MOST_CONFIRMATIONS, _FLOPS_LIMIT // max(flops, 1))
            if self._trials.confirmations_left >= 2 * MOST_CASES:
                break
            setting = self._search.halved(setting)
        return setting

    def _choose(self, base: Setting) -> None:
        rng = self._rng
        plain = [name for name in self._layouts if name in _LAYOUTS]
        several = [name for name in self._layouts if name in _LAYOUTS_OF_SEVERAL]
        layouts = [*rng.sample(several, len(several)), *rng.sample(plain, len(plain)), *["given"] * 4]
        uneven = rng.sample(_UNEVEN, len(_UNEVEN))
        other = rng.choice(_OTHERS)
        odd = self._search.awkward(base, ragged, rng)
        beside = self._search.awkward(base, off_by_one, rng)
        # Each line is one case; what it asks for beyond its sizes is given up when the reference refuses.
        self._add("ragged", odd, [("given", uneven[0]), ("given", "nominal")])
        self._add("off_by_one", beside, [(layouts[0], "nominal"), ("given", "nominal")])
        for one in self._search.single(base, 1, rng):
            if self._add("one", one, [("given", "nominal")]):
                break
        self._add(layouts[1], odd or base, [(layouts[1], other), (layouts[1], "nominal")])
        self._add(uneven[1], beside or base, [(layouts[2], uneven[1]), ("given", uneven[1])])
        self._add(layouts[3], base, [(layouts[3], "nominal")])
        if not any(case.distribution == uneven[0] for case in self._found):
            self._add(uneven[0], base, [("given", uneven[0])])
        if not any(case.distribution == other for case in self._found):
            self._add(other, base, [("given", other)])
        for empty in self._search.single(base, 0, rng, leading=True):
            if self._add("empty", empty, [("given", "nominal")]):
                break

    def _add(self, label: str, setting: Setting | None, options: list[tuple[str, str]]) -> bool:
        """Keep the first option the reference accepts."""
        if setting is None or len(self._found) >= MOST_CASES:
            return False
        for layout, distribution in options:
            if distribution != "nominal" and not self._free_contents:
                continue
            case = self._case(label, setting, layout, distribution)
            told_apart = (case.sizes, case.layout, case.distribution)
            plain = not case.sizes and case.layout == "given" and case.distribution == "nominal"
            known = [(other.sizes, other.layout, other.distribution) for other in self._found]
            if not plain and told_apart not in known and self._accepts(case):
                self._found.append(case)
                return True
        return False

    def _accepts(self, case: Case) -> bool:
        return self._trials.confirmed(case) is not None

    def _case(
        self, label: str, setting: Setting, layout: str = "given", distribution: str = "nominal"
    ) -> Case:
        extras = [part for part in (layout, distribution) if part not in ("given", "nominal", label)]
        return replace(
            self._nominal,
            name="-".join(["derived", label, *extras]),
            sizes=self._trials.sizes(self._search.sizes(setting)),
            layout=layout,
            distribution=distribution,
            kept=self._structured if distribution != "nominal" else (),
            one_signed=self._one_signed if distribution != "nominal" else (),
            hidden=True,
            derived=True,
        )


def derive_cases(source: ModuleSource, nominal: Case, seed: int) -> tuple[Case, ...]:
    """At most eight hidden cases; none where the reference accepts nothing small."""
    thread_count = torch.get_num_threads()
    # On tensors this small, waking threads costs more than the work: ten times more on a busy machine.
    torch.set_num_threads(1)
    try:
        return _Deriver(source, nominal, seed).run()
    finally:
        torch.set_num_threads(thread_count)


def looks_structured(tensor: torch.Tensor) -> bool:
    """Whether a floating input obeys a rule that an honest kernel may build on.

    Triangular, symmetric, integer-valued, normalised or sorted inputs are part of the specification;
    redrawing them from a distribution would reject kernels that use it.
    """
    if not is_working_float(tensor) or tensor.numel() < 16:
        return False
    values = tensor.detach().to(torch.float64)
    if bool((values == 0).double().mean() > 0.02) or bool((values == values.round()).all()):
        return True
    if values.unique().numel() <= min(16, values.numel() // 4):
        return True
    square = values.dim() >= 2 and values.shape[-1] == values.shape[-2] > 1
    if square and torch.equal(values, values.transpose(-1, -2)):
        return True
    for dim in range(values.dim()):
        if values.shape[dim] > 1 and (_all_one(values.sum(dim)) or _all_one(values.norm(dim=dim))):
            return True
    steps = values.diff(dim=-1)
    return values.shape[-1] >= 8 and (bool((steps >= 0).all()) or bool((steps <= 0).all()))


def _has_one_sign(values: torch.Tensor) -> bool:
    """As what a logarithm or a root is taken of; that another sign is refused, a trial has to say."""
    return bool((values >= 0).all()) or bool((values <= 0).all())


def _all_one(values: torch.Tensor) -> bool:
    return bool(torch.allclose(values, torch.ones_like(values), atol=1e-2))


def input_bytes(problem: Problem, case: Case) -> int:
    """Bytes of one call's inputs, by the meta device; made for real only where the meta device cannot."""
    instance = problem.bind(case)
    try:
        inputs = instance.make_inputs(0, META)
    except REFUSALS:
        inputs = instance.make_inputs(0, torch.device("cpu"))
    return sum(size_bytes(tensor) for tensor in tensors_in(inputs))


def reduced_nominal(problem: Problem, limit_bytes: int, *, with_weights: bool = False) -> Case | None:
    """The nominal case scaled down until its inputs fit; itself if they do, None if no legal size does.

    Args:
        with_weights: until weights fit beside them as well, as far as the problem's sizes allow.
    """
    nominal = problem.nominal()
    source = getattr(problem, "source", None)
    weighed = with_weights and isinstance(source, ModuleSource)
    if not weighed and input_bytes(problem, nominal) <= limit_bytes:
        return nominal
    if not isinstance(source, ModuleSource):
        # A KernelBot task has no constants to scale: the largest of its own cases that fits.
        sized = [(input_bytes(problem, case), case) for case in problem.declared_cases()]
        fitting = [pair for pair in sized if pair[0] <= limit_bytes]
        return max(fitting, key=lambda pair: pair[0])[1] if fitting else None
    trials = Trials(source, nominal)
    search = SizeSearch(source, trials, nominal.sizes)
    setting = {knob: knob.value for knob in search.knobs}
    while search.total_bytes(setting, with_weights=with_weights) > limit_bytes:
        smaller = next(_halvings(trials, search, setting, with_weights=with_weights), None)
        if smaller is None:
            break
        setting = smaller
    if search.total_bytes(setting) > limit_bytes:
        return None
    sizes = trials.sizes(search.sizes(setting))
    return replace(nominal, name="nominal-reduced", sizes=sizes) if sizes != nominal.sizes else nominal


def _halvings(
    trials: Trials, search: SizeSearch, setting: Mapping[Knob, int], *, with_weights: bool
) -> Iterator[Setting]:
    """Legal settings with one size halved; the batch first, since it changes the problem least."""
    before = search.total_bytes(setting, with_weights=with_weights)
    alone = [(knob,) for knob in search.knobs if knob.feeds_inputs or with_weights]
    # Sizes that must agree (the two sides of a square) can only be halved together.
    together = [tuple(k for k in search.knobs if setting[k] == setting[knob]) for (knob,) in alone]

    def order(group: tuple[Knob, ...]) -> tuple[bool, int, int]:
        value = setting[group[0]]
        return not (group[0].leads and len(group) == 1 and value > 16), -value, len(group)

    for group in sorted((*alone, *together), key=order):
        halved = {**setting, **{knob: setting[knob] // 2 for knob in group}}
        smaller = setting[group[0]] > 1 and search.total_bytes(halved, with_weights=with_weights) < before
        # Where the meta device fails, a large size cannot be tried: its shapes have to do.
        if smaller and (not trials.works_on_meta or search.legal(halved)):
            yield halved
