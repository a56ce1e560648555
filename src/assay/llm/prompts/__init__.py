"""What a model is told: files that a person may edit or replace, one by one.

`first.md` asks for a first attempt, `next.md` for a better one, `system.md` says who is asked; `rules_*.md`
and `example_*` are put into them. In all of them `$name` is replaced; `$$` writes a dollar sign. Other
packages bring templates of their own and use our rules and examples.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from assay.llm.answers import Spoken
from assay.records import UserError, digest

LANGUAGES = {"triton": ".py", "cuda": ".cu", "cpp": ".cpp"}
"""What a model may be asked for, and the suffix of its worked example."""
FIRST = ("device", "problem", "fence")
LATER = ("attempts", "candidate", "feedback")
"""What templates may name, beside rules, example and language."""


@dataclass(frozen=True, slots=True)
class Prompts:
    """The files of one language or several, read once."""

    language: str
    """What is asked for where nothing else is said."""
    files: dict[str, str]

    @staticmethod
    def read(language: str, folder: Path | None = None) -> Prompts:
        """Those of `folder` before our own."""
        templates = {"first.md": FIRST, "next.md": (*FIRST, *LATER)}
        return Prompts.read_package(__name__, templates, [language], folder)

    @staticmethod
    def read_package(
        package: str,
        templates: Mapping[str, tuple[str, ...]],
        languages: Sequence[str],
        folder: Path | None = None,
    ) -> Prompts:
        """Templates and system.md of a package, with the names that each may use; the first language is
        the one that is asked for."""
        own = ("system.md", *templates)
        shared = tuple(
            name
            for language in languages
            for name in (f"rules_{language}.md", f"example_{language}{LANGUAGES[language]}")
        )
        if folder is not None:
            _check(folder, (*own, *shared))
        files = {
            **{name: _text(name, package, folder) for name in own},
            **{name: _text(name, __name__, folder) for name in shared},
        }
        prompts = Prompts(languages[0], files)
        # A mistake in what is only said later is told now, before anything is paid for.
        for name, known in templates.items():
            for language in languages:
                prompts.spoken(name, dict.fromkeys(known, ""), language)
        return prompts

    @property
    def digest(self) -> str:
        return digest(*(part for entry in sorted(self.files.items()) for part in entry))

    def first(self, values: dict[str, str]) -> Spoken:
        return self.spoken("first.md", values)

    def next(self, values: dict[str, str]) -> Spoken:
        return self.spoken("next.md", values)

    def spoken(self, name: str, values: dict[str, str], language: str = "") -> Spoken:
        """A template filled in, with the rules and the example of this language."""
        language = language or self.language
        example = self.files[f"example_{language}{LANGUAGES[language]}"]
        rules = self._filled(f"rules_{language}.md", values)
        known = {**values, "rules": rules, "example": example.strip(), "language": language}
        return Spoken(self._filled("system.md", known), self._filled(name, known))

    def _filled(self, name: str, values: dict[str, str]) -> str:
        try:
            return string.Template(self.files[name]).substitute(values).strip()
        except KeyError as error:
            raise UserError(f"{name}: nothing is known as ${error.args[0]}: write $$ for a dollar") from error
        except ValueError as error:
            raise UserError(f"{name}: {error}: write $$ for a dollar sign") from error


def _check(folder: Path, names: tuple[str, ...]) -> None:
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder of prompts: check the path")
    if not any((folder / name).is_file() for name in names):
        raise UserError(f"{folder}: holds none of {', '.join(names)}")


def _text(name: str, package: str, folder: Path | None) -> str:
    if folder is not None and (folder / name).is_file():
        try:
            return (folder / name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{folder / name} cannot be read ({error})") from error
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")
