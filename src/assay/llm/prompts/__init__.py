"""What a model is told: files that a person may edit or replace, one by one.

`first.md` asks for a first attempt, `next.md` for a better one, `system.md` says who is asked; `rules_*.md`
and `example_*` are put into them. In all of them `$name` is replaced; `$$` writes a dollar sign.
"""

from __future__ import annotations

import string
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
    """The files of one language, read once."""

    language: str
    files: dict[str, str]

    @staticmethod
    def read(language: str, folder: Path | None = None) -> Prompts:
        """Those of `folder` before our own."""
        suffix = LANGUAGES[language]
        names = ("system.md", "first.md", "next.md", f"rules_{language}.md", f"example_{language}{suffix}")
        if folder is not None:
            _check(folder, names)
        prompts = Prompts(language, {name: _text(name, folder) for name in names})
        # A mistake in what is only said later is told now, before anything is paid for.
        prompts.first(dict.fromkeys(FIRST, ""))
        prompts.next(dict.fromkeys((*FIRST, *LATER), ""))
        return prompts

    @property
    def digest(self) -> str:
        return digest(*(part for entry in sorted(self.files.items()) for part in entry))

    def first(self, values: dict[str, str]) -> Spoken:
        return self._spoken("first.md", values)

    def next(self, values: dict[str, str]) -> Spoken:
        return self._spoken("next.md", values)

    def _spoken(self, name: str, values: dict[str, str]) -> Spoken:
        suffix = LANGUAGES[self.language]
        example = self.files[f"example_{self.language}{suffix}"]
        rules = self._filled(f"rules_{self.language}.md", values)
        known = {**values, "rules": rules, "example": example.strip(), "language": self.language}
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


def _text(name: str, folder: Path | None) -> str:
    if folder is not None and (folder / name).is_file():
        try:
            return (folder / name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{folder / name} cannot be read ({error})") from error
    return resources.files(__name__).joinpath(name).read_text(encoding="utf-8")
