"""`assay search PROBLEM`: the fastest kernel that holds, with its evidence, or the word that none does."""

from __future__ import annotations

import json
import queue
import sqlite3
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from assay.cli.crews import open_crew
from assay.cli.model_options import language_for
from assay.cli.options import SEARCH_RUNGS, baseline_options, crew_options, judging_options, policy_fields
from assay.cli.search_options import STRATEGIES as STRATEGY_NAMES
from assay.cli.search_options import Wanted, budget_options, proposer_options, take_wanted
from assay.cli.show_search import REPLAYED, show_ending, show_estimate, show_stopped
from assay.records import UserError

if TYPE_CHECKING:
    from assay.archive import SearchArchive
    from assay.evaluation import Crew, Described, Suite, Workers
    from assay.evaluation.ray_crew import RayCrew
    from assay.problems import Problem
    from assay.search import CompilerProposer, Proposer, Status, View
    from assay.search.protocol import Draft, Strategy
    from assay.search.snapshot import Command

RUNS, FOUND = Path(".assay/runs"), Path(".assay/found")
SUFFIXES = (".py", ".cu", ".cpp")
HOPPER = "compute capability 9."
FINISHING = 0.25
"""How long polishing and leaving out may take, of the time the search took."""


@click.command()
@click.argument("problem", type=click.Path())
@proposer_options
@click.option(
    "--strategy", type=click.Choice(STRATEGY_NAMES), default=STRATEGY_NAMES[0], show_default=True, help="How."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of random choices.")
@click.option("--width", type=click.IntRange(min=1, max=64), help="Requests at once. Default: 2, models 4.")
@budget_options
@click.option(
    "--run", "run_file", type=click.Path(), help="Its file. Default: .assay/runs/search-NAME.sqlite"
)
@click.option("--out", type=click.Path(), help="Where the winner goes. Default: .assay/found/NAME.py")
@crew_options
@click.option("--plain", is_flag=True, help="Lines instead of the live view.")
@click.option("--json", "as_json", is_flag=True, help="Print the result alone, as one JSON object.")
@judging_options
@baseline_options
def search(**options: Any) -> None:
    """Search a kernel for PROBLEM that is right and faster than the best that torch makes of it.

    Without a model, inductor's own code is lifted into a standalone file and changed from there. What is
    found is kept at once: stopped at any point, the same command goes on. Exit 0: a faster kernel was found
    and confirmed by a fresh judge, 1: nothing beat the best baseline, 2: no result, as nothing was judged.
    """
    wanted = take_wanted(options)
    policy = policy_fields(**options)
    if policy.get("speed") is False:
        raise UserError("a search needs times: leave out --no-speed")
    raise click.exceptions.Exit(_search(wanted, policy))


def _search(wanted: Wanted, policy: dict[str, Any]) -> int:
    # Imported here: torch takes seconds, and --help should not.
    from assay.archive import SearchArchive
    from assay.evaluation import read_suite

    if not Path(wanted.problem).exists():
        raise UserError(f"{wanted.problem} does not exist: name a problem's file")
    suite = read_suite(Path(wanted.problem))
    if len(suite.problems) != 1:
        trouble = suite.troubled[0].trouble if suite.troubled else f"{wanted.problem} holds several problems"
        raise UserError(f"{trouble}: a search is for one problem")
    (problem,) = suite.problems.values()
    path = Path(wanted.run_file) if wanted.run_file else RUNS / f"search-{problem.name}.sqlite"
    _check_out(wanted, path)
    if "rungs" not in policy and wanted.ray is None and _has_gpu(wanted.device):
        policy["rungs"] = SEARCH_RUNGS
    with SearchArchive(path, create=True) as archive:
        try:
            _settle_facts(archive, wanted, policy)
            archive.add_problem(suite.listed[0])
            return _Session(wanted, policy, suite, problem, archive).run()
        except sqlite3.OperationalError as error:
            raise UserError(f"{path}: {error}: make room for it, and the same command goes on") from error


def _check_out(wanted: Wanted, run: Path) -> None:
    """Before anything is spent: the winner's file can be written, and takes the place of nothing else."""
    if wanted.out is None:
        return
    out = Path(wanted.out)
    if out.suffix not in SUFFIXES or out.is_dir():
        raise UserError(f"--out {out}: name a file that ends in {', '.join(SUFFIXES)}")
    if out.resolve() in (Path(wanted.problem).resolve(), run.resolve()):
        raise UserError(f"--out {out}: that is the problem or the search itself")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out {out}: {error.strerror}") from error


def _has_gpu(device: str | None) -> bool:
    import torch

    return torch.cuda.is_available() if device is None else device.startswith("cuda")


def _settle_facts(archive: SearchArchive, wanted: Wanted, policy: dict[str, Any]) -> None:
    """A search that goes on must be the same search; what it may spend can change."""
    facts = {
        "label": f"search of {Path(wanted.problem).stem}",
        "suite": wanted.problem,
        "policy": policy,
        "device": wanted.device,
        "search": {"strategy": wanted.strategy, "seed": wanted.seed},
    }
    known = archive.facts()
    for name, value in json.loads(json.dumps(facts)).items():
        if name in known and known[name] != value:
            raise UserError(
                f"{archive.path} is a search with another {name} ({known[name]}): name a new one with --run"
            )
        archive.set_fact(name, value)


def _tiles_for(described: str) -> str:
    """What models are told of our own kernels; elsewhere than on Hopper torch would answer for them."""
    if HOPPER not in described:
        return ""
    from assay.tiles.catalog import told

    return told()


def _require_cxx(device: str) -> None:
    from assay.build import find_toolchain

    if device == "cpu" and find_toolchain(None).cxx is None:
        raise UserError("there is no C++ compiler here, and inductor's code for a CPU is C++: install g++")


def _no_list_of_actions(_actions: Sequence[str], _view: View) -> None:
    """Nobody here makes a candidate of a list of actions."""


class _Session:
    """One start of the command."""

    def __init__(
        self,
        wanted: Wanted,
        policy: dict[str, Any],
        suite: Suite,
        problem: Problem,
        archive: SearchArchive,
    ) -> None:
        self._wanted = wanted
        self._policy = policy
        self._suite = suite
        self._problem = problem
        self._archive = archive
        self._console = Console(stderr=True, emoji=False)
        self._ended = threading.Event()
        self._shown: View | None = None

    def run(self) -> int:
        from assay.search.finish import Finish

        with closing(self._open_crew()) as crew, ExitStack() as stack:
            device = self._device(crew)
            proposers, compiler = self._proposers(crew, device)
            rebuild, tune = _no_list_of_actions, None
            if compiler is not None:
                stack.enter_context(closing(compiler))
                rebuild, tune = compiler.rebuild, compiler.propose
            try:
                began = time.monotonic()
                reason = self._drive(crew, device, proposers)
                patience_s = FINISHING * (time.monotonic() - began)
                finish = Finish(self._archive, self._problem, device, rebuild, self._tell, patience_s)
                if tune is not None:
                    finish.polish(crew, tune)
                left_out = finish.shorten(crew)
            except KeyboardInterrupt:
                return show_stopped(self._console, self._archive, self._out(), self._shown)
        ending = finish.confirm(lambda: closing(self._open_crew()), left_out)
        view = finish.view()
        return show_ending(
            self._console, self._archive, view, ending, reason, self._out(), as_json=self._wanted.as_json
        )

    def _device(self, crew: Any) -> str:
        if self._wanted.replay is None:
            return crew.describe_device().device
        from assay.search import read_recording

        path, recording = self._wanted.replay, read_recording(self._wanted.replay, self._problem)
        if not recording.goes_on_in(self._archive):
            raise UserError(f"{self._archive.path} is no replay of {path}: name a new one with --run")
        self._archive.set_fact(REPLAYED, str(path))
        return recording.device

    def _open_crew(self) -> Any:
        wanted = self._wanted
        if wanted.replay is not None:
            from assay.search import read_recording

            return read_recording(wanted.replay, self._problem).workers
        return open_crew(self._suite, self._policy, device=wanted.device, jobs=None, ray=wanted.ray)

    def _drive(self, crew: Workers, device: str, proposers: list[Proposer]) -> str:
        from assay.cli.live_view import open_view
        from assay.search import Pace, Search
        from assay.search.showing import Showing

        wanted, limits = self._wanted, self._wanted.limits(polished="compiler" in self._wanted.proposers)
        show_estimate(self._console, self._archive, wanted, [proposer.name for proposer in proposers])
        commands: queue.Queue[Command] = queue.Queue()
        strategy = self._strategy()
        showing = Showing(self._problem.name, device, strategy.name, limits)
        width = wanted.width or (4 if wanted.models else 2)
        with open_view(self._console, wanted.plain or wanted.as_json, commands, self._detail) as shown:

            def watch(status: Status) -> None:
                self._shown = status.view
                shown.show(showing.snapshot(status))

            search = Search(
                self._archive,
                self._problem,
                device,
                proposers,
                strategy,
                crew,
                limits=limits,
                pace=Pace(open=width, waiting=1 if width == 1 else 2),
                watch=watch,
                commands=commands,
                ended=self._ended,
                brought=self._brought,
            )
            return search.drive(self._tell_waiting)

    def _strategy(self) -> Strategy:
        from assay.search import STRATEGIES, read_recording

        wanted = self._wanted
        if wanted.replay is not None:
            return read_recording(wanted.replay, self._problem).strategy
        return STRATEGIES[wanted.strategy](wanted.seed)

    def _proposers(self, crew: Crew | RayCrew, device: str) -> tuple[list[Proposer], CompilerProposer | None]:
        from assay.search import CompilerProposer, EarlierProposer, QueueProposer, read_recording

        wanted, found = self._wanted, list[Any]()
        compiler = None
        if wanted.replay is not None:
            found += read_recording(wanted.replay, self._problem).proposers
        if "compiler" in wanted.proposers:
            _require_cxx(device)
            told = crew.describe_device()
            compiler = CompilerProposer(self._problem, self._case(told), device, wanted.seed, told.facts)
            found.append(compiler)
        if wanted.models:
            found += self._models(crew, device)
        if wanted.queue_folder is not None:
            told = crew.describe_device()
            found.append(QueueProposer(wanted.queue_folder, described=told.words, stop=self._ended))
        if wanted.earlier:
            found.append(EarlierProposer.read(wanted.earlier, self._problem, device))
        return found, compiler

    def _models(self, crew: Crew | RayCrew, device: str) -> list[Proposer]:
        from assay.search import ModelProposer, proposer_names, read_prompts

        wanted = self._wanted
        prompts = read_prompts(wanted.language or language_for(device), wanted.prompts_folder)
        described = crew.describe_device().words
        tiles = _tiles_for(described)
        return [
            ModelProposer(settings, prompts, device=described, complete=crew.complete, name=name, tiles=tiles)
            for settings, name in zip(wanted.models, proposer_names(wanted.models), strict=True)
        ]

    def _brought(self) -> list[Draft]:
        """What somebody put into the queue's folder without being asked."""
        from assay.search.queue_folder import injected

        return [] if self._wanted.queue_folder is None else injected(self._wanted.queue_folder)

    def _case(self, told: Described) -> Any:
        from assay.judge import Policy, scored_case

        return scored_case(self._problem, Policy(**self._policy), told.memory)

    def _detail(self, candidate: int) -> str:
        """Asked from the view's own thread, so it reads what was last shown, not the archive."""
        from assay.llm import feedback

        member = None if self._shown is None else self._shown.by_id.get(candidate)
        if member is None or member.status is None:
            return "not judged yet"
        return feedback(member.status, member.verdict, member.record)

    def _out(self) -> Path:
        return Path(self._wanted.out) if self._wanted.out else FOUND / f"{self._problem.name}.py"

    def _tell(self, text: str) -> None:
        if not self._wanted.as_json:
            self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def _tell_waiting(self, count: int) -> None:
        paid = " that may be paid for" if self._wanted.models else ""
        self._tell(f"waiting for {count} answers{paid}; interrupt to give them up")
