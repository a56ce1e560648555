"""The proposer that needs nothing: inductor's own code, lifted, changed by typed actions, its knobs tuned.

A candidate is the list of its actions: "variant:NAME" says which of inductor's choices it starts from, the
others change the source. The list alone gives the same file again, here or for another shape. What inductor
generated is kept in the archive, so that nothing is compiled twice.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
from collections.abc import Mapping, Sequence

from assay import lift
from assay.judge import read_device
from assay.problems import Case, Problem
from assay.records import from_plain, to_plain
from assay.search.odds import learn
from assay.search.protocol import (
    NOTHING,
    RIGHT_PARENT,
    TWO_PARENTS,
    Draft,
    Operator,
    Reply,
    Request,
    View,
)

NAME = "compiler"
START = "variant:"
CAPTURE_S = 300.0
FEW = 15
"""Evaluations below which neighbours that promise the same are tried in a fixed order."""
_SETTING = re.compile(r"^(?P<key>[^=]+)=(?P<value>.+)$")


class CompilerProposer:
    """Structures from inductor's options, actions on their source, knobs."""

    name = NAME
    operators = (
        Operator(NAME, "variant", NOTHING),
        Operator(NAME, "act", RIGHT_PARENT),
        Operator(NAME, "tune", RIGHT_PARENT),
        Operator(NAME, "combine", TWO_PARENTS),
    )

    def __init__(
        self,
        problem: Problem,
        case: Case,
        device: str,
        seed: int,
        facts: Mapping[str, int | str] | None = None,
    ) -> None:
        """`case` is the size that is scored; `facts` are those of the GPU that judges, else one of this
        machine is read now, before anybody times on it. To be closed."""
        if facts is None and device.startswith("cuda"):
            facts = read_device(device)
        self._capturer = lift.Capturer(problem, case, device, facts)
        self._seed = seed
        self._variants = lift.variants(device.partition(":")[0])

    def close(self) -> None:
        self._capturer.close()

    def capture_ahead(self) -> None:
        """Have inductor generate everything now: for whoever has time before the search begins."""
        for variant in self._variants:
            with contextlib.suppress(lift.CannotLift):  # it is told when it is asked for
                self._capturer.capture(variant.name, CAPTURE_S)

    def propose(self, request: Request, view: View) -> Reply:
        match request.operator.name:
            case "variant":
                return self._variant(request, view)
            case "act":
                return self._step(request, view, settings=False)
            case "combine":
                return self._combine(request, view)
        return self._step(request, view, settings=True)

    def rebuild(self, actions: Sequence[str], view: View) -> Draft | None:
        """The candidate that a list of actions makes; None where one of them does not apply."""
        try:
            return self._draft(tuple(actions), view, note="")
        except lift.CannotLift:
            return None

    def _variant(self, request: Request, view: View) -> Reply:
        """The next of inductor's variants: as it comes, and with what usually helps."""
        earlier = [
            one for one in view.asked if one.operator.key == request.operator.key and one.id < request.id
        ]
        index = len(earlier)
        if index >= len(self._variants):
            return Reply(exhausted=True)
        name = self._variants[index].name
        last = index + 1 == len(self._variants)
        try:
            captured = self._capturer.capture(name, CAPTURE_S)
            drafts = self._starts(name, lift.read(captured), view, has_plain=not earlier)
        except lift.CannotLift as error:
            return Reply(trouble=f"{name}: {error}", exhausted=last)
        kept = {_capture_name(name): json.dumps(to_plain(captured))}
        return Reply(tuple(drafts), exhausted=last, learned=kept)

    def _starts(self, name: str, lifted: lift.Lifted, view: View, *, has_plain: bool) -> list[Draft]:
        """A variant with what usually helps, and as inductor writes it if asked for or if nothing helps."""
        start = (START + name,)
        drafts = []
        for usual in lift.usual(lifted):
            actions = (*start, *usual)
            text = lift.write(_carried_out(lifted, usual), view.problem, actions)
            drafts.append(Draft(text, ".py", f"{name}_{len(usual)}", actions, ", ".join(usual)))
        if has_plain or not drafts:  # the others would seldom be better than with what usually helps
            plain = lift.write(lifted, view.problem, start)
            drafts.append(Draft(plain, ".py", name, start, "as inductor writes it"))
        return drafts

    def _step(self, request: Request, view: View, *, settings: bool) -> Reply:
        """One action more than the parent has, or one knob set otherwise."""
        parent = view.by_id[request.parents[0]]
        if not parent.draft.actions:
            return Reply(exhausted=True, trouble="")
        lifted = self._lifted(parent.draft.actions, view)
        tried = {member.draft.actions for member in view.members}
        possible = [a for a in lift.available(lifted) if (_SETTING.match(a) is not None) == settings]
        for action in self._ordered(possible, request, view):
            actions = with_action(parent.draft.actions, action)
            if actions in tried:
                continue
            try:
                return Reply((self._draft(actions, view, note=action),))
            except lift.CannotLift:
                continue
        return Reply(exhausted=True)

    def _ordered(self, actions: list[str], request: Request, view: View) -> list[str]:
        """By the odds; of equal ones, while evaluations are few, in the order of their usual effect."""
        odds = learn(view)
        if len(view.judged) >= FEW:
            random.Random(f"{self._seed}/{request.id}").shuffle(actions)
        return sorted(actions, key=lambda one: -odds.of(one))

    def _combine(self, request: Request, view: View) -> Reply:
        """What one parent has and the other has not, where both began with the same variant."""
        first, second = (view.by_id[number] for number in request.parents)
        mine, other = first.draft.actions, second.draft.actions
        if not mine or not other or mine[0] != other[0]:
            return Reply(exhausted=True)
        actions = mine
        for action in other[1:]:
            actions = with_action(actions, action)
        if actions in {member.draft.actions for member in view.members}:
            return Reply(exhausted=True)
        try:
            note = f"#{first.id} with what #{second.id} has"
            return Reply((self._draft(actions, view, note=note),), exhausted=True)
        except lift.CannotLift as error:
            return Reply(trouble=str(error), exhausted=True)

    def _draft(self, actions: tuple[str, ...], view: View, note: str) -> Draft:
        name = f"{actions[0].removeprefix(START)}_{len(actions) - 1}"
        return Draft(
            lift.write(self._lifted(actions, view), view.problem, actions), ".py", name, actions, note
        )

    def _lifted(self, actions: Sequence[str], view: View) -> lift.Lifted:
        variant = actions[0].removeprefix(START)
        text = view.learned.get(_capture_name(variant))
        if text is None:
            raise lift.CannotLift(f"the variant {variant} was not captured in this search")
        captured = from_plain(lift.Capture, json.loads(text), "capture")
        return _carried_out(lift.read(captured), actions[1:])


def _carried_out(lifted: lift.Lifted, actions: Sequence[str]) -> lift.Lifted:
    for action in actions:
        lifted = lift.apply(lifted, action)
    return lifted


def _capture_name(variant: str) -> str:
    return f"capture {variant}"


def with_action(actions: tuple[str, ...], action: str) -> tuple[str, ...]:
    """The list with one action more; a knob that was set before is set anew, in its place."""
    setting = _SETTING.match(action)
    if setting is not None:
        for k, one in enumerate(actions):
            known = _SETTING.match(one)
            if known is not None and known["key"] == setting["key"]:
                return (*actions[:k], action, *actions[k + 1 :])
    return actions if action in actions else (*actions, action)
