"""`assay eval SUITE`: many candidates judged, kept in one file, resumed by the same command."""

from __future__ import annotations

import dataclasses
import fnmatch
import json
import re
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from assay.cli.crews import open_crew
from assay.cli.model_options import ModelWanted, model_options, take_model
from assay.cli.options import baseline_options, crew_options, judging_options, policy_fields
from assay.cli.show_run import show_run
from assay.cli.terminal import echo
from assay.records import UserError, to_json

if TYPE_CHECKING:
    from assay.archive import Archive
    from assay.evaluation import Crew, Progress, Source, Suite
    from assay.evaluation.ray_crew import RayCrew

RUNS = Path(".assay/runs")
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line says, the policy apart."""

    suite: str
    model: ModelWanted | None
    candidates: str | None
    replay: str | None
    earlier: str | None
    run_file: str | None
    only: tuple[str, ...]
    jobs: int | None
    device: str | None
    ray: str | None
    retry_failures: bool
    as_json: bool


@click.command("eval")
@click.argument("suite", type=click.Path())
@click.option("--candidates", type=click.Path(), help="A folder of files called after their problems.")
@click.option("--replay", type=click.Path(), help="A file of JSON lines, each one candidate.")
@click.option("--from", "earlier", type=click.Path(), help="An earlier run: its candidates, judged again.")
@model_options
@click.option("--run", "run_file", type=click.Path(), help="The run's file. Default: .assay/runs/NAME.sqlite")
@click.option("--only", multiple=True, metavar="GLOB", help="Problems by name; may be given several times.")
@click.option("--jobs", type=click.IntRange(min=1), help="Workers on each device; several need --no-speed.")
@crew_options
@click.option("--retry-failures", is_flag=True, help="Judge again where the judge itself failed.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary alone, as one JSON object.")
@judging_options
@baseline_options
def evaluate(**options: Any) -> None:
    """Judge candidates for the problems of SUITE and score them.

    SUITE is a folder of problems (Assay's suite, a KernelBench checkout, task folders) or one problem. What
    is judged is kept at once: stopped at any point, the same command goes on. Exit 0 when all are judged, 1
    when the judge failed on some.
    """
    names = [field.name for field in dataclasses.fields(Wanted) if field.name != "model"]
    model = take_model(options)
    wanted = Wanted(model=model, **{name: options.pop(name) for name in names})
    if sum(given is not None for given in (model, wanted.candidates, wanted.replay, wanted.earlier)) != 1:
        raise UserError(
            "where do candidates come from? give one of --candidates, --model, --replay and --from"
        )
    # Flawed problems are judged and scored apart.
    policy = {**policy_fields(**options), "allow_flawed": True}
    _evaluate(wanted, policy)


def _evaluate(wanted: Wanted, policy: dict[str, Any]) -> None:
    # Imported here: torch takes seconds, and --help should not.
    from assay.archive import Archive
    from assay.evaluation import read_suite

    console = Console(stderr=True)
    suite = _chosen(read_suite(Path(wanted.suite)), wanted.only)
    for problem in suite.troubled:
        console.print(f"[yellow]left out:[/] {escape(problem.trouble)}", soft_wrap=True)
    with closing(open_crew(suite, policy, device=wanted.device, jobs=wanted.jobs, ray=wanted.ray)) as crew:
        source = _source(wanted, suite, crew, console)
        again = "-again" if wanted.earlier else ""
        path = Path(wanted.run_file) if wanted.run_file else RUNS / f"{_plain(source.label)}{again}.sqlite"
        if wanted.earlier and path.resolve() == Path(wanted.earlier).resolve():
            raise UserError(f"{path} is the run the candidates come from: name another with --run")
        with Archive(path, create=True) as archive:
            _settle_facts(archive, wanted, source, policy)
            if wanted.retry_failures:
                archive.forget_failures()
            _drive(archive, suite, source, crew, console)
            if wanted.as_json:
                from assay.report import summary_of

                echo(to_json(summary_of(archive)))
            else:
                show_run(Console(), archive)
            if archive.failures():
                raise click.exceptions.Exit(1)


def _chosen(suite: Suite, only: tuple[str, ...]) -> Suite:
    if not only:
        return suite
    names = {problem.name for problem in suite.listed for glob in only if fnmatch.fnmatch(problem.name, glob)}
    if not names:
        raise UserError(f"--only: no problem is called {' or '.join(only)}")
    return dataclasses.replace(
        suite,
        problems={name: problem for name, problem in suite.problems.items() if name in names},
        listed=tuple(problem for problem in suite.listed if problem.name in names),
    )


def _source(wanted: Wanted, suite: Suite, crew: Crew | RayCrew, console: Console) -> Source:
    from assay.evaluation import FolderSource, ReplaySource, RunSource

    if wanted.model is not None:
        return wanted.model.source(suite, crew.describe_device(), crew.complete)
    if wanted.replay is not None or wanted.earlier is not None:
        known = ReplaySource(Path(wanted.replay)) if wanted.replay else RunSource(Path(str(wanted.earlier)))
        if strangers := known.strangers(suite):
            names = escape(", ".join(strangers[:_SHOWN]))
            console.print(f"[yellow]not in the suite, left out:[/] {names}", soft_wrap=True)
        if not any(known.samples(name) for name in suite.problems):
            raise UserError(f"{known.label}: has no candidate for any problem of the suite")
        return known
    source = FolderSource(Path(str(wanted.candidates)), suite)
    if source.unmatched:
        names = ", ".join(path.name for path in source.unmatched[:_SHOWN])
        console.print(f"[yellow]{len(source.unmatched)} files belong to no problem:[/] {escape(names)}")
    return source


def _settle_facts(archive: Archive, wanted: Wanted, source: Source, policy: dict[str, Any]) -> None:
    """A run that goes on must be the same run."""
    facts = {"label": source.label, "suite": wanted.suite, "policy": policy, "device": wanted.device}
    if wanted.model is not None:
        # Samples, turns and prices may change from start to start; what the model is and is told may not.
        unchanging = ("provider", "model", "url", "temperature", "max_tokens")
        facts["model"] = {name: getattr(wanted.model.settings, name) for name in unchanging}
        facts["prompts"] = source.prompts
    known = archive.facts()
    for name, value in json.loads(json.dumps(facts)).items():  # as they will be read: no tuples
        if name in known and known[name] != value:
            raise UserError(
                f"{archive.path} is a run with another {name} ({known[name]}): name a new one with --run"
            )
        archive.set_fact(name, value)


def _drive(archive: Archive, suite: Suite, source: Source, crew: Crew | RayCrew, console: Console) -> None:
    from assay.evaluation import Run

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=False),
    )
    with Bar(*columns, console=console) as bar:
        line = bar.add_task("judging", total=None)

        def tell(progress: Progress) -> None:
            one = progress.last
            bar.update(line, completed=progress.judged, total=progress.known)
            if not console.is_terminal:
                where = f"{one.candidate.problem} sample {one.candidate.sample} turn {one.candidate.turn}"
                console.print(f"{progress.judged}/{progress.known} {where}: {one.status}", soft_wrap=True)

        def wait(count: int) -> None:
            console.print(f"waiting for {count} answers that are paid for; interrupt again to give them up")

        try:
            Run(archive, suite, source, crew).drive(tell, wait)
        except KeyboardInterrupt:
            known, judged = archive.counts()
            console.print(f"stopped: {judged} of {known} are judged and kept in {archive.path}")
            console.print("the same command goes on from there")
            raise click.exceptions.Exit(130) from None


def _plain(label: str) -> str:
    return re.sub(r"[^\w.-]+", "-", Path(label).stem or label).strip("-") or "run"
