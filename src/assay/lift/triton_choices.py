"""Inductor's own choices with other thresholds: which reductions hold whole rows, how others are split.

Options of a variant that begin with "assay." are meant for here; all others go to inductor as they are. Only
the process that runs inductor imports this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch._inductor.choices import InductorChoices
from torch._inductor.runtime.hints import ReductionHint

from assay.lift.record import CannotLift

OURS = "assay."
HOLD_ROWS, HOLD_COLUMNS, SPLIT = "assay.persistent_threshold", "assay.persistent_outer", "assay.split_factor"
DECOMPOSITIONS = "assay.decompositions"
"""For triton_decompositions.table_for."""
TEMPLATES = "assay.templates"
"""For tile_templates.with_tiles."""
ELSEWHERE = frozenset({DECOMPOSITIONS, TEMPLATES})
INDUCTORS_ROW, INDUCTORS_COLUMN = 1024, 64
"""Up to these lengths inductor holds a row, or a column, at once."""


def inductors_own(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that inductor knows."""
    return {name: value for name, value in options.items() if not name.startswith(OURS)}


def choices_for(options: Mapping[str, Any]) -> InductorChoices | None:
    """A handler for `V.set_choices_handler`; None where inductor's own will do."""
    ours = {name: value for name, value in options.items() if name.startswith(OURS) and name not in ELSEWHERE}
    if unknown := ours.keys() - {HOLD_ROWS, HOLD_COLUMNS, SPLIT}:
        raise CannotLift(f"no choice of inductor is named {min(unknown)}")
    if not ours:
        return None
    rows, columns = ours.get(HOLD_ROWS, INDUCTORS_ROW), ours.get(HOLD_COLUMNS, INDUCTORS_COLUMN)
    factor = ours.get(SPLIT, 1.0)

    class Choices(InductorChoices):
        @staticmethod
        def should_use_persistent_reduction(features: Any, cooperative_reduction: bool) -> bool:
            if cooperative_reduction or not getattr(features.reduction_numel, "is_number", False):
                return InductorChoices.should_use_persistent_reduction(features, cooperative_reduction)
            limit = rows if features.get_reduction_hint() == ReductionHint.INNER else columns
            return int(features.reduction_numel) <= limit

        @staticmethod
        def reduction_split_factor(
            device: torch.device, reduction_numel_hint: int, numel_hint: int, inner_reduction: bool
        ) -> int:
            usual = InductorChoices.reduction_split_factor(
                device, reduction_numel_hint, numel_hint, inner_reduction
            )
            return usual if usual == 1 else max(1, int(usual * factor))

    return Choices()
