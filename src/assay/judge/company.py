"""Who runs while others are timed."""

from __future__ import annotations

from assay.records import CandidateFailure
from assay.worker import Child

RAN_FROZEN_S, RAN_EACH_FREEZE_S, RAN_FROZEN_SHARE = 2e-3, 5e-4, 0.02
"""Many threads take a moment to stop, every time."""


def refuse_company(child: Child) -> None:
    """Freezing stops one process; whatever it has started could go on beside the opponent."""
    if count := child.company():
        text = f"started {count} processes that run while others are timed"
        raise CandidateFailure("rejected", "process_while_timed", text)
    excused_s = RAN_EACH_FREEZE_S * child.freezes + RAN_FROZEN_SHARE * child.frozen_s
    if child.ran_frozen_s > RAN_FROZEN_S + excused_s:
        text = f"ran for {child.ran_frozen_s * 1e3:.1f} ms while it was made to stand still"
        raise CandidateFailure("rejected", "ran_while_frozen", text)
