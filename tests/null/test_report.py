"""The report of made-up runs: what stands in it, that nothing is fetched, that sources break nothing."""

from __future__ import annotations

import csv
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner
from synthetic_runs import write_run

from assay.archive import Archive
from assay.cli.main import cli
from assay.records import UserError
from assay.report import Gathered, gather, gather_all
from assay.report.page import page
from assay.report.plain import comma_separated, markdown

VOID = {"meta", "input", "br", "line", "rect", "circle", "polyline", "polygon"}


class Balance(HTMLParser):
    """Every element that is opened is closed, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids += [given["id"]] if given.get("id") else []
        self.links += [given["href"]] if given.get("href") else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


def gathered(path: Path) -> Gathered:
    with Archive(path) as archive:
        return gather(archive)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Gathered:
    return gathered(write_run(tmp_path_factory.mktemp("runs") / "run.sqlite", 13, 4, 2, flawed=2))


@pytest.fixture(scope="module")
def text(found: Gathered) -> str:
    return page([found])


def test_the_page_is_well_formed_and_its_links_lead_somewhere(text: str) -> None:
    read = Balance()
    read.feed(text)
    assert read.open == [] and len(read.ids) == len(set(read.ids))
    assert read.links and all(link[0] == "#" and link[1:] in read.ids for link in read.links)


def test_nothing_is_fetched(text: str) -> None:
    assert not re.search(r"https?://|src=|@import|url\(", text)


def test_what_sources_and_compilers_say_is_text(text: str) -> None:
    assert "&lt;elements&gt;" in text and "<elements>" not in text
    assert "error: &lt;no&gt; such &amp; name" in text and "it &lt;did&gt; not compile" in text


def test_every_candidate_has_a_row_and_a_section(found: Gathered, text: str) -> None:
    assert text.count("<tr data-name=") == len(found.judged) == 13 * 4 * 2
    assert all(f'id="c{one.candidate.id}"' in text for one in found.judged)
    assert text.count("difference to the turn before") == 13 * 4


def test_flawed_problems_stand_apart(found: Gathered, text: str) -> None:
    assert found.everything.problems == 13 and found.sound.problems == 11 and len(found.flawed) == 2
    assert "without 2 flawed" in text and "wrong answers pass" in text


@pytest.mark.parametrize(
    "title", ["fast_p by opponent", "pass@k and its ceiling", "by category", "by turn", "speed of light and"]
)
def test_every_chart_is_there(text: str, title: str) -> None:
    assert f'aria-label="{title}' in text


def test_a_run_without_speeds_or_samples_has_fewer_charts(tmp_path: Path) -> None:
    found = gathered(write_run(tmp_path / "run.sqlite", 1, 1))
    assert found.sampling is None
    text = page([found])
    assert "pass@k and its ceiling" not in text and "by turn" not in text


def test_a_problem_that_still_waits_counts_for_nobody(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run.sqlite", 5, 1)
    before = gathered(path)
    with Archive(path) as archive:
        theirs = "SELECT id FROM candidates WHERE problem = ?"
        name = before.problems[0].name
        archive._db.execute(f"DELETE FROM verdicts WHERE candidate IN ({theirs})", (name,))
    now = gathered(path)
    assert (before.everything.problems, now.everything.problems) == (5, 4) and now.waiting > 0


def test_a_failure_of_the_judge_promotes_nobody(tmp_path: Path) -> None:
    """Where the first sample has no verdict the second is not scored in its place."""
    path = write_run(tmp_path / "run.sqlite", 5, 2)
    name = gathered(path).problems[0].name
    first = "SELECT id FROM candidates WHERE problem = ? AND sample = 0"
    with Archive(path) as archive:
        archive._db.execute(f"UPDATE verdicts SET status = 'no_verdict' WHERE candidate = ({first})", (name,))
    now = gathered(path)
    assert len(now.failures) == 1 and now.everything.problems == 4
    assert name not in {one.problem for one in now.scored}
    assert "1 have no verdict" in markdown([now]) and "1 have no verdict" in page([now])


def test_a_report_is_never_written_over_its_run(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run.html", 2, 1)
    before = path.read_bytes()
    code, told = run("report", str(path))
    assert code == 2 and "is the run itself" in told and path.read_bytes() == before
    code, told = run("report", str(path), str(path), "--out", str(tmp_path / "x"))
    assert code == 2 and "named twice" in told


def test_labels_are_text_in_a_terminal_too(tmp_path: Path) -> None:
    paths = [write_run(tmp_path / f"{name}.sqlite", 3, 1) for name in ("one", "two")]
    for path in paths:
        with Archive(path) as archive:
            archive.set_fact("label", "x[/y]")
    code, told = run("compare", *map(str, paths))
    assert code == 0 and "x[/y]" in told


@pytest.mark.parametrize("fact", ["policy", "digest"])
def test_runs_under_different_conditions_are_compared_by_force_alone(tmp_path: Path, fact: str) -> None:
    paths = [write_run(tmp_path / f"{name}.sqlite", 3, 1) for name in ("one", "two")]
    with Archive(paths[1]) as archive:
        if fact == "policy":
            archive.set_fact("policy", {"allow_tf32": True})
        else:
            archive._db.execute("UPDATE problems SET digest = 'another'")
    code, told = run("compare", *map(str, paths))
    assert code == 2 and ("policy" if fact == "policy" else "has changed") in told
    assert run("compare", *map(str, paths), "--force")[0] == 0


def test_several_runs_stand_side_by_side(tmp_path: Path) -> None:
    paths = [write_run(tmp_path / f"{name}.sqlite", 13, 2, 2) for name in ("one", "two")]
    with Archive(paths[0]) as first, Archive(paths[1]) as second:
        runs = gather_all([first, second])
    assert len({run.label for run in runs}) == 2, "runs of one label are told apart by their files"
    text = page(runs)
    read = Balance()
    read.feed(text)
    assert read.open == [] and len(read.ids) == len(set(read.ids))
    assert all(link[1:] in read.ids for link in read.links)
    assert text.count("<tr data-run=") == 2 * 13 * 2 * 2 and text.count("fast_p, by opponent: ") == 2
    assert "Share of the variance of being right" in text
    assert text.count("difference to the turn before") == 2 * 13 * 2
    rows = list(csv.DictReader(io.StringIO(comma_separated(runs))))
    assert {row["run"] for row in rows} == {run.label for run in runs}
    assert markdown(runs).count("# ") == 2


def test_the_csv_holds_every_candidate(found: Gathered) -> None:
    rows = list(csv.DictReader(io.StringIO(comma_separated([found]))))
    assert len(rows) == len(found.outcomes)
    passed = [row for row in rows if row["status"] == "passed"]
    assert passed and all(float(row["times_eager"]) > float(row["times_best"]) > 0 for row in passed)
    assert all(row["times_best"] == "" for row in rows if row["status"] != "passed")


def test_the_markdown_has_the_same_scores(found: Gathered) -> None:
    told = markdown([found])
    assert f"| all | 13 | {found.everything.compiled:.1%}" in told
    assert f"| eager | {found.sound.fast['eager']['0']:.1%}" in told and "Ceiling" in told


def run(*arguments: str) -> tuple[int, str]:
    """What a command prints; what it says of mistakes comes as an error."""
    result = CliRunner().invoke(cli, arguments)
    if isinstance(result.exception, UserError):
        return 2, str(result.exception)
    return result.exit_code, result.output


def test_the_command_writes_beside_the_run_or_where_it_is_told(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run.sqlite", 3, 1)
    assert run("report", str(path)) == (0, f"report: {tmp_path / 'run.html'}\n")
    assert (tmp_path / "run.html").read_text().startswith("<!doctype html>")
    code, told = run("report", str(path), "--format", "csv", "--out", str(tmp_path / "none" / "x.csv"))
    assert code == 2 and "cannot be written" in told


def test_runs_are_compared_where_they_were_judged_alike(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a.sqlite", 20, 1, label="first")
    second = write_run(tmp_path / "b.sqlite", 20, 1, seed=5, label="second")
    code, told = run("compare", str(first), str(second))
    assert code == 0 and "second against first, 20 problems of both" in told
    assert re.search(r"gained \d+: level1_", told) and "variance of being right: category" in told


def test_runs_of_two_machines_are_compared_by_force_alone(tmp_path: Path) -> None:
    first, second = (write_run(tmp_path / f"{name}.sqlite", 3, 1) for name in "ab")
    with Archive(second) as archive:
        archive._db.execute("UPDATE verdicts SET record = replace(record, 'a GPU', 'another')")
    code, told = run("compare", str(first), str(second))
    assert code == 2 and "device_name: a GPU and another" in told and "--force" in told
    assert run("compare", str(first), str(second), "--force")[0] == 0


def test_an_empty_run_has_nothing_to_show(tmp_path: Path) -> None:
    Archive(tmp_path / "run.sqlite", create=True).close()
    code, told = run("report", str(tmp_path / "run.sqlite"))
    assert code == 2 and "nothing is judged" in told
