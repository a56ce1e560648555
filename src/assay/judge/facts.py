"""What a child is asked at its end: what it replaced, and what it keeps of the device."""

from __future__ import annotations

from typing import Any

from assay.records import Finding
from assay.worker.messages import decode_names


def weigh_facts(facts: dict[str, Any]) -> list[Finding]:
    return _patched(facts.get("patched")) + _kept_cache(facts.get("persisting_l2_bytes"))


def _patched(names: object) -> list[Finding]:
    """Clocks, synchronisation or comparisons replaced."""
    patched = decode_names(names)
    return [Finding("patched_names", f"replaced {', '.join(patched)}", True)] if patched else []


def _kept_cache(set_aside_bytes: object) -> list[Finding]:
    """Cache set aside for later calls would be taken from everything else in a model."""
    if not isinstance(set_aside_bytes, int) or set_aside_bytes <= 0:
        return []
    text = f"sets {set_aside_bytes >> 20} MiB of the L2 cache aside for itself and leaves it so"
    return [Finding("persisting_l2", text, True)]
