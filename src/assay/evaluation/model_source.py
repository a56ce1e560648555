"""A language model as a source: so many samples of every problem, each so many turns long."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from assay.archive import Judged, Planned, Transcript
from assay.evaluation.suite import Suite
from assay.llm import Answer, Prompts, Settings, Spoken, extract, feedback
from assay.profile import advice_lines
from assay.records import Passed, UserError, digest

Complete = Callable[[Settings, Spoken], Answer]
_FENCES = {"triton": "python", "cuda": "cuda", "cpp": "cpp"}


class ModelSource:
    """Candidates a model writes, shown what became of its last one."""

    def __init__(
        self,
        settings: Settings,
        suite: Suite,
        prompts: Prompts,
        *,
        samples: int,
        turns: int,
        device: str,
        complete: Complete,
    ) -> None:
        """`device` is what the model is told of it; `complete` asks, from here or from elsewhere."""
        self.label = settings.label
        self.prompts = prompts.digest
        """What the model was told, as one word."""
        self._settings = settings
        self._suite = suite
        self._prompts = prompts
        self._samples = samples
        self._turns = turns
        self._device = device
        self._complete = complete
        self._answered = False

    def samples(self, problem: str) -> Sequence[int]:
        return range(self._samples) if problem in self._suite.problems else ()

    def propose(self, problem: str, sample: int, history: Sequence[Judged]) -> Planned | None:
        turn = len(history)
        if turn >= self._turns:
            return None
        prompt = self._prompt(problem, history)
        answer = self._complete(self._settings, prompt)
        if answer.refusal and not self._answered:
            raise UserError(f"{self.label} has answered nothing yet and refuses a prompt: {answer.refusal}")
        self._answered = True
        found = extract(answer.text)
        said = Transcript(
            self._settings.label,
            prompt.system,
            prompt.user,
            answer.text or answer.refusal,
            answer.tokens_in,
            answer.tokens_out,
            answer.seconds,
        )
        return Planned(
            problem,
            sample,
            turn,
            f"{problem}_{sample}_{turn}",
            found.suffix,
            found.source if answer.text.strip() else "",
            parent=history[-1].candidate.id if history else None,
            cost_usd=answer.cost_usd,
            transcript=said,
        )

    def _prompt(self, problem: str, history: Sequence[Judged]) -> Spoken:
        values = {
            "device": self._device,
            "problem": self._suite.problems[problem].specification().source.strip(),
            "fence": _FENCES[self._prompts.language],
        }
        if not history:
            return self._prompts.first(values)
        last = history[-1]
        verdict = last.verdict()
        return self._prompts.next(
            {
                **values,
                "attempts": "\n".join(_line(one) for one in history),
                "candidate": last.candidate.source.strip(),
                "feedback": feedback(last.status, verdict, last.record, advice_lines(verdict)),
            }
        )


def _line(one: Judged) -> str:
    verdict = one.verdict()
    end = one.status
    if isinstance(verdict, Passed) and verdict.speed is not None:
        end = f"passed, {verdict.speed.ratio.middle:.3f} times the speed of {verdict.speed.opponent}"
    return f"{one.candidate.turn + 1}. {end} (source {digest(one.candidate.source)[:8]})"
