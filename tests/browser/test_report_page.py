"""The report in a real browser: it filters, opens what is linked, fits a phone, and complains of nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import webdriver

sys.path.insert(0, str(Path(__file__).parent.parent / "null"))
from synthetic_runs import write_run

from assay.archive import Archive
from assay.report import gather
from assay.report.page import page

pytestmark = pytest.mark.skipif(bool(webdriver.missing()), reason=webdriver.missing())
SHOWN = "return [...document.querySelectorAll('#verdicts tbody tr')].filter(r => !r.hidden).length"
SCREENSHOTS = Path(__file__).parents[2] / ".assay" / "screenshots"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Browser]:
    with webdriver.Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    with Archive(write_run(folder / "run.sqlite", 26, 4, 2, flawed=2)) as archive:
        (folder / "run.html").write_text(page([gather(archive)]), encoding="utf-8")
    return folder / "run.html"


def choose(browser: webdriver.Browser, key: str, value: str) -> int:
    """Rows that are left when one filter is set."""
    box = f"document.querySelector('.filters [data-key={key}]')"
    browser.run(f"{box}.value = '{value}'; {box}.dispatchEvent(new Event('input'))")
    return int(browser.run(SHOWN))


def test_the_table_filters_by_name_and_by_choice(browser: webdriver.Browser, report: Path) -> None:
    browser.open(report)
    everything = 26 * 4 * 2
    assert browser.run(SHOWN) == everything
    assert choose(browser, "category", "softmax") == 2 * 8
    assert choose(browser, "name", "problem_003") == 8
    assert browser.run("return document.getElementById('shown').textContent") == f"8 of {everything}"
    assert choose(browser, "name", "nobody") == 0
    assert choose(browser, "name", "") == 16 and choose(browser, "category", "") == everything
    right = browser.run("return document.querySelectorAll('#verdicts .passed').length")
    assert choose(browser, "status", "passed") == right


def test_a_link_opens_what_it_leads_to(browser: webdriver.Browser, report: Path) -> None:
    browser.open(report)
    target = browser.run("const link = document.querySelector('#verdicts a'); link.click(); return link.hash")
    opened = "const box = document.querySelector('{}'); return box.open && box.parentElement.open"
    assert browser.run(opened.format(target)) is True
    browser.open(report, "#p-level1_problem_004")
    assert browser.run("return document.getElementById('p-level1_problem_004').open") is True


@pytest.mark.parametrize("name, width", [("wide", 1280), ("phone", 390)])
def test_it_fits_and_complains_of_nothing(
    browser: webdriver.Browser, report: Path, name: str, width: int
) -> None:
    browser.resize(width, 1600)
    browser.open(report)
    browser.photograph(SCREENSHOTS / f"report-{name}.png")
    inner, needed = browser.run("return [innerWidth, document.documentElement.scrollWidth]")
    assert needed <= inner
    assert browser.complaints() == []
