"""Options of `assay search`: where candidates come from, how it goes about it, what it may spend."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from assay.cli.options import read_number, seconds_type
from assay.llm import LANGUAGES, Settings, read_settings
from assay.records import UserError

if TYPE_CHECKING:
    from assay.search import Limits

Command = TypeVar("Command", bound=Callable[..., Any])
PROPOSERS = ("compiler", "queue", "none")
STRATEGIES = ("evolution", "serial", "independent")
EVALUATIONS, STALLED, PERCENT = 60, 20, 95.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line says, the policy apart."""

    problem: str
    proposers: tuple[str, ...]
    models: tuple[Settings, ...]
    language: str | None
    prompts_folder: Path | None
    queue_folder: Path | None
    earlier: tuple[Path, ...]
    replay: Path | None
    strategy: str
    seed: int
    width: int | None
    time: float | None
    device_time: float | None
    evaluations: int
    tokens: int | None
    usd: float | None
    percent: float
    stalled: int
    run_file: str | None
    out: str | None
    device: str | None
    ray: str | None
    plain: bool
    as_json: bool

    def limits(self, *, polished: bool) -> Limits:
        """Those of the search proper; where knobs are polished at its end, that takes some evaluations."""
        from assay.search import Limits
        from assay.search.finish import POLISHED

        kept = min(POLISHED, self.evaluations // 4) if polished else 0
        return Limits(
            wall_s=self.time,
            device_s=self.device_time,
            evaluations=self.evaluations - kept,
            tokens=self.tokens,
            usd=self.usd,
            percent_of_limit=self.percent,
            stalled_after=self.stalled,
        )


def proposer_options(command: Command) -> Command:
    """Where candidates come from."""
    for option in (
        click.option("--replay", type=click.Path(), help="A recorded search: its answers and its verdicts."),
        click.option(
            "--from",
            "earlier",
            type=click.Path(),
            multiple=True,
            help="An earlier search: its best kernels are tried, its lessons used. May be repeated.",
        ),
        click.option("--queue", "queue_folder", type=click.Path(), help="Folder of --propose queue."),
        click.option("--prompts", "prompts_folder", type=click.Path(), help="Prompt files instead of ours."),
        click.option(
            "--language",
            type=click.Choice(list(LANGUAGES)),
            help="What models write. Default: triton on a GPU, cpp on a CPU.",
        ),
        click.option("--max-tokens", type=click.IntRange(min=1), help="Of one answer of a model."),
        click.option("--temperature", type=click.FloatRange(min=0), help="Default: the provider's."),
        click.option("--price", metavar="IN/OUT", help="Dollars for a million tokens, such as 3/15."),
        click.option("--model-url", metavar="URL", help="A server that speaks OpenAI's protocol."),
        click.option(
            "--model", "models", multiple=True, metavar="PROVIDER:NAME", help="Ask a model. May be repeated."
        ),
        click.option(
            "--propose",
            "proposers",
            multiple=True,
            type=click.Choice(PROPOSERS),
            help="compiler (default, needs nothing), queue (a person or agent answers), none.",
        ),
    ):
        command = option(command)
    return command


def budget_options(command: Command) -> Command:
    """What may be spent; whichever is reached first ends the search."""
    for option in (
        click.option(
            "--stalled",
            type=click.IntRange(min=1),
            default=STALLED,
            show_default=True,
            help="Evaluations without a better kernel.",
        ),
        click.option(
            "--percent",
            type=click.FloatRange(min=0, min_open=True, max=1000),
            callback=read_number,
            default=PERCENT,
            show_default=True,
            help="Of the physical limit: reached, it ends.",
        ),
        click.option("--usd", type=click.FloatRange(min=0), callback=read_number, help="Dollars for models."),
        click.option("--tokens", type=click.IntRange(min=1), help="Tokens of models."),
        click.option(
            "--evaluations",
            type=click.IntRange(min=1),
            default=EVALUATIONS,
            show_default=True,
            help="Verdicts.",
        ),
        click.option(
            "--device-time",
            type=seconds_type(),
            callback=read_number,
            help="Seconds of building and judging.",
        ),
        click.option(
            "--time",
            type=seconds_type(),
            callback=read_number,
            help="Seconds of searching; polishing takes up to a quarter more, confirming another start.",
        ),
    ):
        command = option(command)
    return command


def take_wanted(options: dict[str, Any]) -> Wanted:
    """Takes what is about the search out of the options; what is left is about judging."""
    names = ("models", "model_url", "price", "temperature", "max_tokens")
    about_models = {name: options.pop(name) for name in names}
    settings = tuple(_settings(name, about_models) for name in about_models["models"])
    if not settings and any(about_models[name] is not None for name in names[1:]):
        raise UserError(
            "--model-url, --price, --temperature and --max-tokens are about a model: give --model"
        )
    fields = [field.name for field in dataclasses.fields(Wanted) if field.name != "models"]
    given = {name: options.pop(name) for name in fields}
    for name in ("prompts_folder", "queue_folder", "replay"):
        given[name] = Path(given[name]) if given[name] else None
    given["earlier"] = tuple(Path(path) for path in given["earlier"])
    default = () if settings or given["replay"] else ("compiler",)
    if "none" in given["proposers"] and len(set(given["proposers"])) > 1:
        raise UserError("--propose none leaves nobody: give it alone, or leave it out")
    given["proposers"] = tuple(name for name in given["proposers"] or default if name != "none")
    if given["replay"] and (given["proposers"] or settings or given["earlier"]):
        raise UserError("--replay has all answers and verdicts: leave out --propose, --model and --from")
    if given["usd"] is not None and any(None in (one.price_in_usd, one.price_out_usd) for one in settings):
        raise UserError("--usd cannot be held while a price is unknown: tell it with --price IN/OUT")
    if ("queue" in given["proposers"]) != (given["queue_folder"] is not None):
        raise UserError("a queue needs both: --propose queue --queue FOLDER")
    if not (given["proposers"] or settings or given["earlier"] or given["replay"]):
        raise UserError("nobody is left to propose: give --propose compiler, --model, --from or --replay")
    return Wanted(models=settings, **given)


def _settings(name: str, given: dict[str, Any]) -> Settings:
    limit = {} if given["max_tokens"] is None else {"max_tokens": given["max_tokens"]}
    return read_settings(
        name, given["model_url"] or "", given["price"] or "", temperature=given["temperature"], **limit
    )
