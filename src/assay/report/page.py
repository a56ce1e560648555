"""The report as one HTML file: scores, charts, a table to filter, a section for every problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from assay.archive import Judged
from assay.report.cells import anchor, number, share, table
from assay.report.charts import category_chart, coverage_chart, fast_chart, light_chart, turn_chart
from assay.report.comparison import explained_variance
from assay.report.gathering import Gathered
from assay.report.outcomes import BEST
from assay.report.problem_section import problem_section
from assay.report.scores import POINTS, Summary, firsts
from assay.report.verdict_table import verdict_table

_FACTS = ("suite", "device", "policy")


def page(runs: Sequence[Gathered]) -> str:
    """The whole file, of one run or of several side by side; nothing in it is fetched."""
    style, script = (files("assay.report").joinpath(f"page.{kind}").read_text() for kind in ("css", "js"))
    parts = [
        *(_heading(run) for run in runs),
        _scorecard(runs),
        _explained(runs),
        *(_charts(run, _of(run, runs)) for run in runs),
        *(_wins_and_losses(run, _of(run, runs)) for run in runs),
        verdict_table(runs),
        "<h2>Problems</h2>",
        *_problem_sections(runs),
        *(_trouble(run, _of(run, runs)) for run in runs),
        *(_surroundings(run, _of(run, runs)) for run in runs),
    ]
    title = escape(f"Assay: {' and '.join(run.label for run in runs)}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{style}</style></head><body>{''.join(parts)}<script>{script}</script></body></html>\n"
    )


def _of(run: Gathered, runs: Sequence[Gathered]) -> str:
    """What a heading says of whose part it is."""
    return f": {escape(run.label)}" if len(runs) > 1 else ""


def _heading(found: Gathered) -> str:
    told = found.everything
    statuses = Counter(one.status for one in found.outcomes)
    words = ", ".join(f'<span class="{name}">{name} {count}</span>' for name, count in statuses.most_common())
    notes = []
    if found.waiting:
        notes.append(f"{found.waiting} candidates are not judged yet.")
    if found.failures:
        lost = len(found.failures)
        notes.append(f"{lost} have no verdict because the judge failed: their problems are left out.")
    return (
        f"<h1>{escape(found.label)}</h1><p>{told.candidates} candidates for {told.problems} problems, "
        f"{told.solved} solved. {words}</p><p>{' '.join(notes)}</p>"
    )


def _scorecard(runs: Sequence[Gathered]) -> str:
    several = len(runs) > 1
    sets: list[tuple[str, Summary]] = []
    for run in runs:
        name = escape(run.label) if several else "all problems"
        sets.append((name, run.everything))
        if run.flawed:
            sets.append((f"{f'{name} ' if several else ''}without {len(run.flawed)} flawed", run.sound))
    head = ["", "problems", "compiled", "right", "called faster", "solved", "speed of light", "own code"]
    rows = [
        [
            name,
            str(told.problems),
            share(told.compiled),
            share(told.correct),
            share(told.faster),
            str(told.solved),
            "" if told.light_percent is None else f"{told.light_percent:.0f} %",
            share(told.own_share),
        ]
        for name, told in sets
    ]
    text = "<h2>Scores</h2>" + table(head, rows)
    for run in runs:
        if run.sound.fast:
            text += f"<h3>fast_p, by opponent{_of(run, runs)}</h3>" + _fast_table(run.sound)
        text += _cost(run.everything)
    return text


def _cost(told: Summary) -> str:
    if told.cost_usd is None:
        return ""
    each = f"; {told.cost_per_solved_usd:.4f} USD a solved problem" if told.cost_per_solved_usd else ""
    return f"<p>Cost {told.cost_usd:.2f} USD{each}.</p>"


def _explained(runs: Sequence[Gathered]) -> str:
    """What being right depends on, where runs can be compared."""
    explained = explained_variance({run.label: run.outcomes for run in runs}) if len(runs) > 1 else None
    if explained is None:
        return ""
    parts = (
        ("category", explained.category),
        ("run", explained.method),
        ("both together", explained.interaction),
    )
    rows = [[name, share(e.value), f"{share(e.low)} to {share(e.high)}"] for name, e in parts]
    return "<h3>Share of the variance of being right</h3>" + table(["explained by", "share", "95 %"], rows)


def _fast_table(told: Summary) -> str:
    head = ["right, and more than p times as fast as", *(f"p = {p:g}" for p in POINTS), "geometric mean"]
    rows = [
        [
            "the fastest of them" if name == BEST else escape(name),
            *(share(values[f"{p:g}"]) for p in POINTS),
            number(told.geometric_mean[name]),
        ]
        for name, values in told.fast.items()
    ]
    return table(head, rows)


def _charts(found: Gathered, of: str) -> str:
    told = found.sampling
    ceiling = ""
    if told is not None:
        ceiling = (
            f"pass@k: {told.fit.hopeless:.0%} of the problems look out of reach: no number of samples "
            f"gets over {told.fit.ceiling:.0%}; sample {told.worth_k} is the last to solve one in 100 more."
        )
    drawn = [
        (fast_chart(found), "fast_p for every p, against each baseline and against the fastest of them."),
        (coverage_chart(found), ceiling),
        (category_chart(found), "By category: what compiled, was right, was faster."),
        (
            light_chart(found),
            "Right candidates: share of the speed of light, and speed against the best baseline.",
        ),
        (turn_chart(found), "Success by turn."),
    ]
    figures = [f"<figure>{svg}<figcaption>{escape(text)}</figcaption></figure>" for svg, text in drawn if svg]
    return f'<h2>Charts{of}</h2><div class="charts">{"".join(figures)}</div>' if figures else ""


def _wins_and_losses(found: Gathered, of: str) -> str:
    """Both sides of the scorecard, opponents named."""
    timed = [one for one in firsts(found.scored) if one.passed and BEST in one.ratios]
    if not timed:
        return ""
    best_first = sorted(timed, key=lambda one: -one.ratios[BEST])
    sides = [
        ("Faster than every baseline", [one for one in best_first if one.speed == "faster"]),
        ("Right, and no faster", [one for one in reversed(best_first) if one.speed != "faster"]),
    ]
    text = f"<h2>Wins and losses{of}</h2>"
    for title, members in sides:
        rows = [
            [
                f'<a href="#{anchor(one.problem)}">{escape(one.problem)}</a>',
                escape(one.opponent),
                number(one.ratios[BEST]),
                "" if one.surely is None else f"{one.surely[0]:.3f} to {one.surely[1]:.3f}",
                number(one.ratios.get("eager")),
            ]
            for one in members
        ]
        head = ["problem", "best baseline", "times as fast", "95 %", "times eager"]
        text += f"<h3>{title}: {len(members)}</h3>" + (table(head, rows, 2) if rows else "<p>None.</p>")
    return text


def _problem_sections(runs: Sequence[Gathered]) -> Iterable[str]:
    judged = [one for run in runs for one in run.judged]
    sources = {one.candidate.id: one.candidate.source for one in judged}
    problems = {problem.name: problem for run in reversed(runs) for problem in run.problems}
    members: dict[str, list[Judged]] = {}
    for one in judged:
        members.setdefault(one.candidate.problem, []).append(one)
    for name, problem in problems.items():
        if name in members:
            yield problem_section(problem, members[name], sources, anchor(name))


def _trouble(found: Gathered, of: str) -> str:
    troubled = [problem for problem in found.problems if problem.trouble]
    if not troubled and not found.flawed:
        return ""
    rows = [[escape(problem.name), escape(problem.trouble)] for problem in troubled]
    flaws = {
        one.candidate.problem: one.record["problem"]["flaws"]
        for one in found.judged
        if "problem" in one.record
    }
    rows += [[escape(name), escape("; ".join(flaws.get(name, ())))] for name in found.flawed]
    title = f"<h2>Problems that are flawed or could not be read{of}</h2>"
    return title + table(["problem", "why"], rows, 2)


def _surroundings(found: Gathered, of: str) -> str:
    known = {
        str(one.record["environment"]): one.record["environment"]
        for one in found.judged
        if "environment" in one.record
    }
    rows = [[escape(f"{name}"), escape(str(found.facts[name]))] for name in _FACTS if name in found.facts]
    for environment in known.values():
        rows += [[escape(str(name)), escape(str(value))] for name, value in environment.items()]
    return f"<h2>Environment{of}</h2>" + table(["", ""], rows, 2)
