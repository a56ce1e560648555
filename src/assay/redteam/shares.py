"""A corpus shared among processes: what is not timed runs side by side, the rest alone afterwards.

Entries of one problem stay together, since a judge prepares a problem once. Not covered: several processes on
one GPU, where memory is shared too.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing.util import Finalize
from pathlib import Path

import torch

from assay.records import RedteamRow
from assay.redteam.corpus import Entry
from assay.redteam.walk import Judges, walk

_judges: list[Judges] = []
"""Of this process, if it is one of those that share."""
Told = Callable[[RedteamRow], None]


def walk_shared(entries: Sequence[Entry], device: str, jobs: int, on_row: Told) -> list[RedteamRow]:
    """Every entry's row, in the order of the entries, told as they come."""
    rows: dict[Path, RedteamRow] = {}

    def take(shares: Iterable[tuple[Entry, RedteamRow]]) -> None:
        for entry, row in shares:
            rows[entry.path] = row
            on_row(row)

    together = [entry for entry in entries if jobs > 1 and not entry.timed]
    if together:
        spawning = multiprocessing.get_context("spawn")
        threads = max(1, (os.cpu_count() or 1) // jobs)
        with ProcessPoolExecutor(jobs, spawning, _open_judges, (device, threads)) as pool:
            for done in as_completed(pool.submit(_walk_share, share) for share in _by_problem(together)):
                take(done.result())
    alone = [entry for entry in entries if entry.path not in rows]
    with Judges(device) as judges:
        for entry in alone:
            take(zip([entry], walk([entry], judges, lambda _row: None), strict=True))
    return [rows[entry.path] for entry in entries]


def _by_problem(entries: list[Entry]) -> list[list[Entry]]:
    """Entries of one problem and one policy together, the longest lists first."""
    shares: dict[tuple[Path, bool], list[Entry]] = {}
    for entry in entries:
        shares.setdefault((entry.problem, entry.forbid_libraries), []).append(entry)
    return sorted(shares.values(), key=len, reverse=True)


def _open_judges(device: str, threads: int) -> None:
    torch.set_num_threads(threads)
    os.environ["OMP_NUM_THREADS"] = str(threads)  # for the children
    judges = Judges(device)
    _judges.append(judges)
    Finalize(judges, judges.__exit__, args=(None, None, None), exitpriority=1)


def _walk_share(entries: list[Entry]) -> list[tuple[Entry, RedteamRow]]:
    return list(zip(entries, walk(entries, _judges[0], lambda _row: None), strict=True))
