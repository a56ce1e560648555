"""What a model is told of a search: problem, standing, the family of a candidate, ideas and their worth.

All of it follows from the view. Cases that the judge keeps hidden are described without name, sizes and
elements. Not covered: numbers that a candidate spells out in words when it fails on a hidden case.
"""

from __future__ import annotations

import ast
import functools
import re
import statistics
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from assay.llm import feedback
from assay.problems import Case, Problem
from assay.profile import advice_lines
from assay.records import BuildFailed, Crashed, Ladder, Passed, Rung, Speed, Verdict
from assay.search.answers import NOTE_CHARACTERS, one_line
from assay.search.protocol import Idea, Member, View

FENCES = {".py": "python", ".cu": "cuda", ".cpp": "cpp"}
MOST_RELATIVES = 10
"""Of each kind: ancestors, and attempts that began where a candidate does."""
MOST_IDEAS_TOLD = 30
MOST_TOLD_IN_FULL = 3
_SHARES = 6
_ENDED = ("wrong", "rejected", "crashed", "timed_out")
_NUMBER = re.compile(r"(?<!line )(?<![\w.])\d\w*(?:[.,]\d+)*")


def fenced(source: str, suffix: str = ".py") -> str:
    """A block that nothing inside it ends."""
    longest = max((len(run) for run in re.findall(r"`{3,}", source)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{FENCES.get(suffix, '')}\n{source.strip()}\n{fence}"


def problem_text(problem: Problem) -> str:
    """Its source without the cases it declares as hidden."""
    source = problem.specification().source.strip()
    declared = problem.declared_cases()
    if any(case.hidden for case in declared):
        shown = [_entry(case) for case in declared if not case.hidden]
        source = _with_cases(source, "\n".join(f"        {entry!r}," for entry in shown if entry))
    if problem.entry != "ModelNew":
        beside = f"; it may import {', '.join(problem.support_files)}" if problem.support_files else ""
        source = (
            f"# The candidate defines {problem.entry}({', '.join(problem.argument_names)}){beside}.\n{source}"
        )
    return source


@functools.lru_cache(maxsize=32)
def _with_cases(source: str, cases: str) -> str:
    """cases() is written anew, and what it alone has read goes with it."""
    body = ast.parse(source).body
    reads = {id(one): {n.id for n in ast.walk(one) if isinstance(n, ast.Name)} for one in body}
    writers = [one for one in body if "cases" in _bound(one)]
    others = [one for one in body if one not in writers]
    private = set().union(*(reads[id(one)] for one in writers))
    gone = [*writers]
    for one in others:
        read_elsewhere = set().union(*(reads[id(other)] for other in others if other is not one))
        if isinstance(one, ast.Assign | ast.AnnAssign) and _bound(one) <= private - read_elsewhere:
            gone.append(one)
    lines = source.split("\n")
    for one in sorted(gone, key=lambda statement: -statement.lineno):
        decorators = [node.lineno for node in getattr(one, "decorator_list", [])]
        lines[min([one.lineno, *decorators]) - 1 : one.end_lineno] = []
    return "\n".join(lines).strip() + f"\n\n\ndef cases():  # and others\n    return [\n{cases}\n    ]"


def _bound(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
    return {
        n.id for target in targets if target is not None for n in ast.walk(target) if isinstance(n, ast.Name)
    }


def _entry(case: Case) -> dict[str, object]:
    """A case as a problem file writes it; empty for the one every problem has."""
    usual = Case(case.name)
    names = ("sizes", "dtype", "layout", "distribution", "mode")
    said = {name: getattr(case, name) for name in names if getattr(case, name) != getattr(usual, name)}
    return {"name": case.name, **said} if said or case.name != "nominal" else {}


def told(member: Member) -> str:
    """What the judge found, hidden cases without their particulars, and what a call runs."""
    verdict = None if member.verdict is None else _shown(member.verdict)
    text = feedback(member.status or "not judged yet", verdict, member.record, advice_lines(verdict))
    census = verdict.census if verdict is not None else None
    if census is None or not census.shares:
        return text
    shares = sorted(census.shares, key=lambda share: -share.time_us)[:_SHARES]
    parts = [f"{one_line(s.name, 80)} ({s.kind}, {s.calls} calls, {s.time_us:.1f} us)" for s in shares]
    return f"{text}\nOne call runs: {', '.join(parts)}."


def _shown(verdict: Verdict) -> Verdict:
    hidden = {case.name for case in verdict.cases if case.hidden}
    ended = any(case.hidden and case.outcome in _ENDED for case in verdict.cases)
    cases = tuple(
        replace(
            case,
            name="hidden",
            sizes={},
            wrong_elements=0,
            elements=0,
            message=_unnumbered(case.message),
            mismatches=(),
        )
        if case.hidden
        else case
        for case in verdict.cases
    )
    findings = tuple(
        replace(found, message=_unnumbered(found.message), case=found.case and "hidden")
        if found.case in hidden or (ended and found.case is None)
        else found
        for found in verdict.findings
    )
    if ended and isinstance(verdict, Crashed):
        verdict = replace(verdict, death=_unnumbered(verdict.death))
    elif ended and isinstance(verdict, BuildFailed):
        verdict = replace(verdict, diagnosis=_unnumbered(verdict.diagnosis))
    return replace(verdict, cases=cases, findings=findings)


def _unnumbered(text: str) -> str:
    """Without numbers, but for those of lines: they would tell the sizes."""
    return _NUMBER.sub("#", text)


def attempts(view: View, member: Member) -> str:
    """The candidate and its ancestors, the oldest first; then what was already tried from it."""
    line = view.ancestry(member)[:MOST_RELATIVES]
    lines = ["How it came about:", *(_attempt(view, one) for one in reversed(line))]
    children = [one for one in view.children(member.id) if one.id != member.id]
    if children:
        left_out = len(children) - MOST_RELATIVES
        more = f" (the last {MOST_RELATIVES} of {len(children)})" if left_out > 0 else ""
        lines += [
            f"Already tried from it{more}:",
            *(_attempt(view, one) for one in children[-MOST_RELATIVES:]),
        ]
    return "\n".join(lines)


def _attempt(view: View, member: Member) -> str:
    note = f"; {one_line(member.draft.note, NOTE_CHARACTERS)}" if member.draft.note else ""
    again = 0
    if member.parents and member.parents[0] in view.by_id:
        again = retyped(view, view.by_id[member.parents[0]], member.draft.source)
    typed = f"; {again} lines typed again that were deleted before" if again else ""
    return f"- #{member.id} ({member.operator.name}): {_end(member)}{note}{typed}"


def _end(member: Member) -> str:
    """How it ended, in a few words."""
    if member.duplicate_of is not None:
        return f"the same program as #{member.duplicate_of}"
    if member.status is None:
        return "not judged yet"
    if member.is_right:
        return f"right, {_ratio(member)}"
    reason = _reason(member)
    return f"{member.status}, {reason}" if reason else member.status


def _ratio(member: Member) -> str:
    verdict, ratio = member.verdict, member.ratio
    if not isinstance(verdict, Passed) or verdict.speed is None or ratio is None:
        return "not timed"
    range_ = f"{ratio.low:.3f} to {ratio.high:.3f}"
    return f"{ratio.middle:.3f} ({range_}) times the speed of {verdict.speed.opponent}"


def _reason(member: Member) -> str:
    if member.verdict is None:
        return one_line(str(member.record.get("message", "")), NOTE_CHARACTERS)
    verdict = _shown(member.verdict)
    fatal = [found.message for found in verdict.findings if found.fatal]
    wrong = [case.message for case in verdict.cases if case.outcome in _ENDED and case.message]
    return one_line(next(iter([*fatal, *wrong]), ""), NOTE_CHARACTERS)


def implementations(view: View, idea: int) -> str:
    """What was already written for an idea; the last failures with all that the judge said of them."""
    known = [one for one in view.members if one.idea == idea]
    failed = [one for one in known if one.status is not None and not one.is_right][-MOST_TOLD_IN_FULL:]
    lines = [_attempt(view, one) for one in known[-MOST_RELATIVES:]]
    for one in failed:
        lines += ["", f"#{one.id}, which failed:", fenced(one.draft.source, one.draft.suffix), told(one)]
    return "\n".join(lines)


def ideas_tried(view: View) -> str:
    """Each idea with what was predicted and what came of it, then how far predictions can be trusted."""
    lines = [_tried(view, idea) for idea in view.ideas[-MOST_IDEAS_TOLD:]]
    trust = calibration(view)
    return "\n".join([*lines, trust] if trust else lines)


def _tried(view: View, idea: Idea) -> str:
    said = idea.new.predicted_gain
    predicted = "no gain predicted" if said is None else f"predicted {said:.2f}"
    known = [one for one in view.members if one.idea == idea.id]
    if not known:
        return f"- {idea.new.title}: {predicted}, not implemented yet"
    gain = measured_gain(view, idea)
    measured = "none timed" if gain is None else f"measured {gain:.2f} at best"
    counted = f"{len(known)} implementation{'s' if len(known) > 1 else ''}: {_counts(known)}"
    return f"- {idea.new.title}: {predicted}, {measured} ({counted})"


def _counts(members: Iterable[Member]) -> str:
    ends = Counter(
        "the same as another"
        if one.duplicate_of is not None
        else "right"
        if one.is_right
        else one.status or "not judged yet"
        for one in members
    )
    return ", ".join(f"{count} {end}" for end, count in sorted(ends.items()))


def measured_gain(view: View, idea: Idea) -> float | None:
    """The speed of its fastest implementation over that of the best there was when the idea was asked for;
    over the best baseline where there was none."""
    own = [one.ratio.middle for one in view.members if one.idea == idea.id and one.ratio is not None]
    before = [
        one.ratio.middle for one in view.members if one.request < idea.request and one.ratio is not None
    ]
    base = max(before, default=1.0)
    return max(own) / base if own and base > 0 else None


def calibration(view: View) -> str:
    """Predicted against measured gains; empty where there is nothing to compare."""
    pairs = []
    for idea in view.ideas:
        gain = measured_gain(view, idea)
        if idea.new.predicted_gain is not None and gain is not None:
            pairs.append((idea.new.predicted_gain, gain))
    if not pairs:
        return ""
    reached = sum(gain >= predicted for predicted, gain in pairs)
    predicted = statistics.median(predicted for predicted, _ in pairs)
    measured = statistics.median(gain for _, gain in pairs)
    return (
        f"Predictions so far: {reached} of {len(pairs)} were reached; {predicted:.2f} was predicted and "
        f"{measured:.2f} measured (medians). Predict accordingly."
    )


def standing(view: View, ladder: Ladder | None = None) -> str:
    """The best so far against baselines and the device's limit; of a ladder where nothing is timed yet."""
    best = view.best
    speed = best.verdict.speed if best is not None and isinstance(best.verdict, Passed) else None
    lines = [_best_line(best, speed)]
    rungs = speed.rungs if speed is not None else ladder.rungs if ladder is not None else ()
    lines += _rung_lines(rungs)
    limit = speed.roofline if speed is not None else ladder.roofline if ladder is not None else None
    if limit is not None:
        who = "the best so far" if speed is not None else "the best baseline"
        lines.append(
            f"The {limit.bound} limit of this device is {limit.floor_us:.2f} us "
            f"({limit.bytes_read} bytes read, {limit.bytes_written} written, {limit.flops} flops): "
            f"{who} reaches {limit.percent:.0f} % of it."
        )
    if view.members:
        lines.append(f"Candidates so far: {_counts(view.members)}.")
    return "\n".join(lines)


def _best_line(best: Member | None, speed: Speed | None) -> str:
    if best is None:
        return "No candidate is right yet."
    note = f" ({one_line(best.draft.note, NOTE_CHARACTERS)})" if best.draft.note else ""
    if speed is None:
        return f"Best so far: #{best.id}{note}, right but not timed."
    return f"Best so far: #{best.id}{note}, {speed.times.device_us:.2f} us a call, {_ratio(best)}."


def _rung_lines(rungs: Iterable[Rung]) -> list[str]:
    return [
        f"- baseline {rung.name}: {rung.times.device_us:.2f} us a call"
        for rung in rungs
        if rung.times is not None
    ]


def retyped(view: View, parent: Member, source: str) -> int:
    """How many lines of a child were in an ancestor of its parent and no longer in the parent."""
    kept = _telling_lines(parent.draft.source)
    deleted = {
        line for one in view.ancestry(parent)[1:] for line in _telling_lines(one.draft.source)
    }.difference(kept)
    return sum(line in deleted for line in _telling_lines(source))


def _telling_lines(source: str) -> list[str]:
    """Without spacing, and without lines that are in every file: of one word, imports, comments."""
    lines = (" ".join(line.split()) for line in source.split("\n"))
    return [line for line in lines if not _TRIVIAL.match(line) and len(_WORD.findall(line)) > 1]


_TRIVIAL = re.compile(r"import |from \S+ import |#|//(?! ?assay:)|return \w+;?$")
_WORD = re.compile(r"\w+")
