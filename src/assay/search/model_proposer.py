"""A language model as a proposer: ideas first, code second, each operator one call.

The model sees the problem, the device, what the judge found of the search's own candidates, and how its
predictions turned out; never the judge's hidden cases. Not covered: conversations of several turns, and
models that call tools.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from assay.archive import Transcript
from assay.candidates import SUFFIXES
from assay.llm import Answer, Prompts, Settings, Spoken
from assay.records import JudgeFault, Ladder
from assay.search import describing
from assay.search.answers import (
    FIELD_CHARACTERS,
    Unusable,
    Written,
    edited,
    ideas_in,
    one_line,
    plan_line,
    storable,
    title_key,
    whole_file,
)
from assay.search.protocol import (
    FAILED_PARENT,
    IDEA,
    NOTHING,
    RIGHT_PARENT,
    TWO_PARENTS,
    Draft,
    Idea,
    Member,
    NewIdea,
    Operator,
    Reply,
    Request,
    View,
)

Complete = Callable[[Settings, Spoken], Answer]
IDEAS_ASKED_FOR = 4
_NEEDS = {
    "idea": NOTHING,
    "implement": IDEA,
    "edit": RIGHT_PARENT,
    "rewrite": RIGHT_PARENT,
    "repair": FAILED_PARENT,
    "crossover": TWO_PARENTS,
}
_EDITING = ("edit", "repair")
"""These may answer with edits of their parent."""
_KEEPING = ("edit", "repair", "crossover")
"""These stay in the language of their parent."""
_LANGUAGE_OF = {".py": "triton", ".cu": "cuda", ".cpp": "cpp"}
_FENCE_OF = {"triton": "python", "cuda": "cuda", "cpp": "cpp"}


def proposer_names(settings: Sequence[Settings]) -> tuple[str, ...]:
    """`model` for one; with its own name for each of several, and a number where that is the same."""
    if len(settings) == 1:
        return ("model",)
    names: list[str] = []
    for one in settings:
        name = f"model:{one.model}"
        same = sum(other == name or other.startswith(f"{name}#") for other in names)
        names.append(f"{name}#{same + 1}" if same else name)
    return tuple(names)


class ModelProposer:
    """Candidates and ideas a model writes. Has no state: what it is told follows from the view."""

    def __init__(
        self,
        settings: Settings,
        prompts: Prompts,
        *,
        device: str,
        complete: Complete,
        name: str = "model",
        tiles: str = "",
        ladder: Ladder | None = None,
    ) -> None:
        """`device` is what the model is told of it, `tiles` a text on blocks it may use; `ladder` has
        the baselines, told until a candidate is timed. `prompts` are those of `assay.search.prompts`."""
        self.name = name
        self.operators = tuple(Operator(name, operator, needs) for operator, needs in _NEEDS.items())
        self.prompts = prompts.digest
        """What the model is told, as one word."""
        self._settings = settings
        self._prompts = prompts
        self._device = device
        self._complete = complete
        self._tiles = tiles
        self._ladder = ladder

    def propose(self, request: Request, view: View) -> Reply:
        """One call of the model; UserError where it will answer no prompt at all."""
        prompt = self._prompt(request, view)
        answer = self._complete(self._settings, prompt)
        text = storable(answer.text)
        said = Transcript(
            self._settings.label,
            prompt.system,
            prompt.user,
            text or storable(answer.refusal),
            answer.tokens_in,
            answer.tokens_out,
            answer.seconds,
        )
        if answer.refusal or not text.strip():
            why = f"{self._settings.label} gives no answer: {answer.refusal or 'it is empty'}"
            return Reply(exchange=said, cost_usd=answer.cost_usd, trouble=one_line(why, FIELD_CHARACTERS))
        if request.operator.name == "idea":
            ideas, trouble = _new_ideas(text, view)
            return Reply(ideas=ideas, exchange=said, cost_usd=answer.cost_usd, trouble=trouble)
        try:
            draft = _draft(text, request, view)
        except Unusable as error:
            return Reply(exchange=said, cost_usd=answer.cost_usd, trouble=str(error))
        return Reply(drafts=(draft,), exchange=said, cost_usd=answer.cost_usd)

    def _prompt(self, request: Request, view: View) -> Spoken:
        operator = request.operator.name
        parents = [view.by_id[number] for number in request.parents]
        language = self._prompts.language
        if parents and operator in _KEEPING:
            suffix = SUFFIXES.get(parents[0].draft.suffix.lower(), "")
            language = _LANGUAGE_OF.get(suffix, language)
        values = {
            "device": self._device,
            "problem": describing.fenced(describing.problem_text(view.problem)),
            "fence": _FENCE_OF[language],
            "tiles": self._tiles.strip(),
            "standing": describing.standing(view, self._ladder),
            "ideas": describing.ideas_tried(view) or "None.",
        }
        if operator == "idea":
            values |= {"best": _best(view, parents), "count": str(IDEAS_ASKED_FOR)}
        elif operator == "implement":
            idea = _idea(view, request)
            values |= {
                "best": _best(view, parents),
                "idea": _idea_text(idea.new),
                "tried": describing.implementations(view, idea.id) or "Nothing.",
            }
        else:
            values |= {
                "parent": _shown(parents[0]),
                "feedback": describing.told(parents[0]),
                "attempts": describing.attempts(view, parents[0]),
            }
        if operator == "crossover":
            values |= {"other": _shown(parents[1]), "other_feedback": describing.told(parents[1])}
        return self._prompts.spoken(f"{operator}.md", values, language)


def _idea(view: View, request: Request) -> Idea:
    for idea in view.ideas:
        if idea.id == request.idea:
            return idea
    raise JudgeFault(f"request {request.id} is for idea {request.idea}, which is not in the view")


def _idea_text(new: NewIdea) -> str:
    gain = "" if new.predicted_gain is None else f"\nPredicted gain: {new.predicted_gain:.2f}"
    return f"{new.title}\nHypothesis: {new.hypothesis}\nMechanism: {new.mechanism}{gain}"


def _shown(member: Member) -> str:
    return describing.fenced(member.draft.source, member.draft.suffix)


def _best(view: View, parents: Sequence[Member]) -> str:
    """What is started from where the request says so, else the best there is."""
    start = parents[0] if parents else view.best
    return "" if start is None else f"Its source (#{start.id}):\n\n{_shown(start)}"


def _new_ideas(text: str, view: View) -> tuple[tuple[NewIdea, ...], str]:
    """Those that are not known yet, and why there are fewer than were said."""
    known = {title_key(idea.new.title) for idea in view.ideas}
    found = ideas_in(text)
    fresh = tuple(idea for idea in found if title_key(idea.title) not in known)
    if not found:
        return (), "no idea in the answer"
    if len(fresh) < len(found):
        return fresh, f"{len(found) - len(fresh)} of {len(found)} ideas are known already"
    return fresh, ""


def _draft(text: str, request: Request, view: View) -> Draft:
    operator = request.operator.name
    parents = [view.by_id[number] for number in request.parents]
    written = _written(text, operator, parents)
    if any(written == Written(parent.draft.source, parent.draft.suffix) for parent in parents):
        raise Unusable("the answer is the file that it started from")
    note = plan_line(text)
    if not note and operator == "implement":
        note = _idea(view, request).new.title
    return Draft(written.source, written.suffix, f"{operator}_{request.id}", note=note)


def _written(text: str, operator: str, parents: Sequence[Member]) -> Written:
    if operator in _EDITING:
        return edited(text, parents[0].draft.source, parents[0].draft.suffix)
    return whole_file(text)
