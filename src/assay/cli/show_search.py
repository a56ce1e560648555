"""What a search says before it begins and when it has ended."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from assay.archive import SearchArchive, write_whole
from assay.cli.terminal import echo
from assay.records import to_json

if TYPE_CHECKING:
    from assay.cli.search_options import Wanted
    from assay.search import Ending, View
    from assay.search.protocol import Member

REPLAYED = "replayed"
"""The fact of a search that holds the path of the recording it repeats."""
GUESS_S = 5.0
"""For one evaluation, where nothing was measured yet."""
WORDS_IN, WORDS_OUT = 4000, 3000
"""Tokens of one exchange with a model: what prompts and answers take as a rule."""


def show_estimate(console: Console, archive: SearchArchive, wanted: Wanted, proposers: list[str]) -> None:
    """Before anything is spent."""
    if wanted.as_json:
        return
    judged = [one.seconds for one in archive.judged()]
    left = max(0, wanted.evaluations - len(judged))
    each = sum(judged) / len(judged) if judged else GUESS_S
    known = "as measured so far" if judged else "a guess"
    most = min(left * each, wanted.time or float("inf"))
    lines = [
        f"{', '.join(proposers)}; at most {left} evaluations, about {most:.0f} s ({each:.1f} s each, {known})"
    ]
    for model in wanted.models:
        if model.price_in_usd is None or model.price_out_usd is None:
            lines.append(f"{model.label}: the price is unknown (--price IN/OUT tells it)")
        else:
            usd = left * (WORDS_IN * model.price_in_usd + WORDS_OUT * model.price_out_usd) / 1e6
            cap = "" if wanted.usd is None else f", capped at {wanted.usd:.2f}"
            lines.append(f"{model.label}: about {usd:.2f} USD for {left} answers{cap}")
    if judged:
        lines.append(f"goes on: {len(judged)} evaluations are kept in {archive.path}")
    for line in lines:
        console.print(escape(line), highlight=False, soft_wrap=True)


def show_stopped(console: Console, archive: SearchArchive, out: Path, view: View | None) -> int:
    """Interrupted: what is best so far is written, with the word that nobody has judged it afresh."""
    best = None if view is None else view.best
    if best is None or best.ratio is None:
        console.print("stopped: nothing right and timed so far", highlight=False)
    else:
        path = _write(out, best)
        console.print(
            f"stopped: best so far #{best.id} {escape(best.draft.name)}, {_ratio(best)}, "
            f"not confirmed by a fresh judge: {escape(str(path))}",
            highlight=False,
            soft_wrap=True,
        )
    console.print(
        f"all of it is kept in {escape(str(archive.path))}; the same command goes on", highlight=False
    )
    return 130


def show_ending(
    console: Console,
    archive: SearchArchive,
    view: View,
    ending: Ending,
    reason: str,
    out: Path,
    *,
    as_json: bool,
) -> int:
    """The result; 0 if there is a faster kernel, 1 if not, 2 if nothing has a verdict."""
    path = None if ending.winner is None else _write(out, ending.winner)
    code = 0 if path else 1 if any(member.verdict for member in view.judged) else 2
    if as_json:
        echo(to_json(_plain(archive, ending, reason, path)))
        return code
    console.print()
    console.print(f"ended: {escape(reason)}", highlight=False)
    for line in ending.refused:
        console.print(f"not taken: {escape(line)}", highlight=False, soft_wrap=True)
    if ending.winner is None or ending.verdict is None or path is None:
        _show_nothing(console, view)
    else:
        recorded = archive.facts().get(REPLAYED)
        _show_winner(console, view, ending, path, "" if recorded is None else str(recorded))
    console.print(
        f"search: {escape(str(archive.path))} (assay report {escape(str(archive.path))})", highlight=False
    )
    return code


def _show_nothing(console: Console, view: View) -> None:
    best = view.best
    if not view.judged:
        console.print("[bold]Nothing was judged.[/] The lines above say why.")
        return
    opponent = _opponent(best)
    console.print(f"[bold]Nothing beat {escape(opponent)}.[/] Use that.", highlight=False)
    if best is not None and best.ratio is not None:
        console.print(f"closest: #{best.id} {escape(best.draft.name)}, {_ratio(best)}", highlight=False)
    judged = view.judged
    right = sum(member.is_right for member in judged)
    console.print(f"{len(judged)} candidates were judged, {right} of them right", highlight=False)


def _show_winner(console: Console, view: View, ending: Ending, path: Path, recorded: str) -> None:
    """`recorded` is the search that was replayed: nobody has judged anything then."""
    winner, speed = ending.winner, ending.verdict.speed if ending.verdict else None
    assert winner is not None and speed is not None
    ratio = speed.ratio
    console.print(
        f"[bold green]FASTER[/] {ratio.middle:.3f}x ({ratio.low:.3f}-{ratio.high:.3f}) of {speed.opponent}, "
        + (f"as {escape(recorded)} says" if recorded else "confirmed by a fresh judge on cases of its own"),
        highlight=False,
        soft_wrap=True,
    )
    for rung in speed.rungs:
        if rung.times is not None and rung.ratio is not None:
            console.print(
                f"  {rung.name:28} {rung.times.device_us:10.2f} us  {rung.ratio:.3f}x", highlight=False
            )
    console.print(f"  {'this kernel':28} {speed.times.device_us:10.2f} us", highlight=False)
    if speed.roofline is not None:
        limit = speed.roofline
        told = f"{limit.floor_us:10.2f} us  {limit.percent:.0f} % reached"
        console.print(f"  {'physical limit, ' + limit.bound:28} {told}", highlight=False)
    console.print(
        "gain: " + ", ".join(f"{name} {factor:.3f}x" for name, factor in ending.split), highlight=False
    )
    line = " < ".join(
        f"#{m.id} {m.draft.name} ({m.draft.note or m.operator.key})" for m in view.ancestry(winner)
    )
    console.print(f"lineage: {escape(line)}", highlight=False, soft_wrap=True)
    if winner.draft.actions:
        console.print(f"made by: {escape(', '.join(winner.draft.actions))}", highlight=False, soft_wrap=True)
    if ending.left_out:
        console.print(f"not needed: {escape(', '.join(ending.left_out))}", highlight=False, soft_wrap=True)
    console.print(f"file: {escape(str(path))}", highlight=False, soft_wrap=True)


def _plain(archive: SearchArchive, ending: Ending, reason: str, path: Path | None) -> dict[str, object]:
    speed = ending.verdict.speed if ending.verdict else None
    return {
        "reason": reason,
        "faster": path is not None,
        "replayed": archive.facts().get(REPLAYED),
        "file": None if path is None else str(path),
        "run": str(archive.path),
        "candidate": None if ending.winner is None else ending.winner.id,
        "actions": [] if ending.winner is None else list(ending.winner.draft.actions),
        "speed": speed,
        "split": dict(ending.split),
        "left_out": list(ending.left_out),
        "refused": list(ending.refused),
    }


def _write(out: Path, member: Member) -> Path:
    path = out.with_suffix(member.draft.suffix)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, member.draft.source.encode(), ())
    return path


def _ratio(member: Member) -> str:
    assert member.ratio is not None
    ratio = member.ratio
    return f"{ratio.middle:.3f}x ({ratio.low:.3f}-{ratio.high:.3f}) of {_opponent(member)}"


def _opponent(member: Member | None) -> str:
    speed = getattr(member.verdict, "speed", None) if member is not None else None
    return "the best baseline" if speed is None else str(speed.opponent)
