"""What kind of problem one is: for tables and comparisons, no matter for the judge."""

from __future__ import annotations

from dataclasses import dataclass

CATEGORIES = (
    "elementwise",
    "reduction",
    "norm",
    "softmax",
    "matmul",
    "conv",
    "attention",
    "scan",
    "index",
    "loss",
    "quantisation",
    "sparse",
    "communication",
)
""""scan" holds state spaces, "index" sorting, "sparse" mixtures of experts."""
REGIMES = ("memory", "compute", "latency")


@dataclass(frozen=True, slots=True)
class About:
    """A problem's place in its suite; empty where nobody has said."""

    category: str = ""
    regime: str = ""
    """What bounds it at the size it is scored at."""
    level: int = 0
    """1 single operators, 2 fused chains, 3 blocks and models, 4 regions of models; 0 unknown."""
