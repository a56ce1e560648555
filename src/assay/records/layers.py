"""One layer of the confinement of a child process: was it applied, and how or why not.

The list of layers goes into the verdict, so that a reader knows under which protection it was reached.
Not covered: applying them, which is the sandbox's work.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layer:
    """What became of one layer."""

    name: str
    """One of `assay.sandbox.LAYERS`."""
    active: bool
    detail: str
    """How it was applied, or why it could not be; for a person to read."""
