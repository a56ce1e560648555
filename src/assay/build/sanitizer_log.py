"""Reads the log of compute-sanitizer: what it found, in which kernel, at which line, and whether it finished.

The log is text for people and changes from version to version, so everything is optional here: whatever is
no known noise and names a kernel is an error, and what names none is told as it stands.

Not covered: XML and saved sessions, backtraces of the host, leaks.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

ERROR, WARNING, NOTE = "error", "warning", "note"
_PREFIX = re.compile(r"^={8,9}(?: |$)")
_NOISE = re.compile(
    r"COMPUTE-SANITIZER|Program hit |(LEAK|ERROR|RACECHECK) SUMMARY:|Saved host backtrace", re.I
)
_SEVERITY = re.compile(r"^(error|warning|info)\s*:\s*", re.I)
_DETAIL = re.compile(
    r"\s|(at|and|in) |by thread|Address |Host Frame|Device Frame|Saved host|(Read|Write) Thread|Current Value"
)
_SUMMARY = re.compile(r"^={8,9} ERROR SUMMARY: (\d+) errors?\b(?! w)", re.I | re.M)
_RACES = re.compile(r"^={8,9} RACECHECK SUMMARY: \d+ hazards? displayed \((\d+) errors?", re.I | re.M)
_TROUBLE = re.compile(
    r"error\b|internal|fatal|target application|process (didn't|did not)|default timeout|tracking kernels",
    re.I,
)
_IN_FILE = r"(?: in (?P<file>[^\[\]]+?):(?P<line>\d+))?"
_PLACES = (
    re.compile(rf"\bat (?P<kernel>\S.*?)[+:]0x[0-9a-f]+{_IN_FILE}", re.I),
    # Before 2022: the offset first, the kernel last.
    re.compile(r"\bat 0x[0-9a-f]+ in (?:(?P<file>\S+?):(?P<line>\d+):)?(?P<kernel>[^\s:].*)", re.I),
)
_FRAME = re.compile(
    r"Device Frame:\s*(?:\S+?:\d+:)?(?P<kernel>\S.*?)(?:\+0x| \[| \(.*: 0x| at line |\s*$)", re.I
)
_AFTER_KERNEL = re.compile(r"\s*(\[\d+ hazards?\]|and (Read|Write) access .*)\s*$")


@dataclass(frozen=True, slots=True)
class SanitizerReport:
    """One thing the tool says."""

    kind: str
    """"error", "warning" or "note"."""
    text: str
    kernel: str = ""
    """The kernel it happened in, as the tool writes it; empty where it names none."""
    location: str = ""
    """"file.cu:12", where it says so."""


@dataclass(frozen=True, slots=True)
class SanitizerLog:
    """All that one tool said."""

    reports: tuple[SanitizerReport, ...]
    complete: bool
    """It came to its summary."""
    errors: int
    """By the summary; those it printed may be fewer."""
    troubles: tuple[str, ...]
    """What it says about itself or the program it watched, not about a kernel."""


def read_sanitizer_log(text: str) -> SanitizerLog:
    """The log as records; never fails, whatever the text is."""
    blocks: list[list[str]] = []
    for line in text.splitlines():
        found = _PREFIX.match(line)
        if found is None or not line[found.end() :].strip():
            continue
        words = line[found.end() :]
        if blocks and _DETAIL.match(words):
            blocks[-1].append(words.strip())
        else:
            blocks.append([words.strip()])
    reports, troubles = [], []
    for head, *details in blocks:
        if _NOISE.match(head):
            continue
        report = _report(head, details)
        if not report.kernel and _TROUBLE.match(head):
            troubles.append(head)
        else:
            reports.append(report)
    counts = [int(n) for pattern in (_SUMMARY, _RACES) for n in pattern.findall(text)]
    return SanitizerLog(tuple(reports), bool(counts), max(counts, default=0), tuple(troubles))


def _report(head: str, details: list[str]) -> SanitizerReport:
    severity = _SEVERITY.match(head)
    words = [_SEVERITY.sub("", head)]
    words += [detail for detail in details if detail.startswith(("Address ", "and "))]
    kernel, location = _place([head, *details])
    frames = [found["kernel"] for detail in details if (found := _FRAME.match(detail))]
    # The last frame is the outermost: the kernel itself, where the place is in a function that it called.
    kernel = frames[-1] if frames else kernel
    kind = {"warning": WARNING, "info": NOTE}.get(severity[1].lower() if severity else "", ERROR)
    return SanitizerReport(kind if kernel else NOTE, " ".join(words), kernel, location)


def _place(lines: list[str]) -> tuple[str, str]:
    """The first place named: a kernel, and a line of its source if it is known."""
    for line in lines:
        for pattern in _PLACES:
            if found := pattern.search(line):
                kernel = _AFTER_KERNEL.sub("", found["kernel"]).strip()
                file = found["file"]
                return kernel, f"{os.path.basename(file)}:{found['line']}" if file else ""
    return "", ""
