"""Options of commands that ask a language model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from assay.llm import LANGUAGES, Prompts, Settings, read_settings
from assay.records import UserError

if TYPE_CHECKING:
    from assay.evaluation import Complete, Described, ModelSource, Suite

MOST_TOKENS = 16384
Command = TypeVar("Command", bound=Callable[..., Any])
NAMES = (
    "model",
    "model_url",
    "samples",
    "turns",
    "temperature",
    "max_tokens",
    "price",
    "language",
    "prompts_folder",
)


def model_options(command: Command) -> Command:
    """Which model, how often, and what it is told."""
    for option in (
        click.option(
            "--prompts",
            "prompts_folder",
            type=click.Path(),
            help="A folder with prompt files to use instead of ours.",
        ),
        click.option(
            "--language",
            type=click.Choice(list(LANGUAGES)),
            help="What the model writes. Default: triton on a GPU, cpp on a CPU.",
        ),
        click.option("--price", metavar="IN/OUT", help="Dollars for a million tokens, such as 3/15."),
        click.option(
            "--max-tokens",
            type=click.IntRange(min=1),
            help=f"Of one answer. Default: {MOST_TOKENS}.",
        ),
        click.option("--temperature", type=click.FloatRange(min=0), help="Default: the provider's."),
        click.option(
            "--turns",
            type=click.IntRange(min=1),
            help="Attempts in a row, each shown what became of the last. Default: 1.",
        ),
        click.option(
            "--samples",
            type=click.IntRange(min=1),
            help="Independent tries of every problem. Default: 1.",
        ),
        click.option("--model-url", metavar="URL", help="A server that speaks OpenAI's protocol."),
        click.option("--model", metavar="PROVIDER:NAME", help="Ask a model: openai:NAME, anthropic:NAME."),
    ):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class ModelWanted:
    """A model, as the command line names it."""

    settings: Settings
    samples: int
    turns: int
    language: str | None
    prompts_folder: Path | None

    def source(self, suite: Suite, described: Described, complete: Complete) -> ModelSource:
        from assay.evaluation import ModelSource

        prompts = Prompts.read(self.language or language_for(described.device), self.prompts_folder)
        return ModelSource(
            self.settings,
            suite,
            prompts,
            samples=self.samples,
            turns=self.turns,
            device=described.words,
            complete=complete,
        )


def language_for(device: str) -> str:
    """What a model writes where nobody says."""
    return "triton" if device.startswith("cuda") else "cpp"


def take_model(options: dict[str, Any]) -> ModelWanted | None:
    """Takes the model's options out; None if no model is named."""
    given = {name: options.pop(name) for name in NAMES}
    if given["model"] is None:
        if idle := [name for name, value in given.items() if value is not None]:
            option = "--" + idle[0].removesuffix("_folder").replace("_", "-")
            raise UserError(f"{option} is about a model: give --model PROVIDER:NAME as well")
        return None
    settings = read_settings(
        given["model"],
        given["model_url"] or "",
        given["price"] or "",
        temperature=given["temperature"],
        max_tokens=given["max_tokens"] or MOST_TOKENS,
    )
    folder = given["prompts_folder"]
    return ModelWanted(
        settings,
        given["samples"] or 1,
        given["turns"] or 1,
        given["language"],
        Path(folder) if folder else None,
    )
