"""What a candidate is: source text in one of the languages, and how it is entered.

Reading a candidate never runs it. Not covered: building and loading, which happen in the confined child.
"""

from __future__ import annotations

from dataclasses import dataclass

LANGUAGES = ("torch", "triton", "gluon", "cuda", "cpp")
ENTRIES = ("ModelNew", "custom_kernel", "forward", "launch", "extension")


@dataclass(frozen=True, slots=True)
class Candidate:
    """Source in one of the languages, with what is needed to enter it."""

    name: str
    source: str
    suffix: str
    """".py", ".cu" or ".cpp"."""
    language: str
    """One of LANGUAGES; for Python files it is read off the imports."""
    entry: str
    """One of ENTRIES: a class, a function, launch directives in comments, a torch extension's `forward`."""
    digest: str
    """sha256 of the source."""
