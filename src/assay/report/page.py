"""The report as one HTML file: scores, charts, a table to filter, a section for every problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from assay.report.charts import category_chart, coverage_chart, fast_chart, light_chart, turn_chart
from assay.report.gathering import Gathered
from assay.report.outcomes import BEST, Outcome
from assay.report.problem_section import problem_section
from assay.report.scores import POINTS, Summary, firsts

_FACTS = ("suite", "device", "policy")


def page(found: Gathered) -> str:
    """The whole file; nothing in it is fetched."""
    style, script = (files("assay.report").joinpath(f"page.{kind}").read_text() for kind in ("css", "js"))
    parts = [
        _heading(found),
        _scorecard(found),
        _charts(found),
        _wins_and_losses(found),
        _verdicts(found),
        "<h2>Problems</h2>",
        *_problem_sections(found),
        _trouble(found),
        _surroundings(found),
    ]
    title = escape(f"Assay: {found.label}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{style}</style></head><body>{''.join(parts)}<script>{script}</script></body></html>\n"
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]], first_number: int = 1) -> str:
    """Cells are HTML; columns from `first_number` on are numbers."""
    kinds = ["" if k < first_number else ' class="n"' for k in range(len(head))]
    top = "".join(f"<th{kind}>{name}</th>" for kind, name in zip(kinds, head, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{kind}>{cell}</td>' for kind, cell in zip(kinds, row, strict=True))}</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def number(value: float | None, digits: int = 3) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _heading(found: Gathered) -> str:
    told = found.everything
    statuses = Counter(one.status for one in found.outcomes)
    words = ", ".join(f'<span class="{name}">{name} {count}</span>' for name, count in statuses.most_common())
    notes = []
    if found.waiting:
        notes.append(f"{found.waiting} candidates are not judged yet.")
    if found.failures:
        notes.append(f"{len(found.failures)} have no verdict because the judge failed; no score counts them.")
    return (
        f"<h1>{escape(found.label)}</h1><p>{told.candidates} candidates for {told.problems} problems, "
        f"{told.solved} solved. {words}</p><p>{' '.join(notes)}</p>"
    )


def _scorecard(found: Gathered) -> str:
    sets = [("all problems", found.everything)]
    if found.flawed:
        sets.append((f"without {len(found.flawed)} flawed", found.sound))
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
    if found.sound.fast:
        text += "<h3>fast_p, by opponent</h3>" + _fast_table(found.sound)
    told = found.everything
    if told.cost_usd is not None:
        each = f"; {told.cost_per_solved_usd:.4f} USD a solved problem" if told.cost_per_solved_usd else ""
        text += f"<p>Cost {told.cost_usd:.2f} USD{each}.</p>"
    return text


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


def _charts(found: Gathered) -> str:
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
    return f'<h2>Charts</h2><div class="charts">{"".join(figures)}</div>' if figures else ""


def _wins_and_losses(found: Gathered) -> str:
    """Both sides of the scorecard, opponents named."""
    timed = [one for one in firsts(found.outcomes) if one.passed and BEST in one.ratios]
    if not timed:
        return ""
    best_first = sorted(timed, key=lambda one: -one.ratios[BEST])
    sides = [
        ("Faster than every baseline", [one for one in best_first if one.speed == "faster"]),
        ("Right, and no faster", [one for one in reversed(best_first) if one.speed != "faster"]),
    ]
    text = "<h2>Wins and losses</h2>"
    for title, members in sides:
        rows = [
            [
                f'<a href="#{_anchor(one.problem)}">{escape(one.problem)}</a>',
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


def _verdicts(found: Gathered) -> str:
    choices = {
        "category": sorted({one.about.category for one in found.outcomes if one.about.category}),
        "status": sorted({one.status for one in found.outcomes}),
        "speed": sorted({one.speed for one in found.outcomes if one.speed}),
    }
    boxes = '<input data-key="name" type="search" placeholder="problem" aria-label="problem">' + "".join(
        f'<select data-key="{key}" aria-label="{key}"><option value="">any {key}</option>'
        f"{''.join(f'<option>{escape(value)}</option>' for value in values)}</select>"
        for key, values in choices.items()
        if values
    )
    body = "".join(map(_row, found.outcomes))
    head = "".join(
        f"<th>{name}</th>" for name in ("problem", "category", "sample", "turn", "status", "speed")
    )
    head += "".join(
        f'<th class="n">{name}</th>' for name in ("x best", "x eager", "% of light", "own code", "s")
    )
    return (
        f'<h2>Verdicts</h2><p class="filters">{boxes}<span id="shown" class="soft"></span></p>'
        f'<div class="wide"><table id="verdicts"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _row(one: Outcome) -> str:
    data = {"name": one.problem, "category": one.about.category, "status": one.status, "speed": one.speed}
    marks = " ".join(f'data-{key}="{escape(value, quote=True)}"' for key, value in data.items())
    cells = [
        f'<a href="#c{one.candidate}">{escape(one.problem)}</a>{" (flawed)" if one.flawed else ""}',
        escape(one.about.category),
        str(one.sample),
        str(one.turn),
        f'<span class="{one.status}">{one.status}</span>',
        f'<span class="{one.speed.replace(" ", "_")}">{one.speed}</span>',
    ]
    figures = [
        number(one.ratios.get(BEST)),
        number(one.ratios.get("eager")),
        "" if one.light_percent is None else f"{one.light_percent:.0f}",
        share(one.own_share),
        number(one.seconds, 1),
    ]
    text = "".join(f"<td>{cell}</td>" for cell in cells) + "".join(
        f'<td class="n">{cell}</td>' for cell in figures
    )
    return f"<tr {marks}>{text}</tr>"


def _anchor(problem: str) -> str:
    return "p-" + escape(problem, quote=True)


def _problem_sections(found: Gathered) -> Iterable[str]:
    sources = {one.candidate.id: one.candidate.source for one in found.judged}
    for problem in found.problems:
        members = [one for one in found.judged if one.candidate.problem == problem.name]
        if members:
            yield problem_section(problem, members, sources, _anchor(problem.name))


def _trouble(found: Gathered) -> str:
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
    return "<h2>Problems that are flawed or could not be read</h2>" + table(["problem", "why"], rows, 2)


def _surroundings(found: Gathered) -> str:
    known = {
        str(one.record["environment"]): one.record["environment"]
        for one in found.judged
        if "environment" in one.record
    }
    rows = [[escape(f"{name}"), escape(str(found.facts[name]))] for name in _FACTS if name in found.facts]
    for environment in known.values():
        rows += [[escape(str(name)), escape(str(value))] for name, value in environment.items()]
    return "<h2>Environment</h2>" + table(["", ""], rows, 2)
