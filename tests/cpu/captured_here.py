"""Inductor in this process, for tests of what it generates: one of their own would import it once more."""

from __future__ import annotations

import contextlib
import json
import warnings
from typing import Any
from unittest import mock

from assay import lift
from assay.problems import Case
from assay.records import from_plain, to_plain


def captured_here(problem: Any, case: Case, variant: str = "base") -> lift.Capture:
    """What a `Capturer` for the CPU answers; this process is left as it was."""
    subject = {"path": problem.path, "case": to_plain(case), "device": "cpu", "facts": None}
    with contextlib.ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        # Not before it is needed: whoever only collects tests would wait for it.
        from assay.lift.capture_process import GraphLowering, _Desk, inductor_config

        stack.enter_context(inductor_config.patch(compile_threads=1))
        own = GraphLowering.compile_to_module
        stack.enter_context(mock.patch.object(GraphLowering, "compile_to_module", own))
        capture = _Desk(json.loads(json.dumps(subject)), stack).captured(variant)
    return from_plain(lift.Capture, json.loads(json.dumps(to_plain(capture))), "capture")
