"""Timing exploits and their honest controls on the GPU: the tests are those of tests/exploits."""

from __future__ import annotations

import pytest
from test_timing import (
    judge,
    one_thread,
    test_honest_control_is_timed,
    test_timing_exploit_gains_nothing,
)

__all__ = ["judge", "one_thread", "test_honest_control_is_timed", "test_timing_exploit_gains_nothing"]
pytestmark = pytest.mark.gpu
