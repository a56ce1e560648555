"""A dispatch mode that does not import the compiler."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):
    """torch keeps its compiler out of modes, and imports all of it for that: a second and 900 modules."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
