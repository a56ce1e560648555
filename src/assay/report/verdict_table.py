"""The table of all verdicts, with its filters."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from assay.report.cells import number, share
from assay.report.gathering import Gathered
from assay.report.outcomes import BEST, Outcome


def verdict_table(runs: Sequence[Gathered]) -> str:
    """Every candidate, of all runs; a column names the run where there are several."""
    outcomes = [one for run in runs for one in run.outcomes]
    several = len(runs) > 1
    choices = {
        "run": [run.label for run in runs] if several else [],
        "category": sorted({one.about.category for one in outcomes if one.about.category}),
        "status": sorted({one.status for one in outcomes}),
        "speed": sorted({one.speed for one in outcomes if one.speed}),
    }
    boxes = '<input data-key="name" type="search" placeholder="problem" aria-label="problem">' + "".join(
        f'<select data-key="{key}" aria-label="{key}"><option value="">any {key}</option>'
        f"{''.join(f'<option>{escape(value)}</option>' for value in values)}</select>"
        for key, values in choices.items()
        if values
    )
    body = "".join(_row(one, run.label if several else "") for run in runs for one in run.outcomes)
    names = ("problem", *(["run"] if several else []), "category", "sample", "turn", "status", "speed")
    head = "".join(f"<th>{name}</th>" for name in names)
    head += "".join(
        f'<th class="n">{name}</th>' for name in ("x best", "x eager", "% of light", "own code", "s")
    )
    return (
        f'<h2>Verdicts</h2><p class="filters">{boxes}<span id="shown" class="soft"></span></p>'
        f'<div class="wide"><table id="verdicts"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _row(one: Outcome, run: str) -> str:
    data = {"run": run} if run else {}
    data |= {"name": one.problem, "category": one.about.category, "status": one.status, "speed": one.speed}
    marks = " ".join(f'data-{key}="{escape(value, quote=True)}"' for key, value in data.items())
    cells = [
        f'<a href="#c{one.candidate}">{escape(one.problem)}</a>{" (flawed)" if one.flawed else ""}',
        *([escape(run)] if run else []),
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
