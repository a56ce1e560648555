"""`compiler` alone over many problems: what it finds, against the best baseline, and what it costs.

    python benchmarks/search_suite.py suite/level1 --only '*softmax*' --evaluations 60 --out FOLDER

One judge serves all searches; every winner is judged again by a second one, started when all searches have
ended. Writes a table (JSON) and, for each problem, the file of the search and the source of the winner. Begun
again with the same folder it goes on.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import torch
from compiling import compile_at_once

from assay.archive import SearchArchive
from assay.cli.crews import open_crew
from assay.evaluation import Suite, read_suite
from assay.judge import Policy, device_memory, read_environment, resolve_device, scored_case
from assay.problems import Problem
from assay.records import to_plain
from assay.search import STRATEGIES, CompilerProposer, Ending, Finish, Limits, Pace, Search, Status
from assay.search.finish import POLISHED

SEARCHED = "searched"
"""The fact of an archive that says what its search took: it has ended."""


class Bench:
    """Searches of one folder, one after the other."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._out = Path(options.out)
        self._policy: dict[str, Any] = {}
        if options.rungs:
            self._policy["rungs"] = tuple(options.rungs.split(","))
        if options.small:
            self._policy["most_input_bytes"] = int(options.small * (1 << 20))
        suite = read_suite(Path(options.suite))
        wanted = [name for glob in options.only for name in fnmatch.filter(suite.problems, glob)]
        self._suite = Suite({name: suite.problems[name] for name in wanted}, suite.listed)
        self._device = str(resolve_device(options.device))
        self._finishes: dict[str, tuple[Finish, tuple[str, ...], dict[str, Any]]] = {}
        self._archives: list[SearchArchive] = []

    def run(self) -> None:
        self._out.mkdir(parents=True, exist_ok=True)
        if self._options.ahead:
            paths = [Path(problem.path) for problem in self._suite.problems.values()]
            compile_at_once(paths, self._device, self._options.ahead)
        start = time.monotonic()
        with closing(self._crew()) as crew, ThreadPoolExecutor(1) as ahead:
            coming = iter(self._suite.problems.values())
            following = ahead.submit(self._proposer, next(coming, None))
            idle = time.monotonic()
            while (ready := following.result()) is not None:
                following = ahead.submit(self._proposer, next(coming, None))
                problem, compiler = ready
                with closing(compiler):
                    if time.monotonic() - start > self._options.time:
                        print("no time left for", problem.name)
                    else:
                        self._search(problem, compiler, crew, time.monotonic() - idle)
                idle = time.monotonic()
        if self._options.confirm:
            self._confirm_all()
        for archive in self._archives:
            archive.close()

    def _crew(self) -> Any:
        return open_crew(self._suite, self._policy, device=self._device, jobs=None, ray=None)

    def _proposer(self, problem: Problem | None) -> tuple[Problem, CompilerProposer] | None:
        """For the next problem, while the last one is judged."""
        if problem is None:
            return None
        case = scored_case(problem, Policy(**self._policy), device_memory(self._device))
        compiler = CompilerProposer(problem, case, self._device, 0)
        if not self._is_searched(problem):
            compiler.capture_ahead()
        return problem, compiler

    def _is_searched(self, problem: Problem) -> bool:
        path = self._out / f"{problem.name}.sqlite"
        if not path.exists():
            return False
        with SearchArchive(path) as archive:
            return SEARCHED in archive.facts()

    def _search(self, problem: Problem, compiler: CompilerProposer, crew: Any, waited_s: float) -> None:
        archive = SearchArchive(self._out / f"{problem.name}.sqlite", create=True)
        self._archives.append(archive)
        archive.set_fact("label", f"search of {problem.name}")
        archive.add_problem(next(one for one in self._suite.listed if one.name == problem.name))
        finish = Finish(archive, problem, self._device, compiler.rebuild, print)
        known = archive.facts().get(SEARCHED)
        if known is None:
            known = {"waited_s": waited_s, **self._searched(archive, problem, compiler, crew)}
            if self._options.polish:
                finish.polish(crew, compiler.propose)
            known["left_out"] = finish.shorten(crew) if self._options.shorten else ()
            archive.set_fact(SEARCHED, known)
        self._finishes[problem.name] = (finish, tuple(known["left_out"]), known)

    def _searched(
        self, archive: SearchArchive, problem: Problem, compiler: CompilerProposer, crew: Any
    ) -> dict[str, Any]:
        """The search itself: what it took."""
        began = time.monotonic()

        def watch(status: Status) -> None:
            if status.event:
                print(f"{time.monotonic() - began:7.1f} {problem.name} {status.event}", flush=True)

        search = Search(
            archive,
            problem,
            self._device,
            [compiler],
            STRATEGIES["evolution"](0),
            crew,
            limits=Limits(
                wall_s=self._options.each,
                evaluations=self._options.evaluations - POLISHED * self._options.polish,
                stalled_after=self._options.stalled,
                percent_of_limit=95,
            ),
            pace=Pace(open=3, waiting=2),
            watch=watch,
            commands=queue.Queue(),
            ended=threading.Event(),
        )
        before = {member.id for member in search.view().judged}
        reason = search.drive(lambda count: None)
        search.settle()
        wall = time.monotonic() - began
        view = search.view()
        busy = sum(member.seconds for member in view.judged if member.id not in before)
        return {
            "reason": reason,
            "wall_s": wall,
            "judging_s": busy,
            "overhead": 1 - busy / wall,
            "judged": len(view.judged),
            "judged_before": len(before),
            "right": sum(m.is_right for m in view.judged),
            "duplicates": sum(m.duplicate_of is not None for m in view.members),
        }

    def _confirm_all(self) -> None:
        rows: list[dict[str, Any]] = []
        table = {
            "environment": to_plain(read_environment(torch.device(self._device))),
            "policy": self._policy,
            "evaluations": self._options.evaluations,
            "rows": rows,
        }
        with closing(self._crew()) as crew:
            for name, (finish, left_out, facts) in self._finishes.items():
                ending = finish.confirm(lambda: nullcontext(crew), left_out)
                rows.append({"problem": name, **facts, **self._row(name, finish, ending)})
                print(json.dumps(rows[-1], default=str), flush=True)
                (self._out / "table.json").write_text(json.dumps(table, indent=1, default=str))

    def _row(self, name: str, finish: Finish, ending: Ending) -> dict[str, Any]:
        best = finish.view().best
        row: dict[str, Any] = {"refused": ending.refused, "best_in_search": None}
        if best is not None and best.ratio is not None:
            row["best_in_search"] = to_plain(best.ratio)
        if ending.winner is None or ending.verdict is None or ending.verdict.speed is None:
            return {**row, "faster": False, "ratio": 1.0}
        speed = ending.verdict.speed
        (self._out / f"{name}.py").write_text(ending.winner.draft.source)
        line = finish.view().ancestry(ending.winner)
        return {
            **row,
            "faster": True,
            "ratio": speed.ratio.middle,
            "interval": [speed.ratio.low, speed.ratio.high],
            "opponent": speed.opponent,
            "device_us": speed.times.device_us,
            "percent": None if speed.roofline is None else speed.roofline.percent,
            "rungs": {r.name: r.times.device_us if r.times else r.absent for r in speed.rungs},
            "actions": ending.winner.draft.actions,
            "lineage": [f"#{m.id} {m.draft.name}: {m.draft.note}" for m in line],
            "split": dict(ending.split),
            "left_out": ending.left_out,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite")
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--evaluations", type=int, default=60)
    parser.add_argument("--stalled", type=int, default=20)
    parser.add_argument("--each", type=float, default=600.0, help="seconds for one search")
    parser.add_argument("--time", type=float, default=86400.0, help="seconds after which no search begins")
    parser.add_argument("--device")
    parser.add_argument("--ahead", type=int, default=0, help="compile aot-inductor first, so many at once")
    parser.add_argument("--rungs")
    parser.add_argument("--small", type=float)
    parser.add_argument("--polish", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--shorten", action="store_true")
    parser.add_argument("--confirm", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--out", required=True)
    options = parser.parse_args()
    options.only = options.only or ["*"]
    Bench(options).run()


if __name__ == "__main__":
    main()
