"""The mutation test of the judge: every bug of the catalogue, and which test noticed it.

Before a bug counts, the tests named for it must pass without it. What cannot be collected, and a catalogue
that no longer fits the source, are errors and no kills. A run that hangs is stopped and counts as noticed.
"""

from __future__ import annotations

import contextlib
import fnmatch
import importlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import wait
from pathlib import Path

from catalogue import MUTANTS
from mutant import ROOT, BadMutant, Mutant
from trial import Result, Template, Trial

WANTED_PERCENT = 95.0
PRELOADED = ("torch", "torch.testing", "torch.utils.flop_counter", "hypothesis", "triton")
"""Imported before the first fork, so that no trial pays for it."""
Started = Callable[[], Trial]


def main(patterns: list[str]) -> int:
    start_s = time.monotonic()
    chosen = [m for m in MUTANTS if not patterns or any(fnmatch.fnmatch(m.name, p) for p in patterns)]
    if not chosen:
        print(f"no mutant is called {' or '.join(patterns)}")
        return 1
    os.chdir(ROOT)
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # as many trials as processors run at once
    for module in PRELOADED:
        with contextlib.suppress(ImportError):  # whoever needs it will say so
            importlib.import_module(module)
    with tempfile.TemporaryDirectory(prefix="assay-mutants-") as name:
        folder = Path(name)
        template = Template(folder)
        faults = _unmutated(folder, template, chosen)
        killed, survived, errors = _mutated(folder, template, chosen, faults)
    count = len(chosen)
    print(f"\n{survived} survived, {errors} errors, {time.monotonic() - start_s:.0f} s")
    percent = 100 * killed / count
    print(f"mutation score: {killed} of {count} killed ({percent:.1f} %)")
    return 1 if errors or percent < WANTED_PERCENT else 0


def _unmutated(folder: Path, template: Template, mutants: list[Mutant]) -> dict[str, str]:
    """What is wrong with each selector without any bug; empty text where nothing is."""
    by_file: dict[str, list[str]] = {}
    for selector in dict.fromkeys(s for mutant in mutants for s in mutant.selectors):
        by_file.setdefault(selector.partition("::")[0], []).append(selector)
    for selectors in by_file.values():
        whole = [s for s in selectors if "::" not in s]
        selectors[:] = whole or selectors
    groups = [tuple(selectors) for selectors in by_file.values()]

    def starting(number: int, group: tuple[str, ...]) -> Started:
        return lambda: Trial(folder / f"unmutated-{number}", template, None, group)

    faults: dict[str, str] = {}
    for trial, result in _at_once(starting(k, group) for k, group in enumerate(groups)):
        for mutant in mutants:
            for selector in mutant.selectors:
                if selector.partition("::")[0] == trial.selectors[0].partition("::")[0]:
                    faults[selector] = _fault(selector, result)
    return faults


def _fault(selector: str, result: Result) -> str:
    """Why this selector proves nothing, if it does not."""
    if result.lost or result.late or result.broken:
        return result.lost or "; ".join(result.broken) or "takes too long"
    own = {
        n: o
        for n, o in result.outcomes.items()
        if n == selector or n.startswith((selector + "::", selector + "["))
    }
    failed = [name for name, outcome in own.items() if outcome == "failed"]
    if failed:
        return f"{failed[0]} fails without the mutation"
    return "" if "passed" in own.values() else "nothing there passes without the mutation"


def _mutated(
    folder: Path, template: Template, mutants: list[Mutant], faults: dict[str, str]
) -> tuple[int, int, int]:
    """How many were killed, survived, or were no mutants at all; one line for each."""
    killed = survived = errors = 0
    runnable = []
    for mutant in mutants:
        found = next(filter(None, (faults.get(s, f"{s} was not run") for s in mutant.selectors)), "")
        try:
            mutant.mutated(template.source / "assay")
        except BadMutant as bad:
            found = str(bad)
        if found:
            errors += 1
            _say("ERROR", mutant, found)
        else:
            runnable.append(mutant)

    def starting(mutant: Mutant) -> Started:
        return lambda: Trial(folder / mutant.name, template, mutant, mutant.selectors)

    for trial, result in _at_once(starting(mutant) for mutant in runnable):
        assert trial.mutant is not None
        word, how = _outcome(result)
        killed += word == "killed"
        survived += word == "SURVIVED"
        errors += word == "ERROR"
        _say(word, trial.mutant, how)
    return killed, survived, errors


def _outcome(result: Result) -> tuple[str, str]:
    if result.lost or (result.broken and not result.failed):
        return "ERROR", result.lost or "; ".join(result.broken)
    if result.failed:
        return "killed", f"by {result.failed}"
    if result.late:
        return "killed", "by time"
    return ("SURVIVED", "") if result.outcomes else ("ERROR", "no test was run")


def _at_once(starts: Iterable[Started]) -> Iterator[tuple[Trial, Result]]:
    """Results as they come, of as many trials at once as there are processors."""
    waiting, running = iter(starts), []
    try:
        while True:
            while len(running) < len(os.sched_getaffinity(0)) and (start := next(waiting, None)) is not None:
                running.append(start())
            if not running:
                return
            wait([trial.sentinel for trial in running], timeout=1.0)
            for trial in list(running):
                result = trial.result()
                if result is not None:
                    running.remove(trial)
                    yield trial, result
    finally:
        for trial in running:
            trial.stop()


def _say(word: str, mutant: Mutant, how: str) -> None:
    stands_for = f" ({mutant.stands_for})" if mutant.stands_for else ""
    how = " ".join(how.split())  # tracebacks have lines
    print(f"{word:8} {mutant.name}{stands_for}  src/assay/{mutant.file}  {how}".rstrip(), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
