"""`assay publish RUN` and `assay verify FILE`: a run that anybody can judge again."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.markup import escape

from assay.archive import Archive, Bundle, read_bundle, write_bundle
from assay.records import UserError, from_plain

if TYPE_CHECKING:
    from assay.evaluation.verifying import Checked

SUFFIX = ".assay.zip"
SAMPLE = 10


@click.command()
@click.argument("run", type=click.Path())
@click.option("--out", type=click.Path(dir_okay=False), help=f"Default: beside the run, ending in {SUFFIX}")
def publish(run: str, out: str | None) -> None:
    """Write RUN as one file with all sources, verdicts and the environment, bound by one digest."""
    path = Path(out) if out else Path(run).with_suffix(SUFFIX)
    with Archive(Path(run)) as archive:
        root = write_bundle(archive, path)
    click.echo(f"published: {path}\nroot: {root}")


@click.command()
@click.argument("file", type=click.Path())
@click.option(
    "--sample", type=click.IntRange(min=0), default=SAMPLE, show_default=True, help="How many to judge again."
)
@click.option("--root", help="The root that was published with it: refuse any other file.")
@click.option("--suite", type=click.Path(), help="Your own copy of the problems; they must be the same.")
@click.option(
    "--trust-problems", is_flag=True, help="Run the file's own problems: code of its publisher, unconfined."
)
@click.option("--device", help="cpu, cuda or cuda:N. Default: the GPU if there is one.")
def verify(
    file: str, sample: int, root: str | None, suite: str | None, trust_problems: bool, device: str | None
) -> None:
    """Check that FILE is whole, and judge some of its candidates again.

    They are judged as they were, with the policy of the run. Candidates are confined, problems are not: name
    the suite they are of, or trust the publisher. Exit 0: it holds, 1: it does not, 2: it cannot be told.
    """
    bundle = read_bundle(Path(file))
    if root is not None and root != bundle.root:
        raise UserError(f"{file} has the root {bundle.root}, not the one that was published")
    console = Console(highlight=False, soft_wrap=True)
    label = escape(bundle.label)
    console.print(f"{escape(file)}: whole; {len(bundle.judged)} verdicts of {label}, root {bundle.root[:16]}")
    if not sample:
        return
    if (suite is None) == (not trust_problems):
        raise UserError("problems run unconfined: name your own copy with --suite, or give --trust-problems")
    checked = _judged_again(bundle, sample, suite, device, console)
    held = sum(not one.trouble for one in checked)
    console.print(f"{held} of {len(checked)} hold")
    raise click.exceptions.Exit(0 if held == len(checked) else 1)


def _judged_again(
    bundle: Bundle, sample: int, suite: str | None, device: str | None, console: Console
) -> list[Checked]:
    from assay.evaluation import read_suite
    from assay.evaluation.crew import Crew
    from assay.evaluation.verifying import drawn, find_problems, judge_again, write_problems
    from assay.judge import Policy

    def tell(one: Checked) -> None:
        mark = "[red]differs[/]" if one.trouble else "[green]holds[/]"
        told = escape(f"{one.problem} {one.name}: {one.trouble or one.found}")
        console.print(f"{mark}  {told}")

    policy = bundle.facts.get("policy", {})
    try:
        from_plain(Policy, policy, "policy")
    except UserError as error:
        raise UserError(f"this Assay does not know the policy it was judged under ({error})") from error
    members = drawn(bundle, sample)
    if not members:
        raise UserError("nothing in it has a verdict: there is nothing to judge again")
    with tempfile.TemporaryDirectory(prefix="assay-verify-") as folder:
        places = (
            find_problems(bundle, members, read_suite(Path(suite)))
            if suite is not None
            else write_problems(bundle, members, Path(folder))
        )
        with closing(Crew([device or _device()], policy)) as crew:
            return judge_again(members, places, crew, tell)


def _device() -> str:
    import torch  # takes seconds, and --help should not

    return "cuda" if torch.cuda.is_available() else "cpu"
