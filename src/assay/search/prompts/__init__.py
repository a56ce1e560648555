"""What a model is told in a search: files that a person may edit or replace, one by one.

`system.md` says who is asked and how kernels are judged; each other file asks for one kind of thing and is
named after its operator. `$name` is replaced, `$$` writes a dollar sign. `$problem`, `$best`, `$parent` and
`$other` are fenced blocks; the rules and the worked example of a language are those of `assay.llm`.
"""

from __future__ import annotations

from pathlib import Path

from assay.llm import LANGUAGES, Prompts

ALWAYS = ("device", "problem", "fence", "tiles", "standing", "ideas")
_FROM_PARENT = ("parent", "feedback", "attempts")
TEMPLATES = {
    "idea.md": (*ALWAYS, "best", "count"),
    "implement.md": (*ALWAYS, "best", "idea", "tried"),
    "edit.md": (*ALWAYS, *_FROM_PARENT),
    "rewrite.md": (*ALWAYS, *_FROM_PARENT),
    "repair.md": (*ALWAYS, *_FROM_PARENT),
    "crossover.md": (*ALWAYS, *_FROM_PARENT, "other", "other_feedback"),
}
"""What each may name, beside rules, example and language."""


def read_prompts(language: str, folder: Path | None = None) -> Prompts:
    """Those of `folder` before our own. Candidates of the other languages are shown by their rules."""
    languages = [language, *(other for other in LANGUAGES if other != language)]
    return Prompts.read_package(__name__, TEMPLATES, languages, folder)
