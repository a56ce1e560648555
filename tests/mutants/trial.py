"""Tests run against one copy of the source, in a process of their own that is forked with torch imported.

The copy lies on disk, so that processes the tests start import the same mutated text. Unchanged files are
links to one compiled copy: a trial reads them without compiling them again.
"""

from __future__ import annotations

import compileall
import json
import multiprocessing
import os
import shutil
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mutant import ROOT, Mutant

LIMIT_S = 120.0
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one run of pytest."""

    outcomes: dict[str, str] = field(default_factory=dict)
    """Node id to "passed", "failed" or "skipped"."""
    broken: tuple[str, ...] = ()
    """What could not be collected."""
    late: bool = False
    """It was stopped at the limit."""
    lost: str = ""
    """Why there is no result at all; empty if there is one."""

    @property
    def failed(self) -> str:
        """The first test that failed; empty if none did."""
        return next((name for name, outcome in self.outcomes.items() if outcome == "failed"), "")


class _Watcher:
    """Takes down what pytest reports."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}
        self.broken: list[str] = []

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.broken.append(f"{report.nodeid}: {str(report.longrepr)[-300:]}")

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.outcomes[report.nodeid] = "failed"
        elif report.when == "call" or report.skipped:
            self.outcomes.setdefault(report.nodeid, report.outcome)


class Template:
    """The source as it is, compiled once."""

    def __init__(self, folder: Path) -> None:
        self.source = folder / "template"
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / "src", self.source, ignore=ignored)
        compileall.compile_dir(str(self.source), quiet=1)

    def copy_to(self, folder: Path, mutant: Mutant | None) -> None:
        """A copy with the mutant's bug in it, or none."""
        shutil.copytree(self.source, folder, copy_function=os.link)
        if mutant is None:
            return
        path = folder / "assay" / mutant.file
        text = mutant.mutated(self.source / "assay")
        # Unlinked first: the link leads to the text that all other trials read.
        path.unlink()
        path.write_text(text, encoding="utf-8")
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()


class Trial:
    """One run under way."""

    def __init__(
        self, folder: Path, template: Template, mutant: Mutant | None, selectors: tuple[str, ...]
    ) -> None:
        self.mutant = mutant
        self.selectors = selectors
        self._folder = folder
        folder.mkdir()
        template.copy_to(folder / "src", mutant)
        self._process = _FORK.Process(target=_run, args=(folder, selectors, mutant is not None))
        self._start_s = time.monotonic()
        self._process.start()

    @property
    def sentinel(self) -> int:
        return self._process.sentinel

    def seconds(self) -> float:
        return time.monotonic() - self._start_s

    def result(self) -> Result | None:
        """What came of it, or None while it runs."""
        late = self._process.exitcode is None and self.seconds() > LIMIT_S
        if late:
            self.stop()
        elif self._process.exitcode is None:
            return None
        self._process.join()
        try:
            found = json.loads((self._folder / "result.json").read_text())
        except FileNotFoundError:
            tail = (self._folder / "output").read_text(errors="replace")[-600:]
            lost = "" if late else f"ended with {self._process.exitcode}: {tail}"
            return Result(late=late, lost=lost)
        finally:
            shutil.rmtree(self._folder)
        return Result(found["outcomes"], tuple(found["broken"]), late)

    def stop(self) -> None:
        """End it, and what it started: they share its process group."""
        if self._process.pid is not None and self._process.exitcode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.join()


def _run(folder: Path, selectors: tuple[str, ...], first_failure_ends: bool) -> None:
    """In the forked process."""
    os.setpgid(0, 0)
    output = os.open(folder / "output", os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    source = str(folder / "src")
    # What failed under a bug must not be tried again first by those who run the tests without it.
    os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(folder / "hypothesis")
    os.environ["PYTHONPATH"] = source
    sys.path.insert(0, source)
    watcher = _Watcher()
    arguments = ["-q", "-p", "no:cacheprovider", *(["-x"] if first_failure_ends else []), *selectors]
    pytest.main(arguments, plugins=[watcher])
    imported = str(getattr(sys.modules.get("assay"), "__file__", ""))
    if not imported.startswith(source):
        watcher.broken.append(f"the tests imported {imported or 'nothing'} instead of the copy")
    found = {"outcomes": watcher.outcomes, "broken": watcher.broken}
    (folder / "result.json").write_text(json.dumps(found))
    sys.stdout.flush()
    # Not through the interpreter's own end: whatever the tests left running would be waited for.
    os._exit(0)
