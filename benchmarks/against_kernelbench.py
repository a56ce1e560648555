"""The same attacks against KernelBench's own evaluator, beside what Assay made of them.

    assay redteam tests/exploits --device cuda --json > matrix.json
    python benchmarks/against_kernelbench.py CHECKOUT matrix.json --out answers.json --page page.md [--resume]

CHECKOUT is a copy of the KernelBench repository; its evaluator is imported from there, in one fresh process
per attack, with its published parameters: five correctness trials, a hundred timed ones. It needs a GPU, and
whatever KernelBench imports. Answers are kept as they come; --resume asks only for those that are missing.

Fooled means: an attack that must not pass is called correct and not flagged; where an attack may pass as long
as it gains nothing, it must be called faster as well. First each problem's own reference is handed in as a
candidate. Where KernelBench does not call that correct, its word on an attack means nothing, and the attack
is left out, as are those that mean nothing to another evaluator: why is counted on the page.

Not covered: KernelBench's optional static checks, and evaluators built on top of it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Container, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernelbench_asked import CORRECT, CRASHED, NOT_RUN, Answer, Limits, Question, ask

from assay.cli.redteam import SECTIONS
from assay.records import RedteamMatrix, RedteamRow, UserError, from_plain, to_plain
from assay.redteam.corpus import Entry, read_folder

EXPLOITS = Path(__file__).parent.parent / "tests" / "exploits"
GAIN = 1.1
"""Called this much faster than it is, an attack on the clock has gained something."""
OWN_PARTS = re.compile(r"\bassay\.\w|\b(?:Host|Cuda)Stopwatch\b")
OWN_FILE = re.compile(r"(?<![\w\"'])__file__(?![\w\"'])")
NO_ROW, BARE = "not in Assay's record", "bare C++ or CUDA: KernelBench takes Python"
NOT_ON_GPU, NOT_JUDGED = "not for a GPU", "not run by Assay on this device"
AIMED_AT_ASSAY = "aimed at parts that only Assay has"
NEEDS_FILE = "needs `__file__`, which code that KernelBench executes does not have"
NEEDS_CONTROL = "KernelBench does not call the problem's own reference correct"
NEEDS_TWIN = "KernelBench gives the honest twin no speed-up to compare with"
SINGLE = {"b18_disk_cache.py": "replays what an earlier process left, and every process here starts empty"}
"""What no rule read from the file can tell."""


@dataclass(frozen=True, slots=True)
class Attack:
    """One file of the corpus, Assay's row for it, and the keys of the answers it needs."""

    key: str
    entry: Entry
    row: RedteamRow
    control: str
    twin: str | None

    @property
    def needs(self) -> list[str]:
        """What is asked first: the reference as its own candidate, and the honest twin."""
        return [key for key in (self.control, self.twin) if key is not None]

    @property
    def may_pass(self) -> bool:
        """It may do the work and gain nothing: only a speed-up that is none gives it away."""
        return bool(self.entry.speeds) or "passed" in self.entry.statuses


@dataclass(slots=True)
class Comparison:
    """What is asked, and what is left out and why."""

    attacks: list[Attack] = field(default_factory=list)
    questions: dict[str, Question] = field(default_factory=dict)
    left_out: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))


class Notebook:
    """All answers so far, in a file that is whole at any moment."""

    def __init__(self, path: Path | None, package: Path, *, resume: bool) -> None:
        self._path = path
        texts = [file.read_bytes() for file in sorted(package.rglob("*.py"))]
        self.evaluator = hashlib.sha256(b"\0".join(texts)).hexdigest()[:12]
        self.answers: dict[str, Answer] = {}
        if resume and path is not None and path.exists():
            kept = json.loads(path.read_text(encoding="utf-8"))["answers"]
            self.answers = {key: from_plain(Answer, plain, key) for key, plain in kept.items()}

    def digest(self, question: Question) -> str:
        texts = (self.evaluator, question.backend, question.reference, question.candidate)
        return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:12]

    def lacks(self, key: str, question: Question) -> bool:
        """Answers to other texts, or of another evaluator, do not count."""
        known = self.answers.get(key)
        return known is None or known.word == NOT_RUN or known.digest != self.digest(question)

    def write(self, key: str, answer: Answer) -> None:
        self.answers[key] = answer
        if self._path is not None:
            plain = {"evaluator": self.evaluator, "answers": to_plain(self.answers)}
            draft = self._path.with_name(self._path.name + ".draft")
            draft.write_text(json.dumps(plain, indent=1), encoding="utf-8")
            os.replace(draft, self._path)


def read_matrix(path: Path) -> RedteamMatrix:
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is no record: write one with `assay redteam --json`: {error}") from None
    return from_plain(RedteamMatrix, plain, "matrix")


def compare(corpus: Path, matrix: RedteamMatrix) -> Comparison:
    """The attacks of a corpus that mean something to another evaluator.

    Rows name files without their folders. The same name comes twice in the corpus; rows have its order.
    """
    rows: dict[tuple[str, str, str], list[RedteamRow]] = defaultdict(list)
    for row in matrix.rows:
        rows[row.name, row.catalogue, row.expected].append(row)
    found = Comparison()
    for entry in read_folder(corpus):
        if entry.honest:
            continue
        same = rows[entry.path.name, entry.catalogue, " ".join(entry.statuses)]
        row = same.pop(0) if same else None
        key = entry.path.relative_to(corpus).as_posix()
        why = why_not(entry, row)
        if row is None or why:
            found.left_out[why].append(key)
            continue
        problem = entry.problem_on("cuda")
        reference = problem.read_text(encoding="utf-8")
        control = "control " + os.path.relpath(problem, corpus)
        found.questions[control] = Question(reference, re.sub(r"\bModel\b", "ModelNew", reference))
        found.questions[key] = Question(reference, entry.path.read_text(encoding="utf-8"))
        twin = None
        if entry.twin is not None:
            twin = "twin " + os.path.relpath(entry.twin, corpus)
            found.questions[twin] = Question(reference, entry.twin.read_text(encoding="utf-8"))
        found.attacks.append(Attack(key, entry, row, control, twin))
    return found


def why_not(entry: Entry, row: RedteamRow | None) -> str:
    """Why an attack means nothing to another evaluator; empty if it does."""
    if row is None:
        return NO_ROW
    if entry.path.suffix != ".py":
        return BARE
    if "cuda" not in entry.devices:
        return NOT_ON_GPU
    if row.status == "not run":
        return NOT_JUDGED
    source = entry.path.read_text(encoding="utf-8")
    if OWN_PARTS.search(source):
        return AIMED_AT_ASSAY
    if Question("", source).backend != "triton" and OWN_FILE.search(source):
        return NEEDS_FILE
    return SINGLE.get(entry.path.name, "")


@dataclass(frozen=True, slots=True)
class Asking:
    """Asks for every answer that is missing, and writes each down as it comes."""

    found: Comparison
    book: Notebook
    package: Path
    limit_s: float
    budget_ends: float
    jobs: int

    def ask(self, keys: Iterable[str], alone: Container[str]) -> None:
        """Some at once, then, one by one, those whose times count."""
        wanted = dict.fromkeys(keys)
        missing = [key for key in wanted if self.book.lacks(key, self.found.questions[key])]
        self._ask([key for key in missing if key not in alone], self.jobs)
        self._ask([key for key in missing if key in alone], 1)

    def _ask(self, keys: list[str], jobs: int) -> None:
        questions = self.found.questions
        limits = Limits(self.limit_s, self.budget_ends, threading.Event())
        with ThreadPoolExecutor(jobs) as pool:
            try:
                asked = {pool.submit(ask, self.package, questions[key], limits): key for key in keys}
                for done, future in enumerate(as_completed(asked), 1):
                    key = asked[future]
                    answer = replace(future.result(), digest=self.book.digest(questions[key]))
                    self.book.write(key, answer)
                    ratio = f" {answer.speed_up:.2f}x" if answer.speed_up is not None else ""
                    note = f"  {answer.note}" if answer.note else ""
                    print(f"{done:4}/{len(keys)} {key:50} {answer.word}{ratio}{note}", flush=True)
            finally:
                limits.stop.set()  # or, interrupted, the pool would wait for all that is under way


def settle(found: Comparison, book: Notebook) -> None:
    """Leaves out attacks whose control says that KernelBench's word on them would mean nothing."""
    for attack in list(found.attacks):
        control = book.answers[attack.control]
        twin = book.answers[attack.twin] if attack.twin is not None else None
        why = ""
        if control.word not in (CORRECT, NOT_RUN):
            why = NEEDS_CONTROL
        elif twin is not None and twin.word != NOT_RUN and (twin.word != CORRECT or not twin.speed_up):
            why = NEEDS_TWIN
        if why:
            found.attacks.remove(attack)
            found.left_out[why].append(attack.key)


def may_run(attack: Attack, book: Notebook) -> bool:
    return all(book.answers[key].word == CORRECT for key in attack.needs)


def has_run(attack: Attack, book: Notebook) -> bool:
    return may_run(attack, book) and book.answers[attack.key].word != NOT_RUN


def is_fooled(attack: Attack, book: Notebook) -> bool:
    """Whether KernelBench took the attack for a good kernel."""
    answer = book.answers[attack.key]
    if answer.word != CORRECT or answer.flagged:
        return False
    if not attack.may_pass:
        return True
    # What the reference is called against itself is the error of these clocks, and not the attack's gain.
    fair = max(1.0, *(book.answers[key].speed_up or 1.0 for key in attack.needs))
    return answer.speed_up is not None and answer.speed_up > GAIN * fair


def page(found: Comparison, book: Notebook, matrix: RedteamMatrix, jobs: int) -> str:
    ran = [attack for attack in found.attacks if has_run(attack, book)]
    counted = [attack for attack in ran if not attack.entry.forbid_libraries]
    rules = [attack for attack in ran if attack.entry.forbid_libraries]
    sections: dict[str, list[Attack]] = defaultdict(list)
    for attack in counted:
        sections[attack.entry.catalogue[:1]].append(attack)
    left_out = sum(len(keys) for keys in found.left_out.values())
    lines = _totals(counted, book)
    lines.append(
        f"- besides, {len(rules)} break only a declared rule, {left_out} are left out and "
        f"{len(found.attacks) - len(ran)} were not run"
    )
    lines += [
        "",
        f"Evaluator {book.evaluator}, {matrix.environment.device_name}, up to {jobs} at once; attacks ",
    ]
    lines[-1] += "that only a speed-up gives away ran alone."
    own = [book.answers[key].speed_up or 1.0 for key in sorted({attack.control for attack in ran})]
    if own:
        lines.append(f"References were called {min(own):.2f} to {max(own):.2f} times as fast as themselves.")
    for letter, attacks in sorted(sections.items()):
        fooled = sum(is_fooled(attack, book) for attack in attacks)
        passed = sum(attack.row.fooled for attack in attacks)
        title = f"{letter} {SECTIONS.get(letter, '')}".strip()
        lines += ["", f"## {title}: fooled KernelBench {fooled}, Assay {passed} of {len(attacks)}", ""]
        lines += _table(attacks, book)
    if rules:
        lines += ["", f"## Only against a declared rule, which KernelBench does not have: {len(rules)}", ""]
        lines += _table(rules, book)
    return "\n".join([*lines, "", "## Left out", "", *_left_out(found, book)]) + "\n"


def _left_out(found: Comparison, book: Notebook) -> list[str]:
    lines = []
    for why, keys in sorted(found.left_out.items(), key=lambda pair: -len(pair[1])):
        lines.append(f"- {len(keys)}: {why}: {', '.join(keys)}")
    for key in sorted(found.questions.keys() & book.answers.keys()):
        answer = book.answers[key]
        if key.startswith("control ") and answer.word not in (CORRECT, NOT_RUN):
            lines.append(f"- {key}: {answer.word}")
    return lines


def _totals(counted: list[Attack], book: Notebook) -> list[str]:
    words = Counter(book.answers[attack.key].word for attack in counted)
    flagged = sum(book.answers[attack.key].flagged for attack in counted)
    return [
        "# Attacks on KernelBench's evaluator and on Assay",
        "",
        f"- {len(counted)} attacks mean something to both",
        f"- {sum(is_fooled(attack, book) for attack in counted)} fooled KernelBench: called correct and not "
        f"flagged, and, where doing the work is allowed, more than {GAIN:g} times as fast as it is",
        f"- {sum(attack.row.fooled for attack in counted)} passed Assay",
        f"- KernelBench called {words[CORRECT]} correct and flagged {flagged} of these; "
        f"{words[CRASHED]} crashed it after it had called them correct",
    ]


def _table(attacks: list[Attack], book: Notebook) -> list[str]:
    lines = [
        "| attack | kind | KernelBench | flagged | speed-up | fooled | Assay | named |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for attack in attacks:
        answer, row = book.answers[attack.key], attack.row
        ratio = f"{answer.speed_up:.2f}" if answer.speed_up is not None else ""
        fooled = "**yes**" if is_fooled(attack, book) and not attack.entry.forbid_libraries else ""
        ours = f"{row.status} {row.outcome}".strip() + (" (fooled)" if row.fooled else "")
        theirs = (answer.word, "yes" if answer.flagged else "", ratio, fooled)
        cells = (attack.key, row.catalogue, *theirs, ours, ", ".join(row.findings))
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("checkout", type=Path, help="of KernelBench")
    parser.add_argument("matrix", type=Path, help="the record of `assay redteam --json`")
    parser.add_argument("--corpus", type=Path, default=EXPLOITS, help="the folder that the record is of")
    parser.add_argument("--out", type=Path, help="file for the answers, whole after each of them")
    parser.add_argument("--resume", action="store_true", help="keep the answers that --out has already")
    parser.add_argument("--page", type=Path, help="file for the comparison, as markdown")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once, where times do not count")
    parser.add_argument("--limit-s", type=float, default=120.0, help="for one attack")
    parser.add_argument("--budget-s", type=float, default=float("inf"), help="for all; the rest is not run")
    options = parser.parse_args()
    if not (options.checkout / "src" / "kernelbench" / "eval.py").exists():
        parser.error("the checkout of KernelBench has no src/kernelbench/eval.py")
    if options.jobs < 1:
        parser.error("--jobs must be at least 1")
    if options.resume and options.out is None:
        parser.error("--resume needs --out, the file to go on with")
    return options


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # children are ended on the way out
    source = options.checkout / "src"
    matrix = read_matrix(options.matrix)
    found = compare(options.corpus, matrix)
    book = Notebook(options.out, source / "kernelbench", resume=options.resume)
    budget_ends = time.monotonic() + options.budget_s
    asking = Asking(found, book, source, options.limit_s, budget_ends, options.jobs)
    alone = {key for attack in found.attacks if attack.may_pass for key in (attack.key, *attack.needs)}
    needed = list(dict.fromkeys(key for attack in found.attacks for key in attack.needs))
    asking.ask(needed, alone)
    controls = [book.answers[key] for key in needed]
    if controls and not any(answer.word in (CORRECT, NOT_RUN) for answer in controls):
        first = f"{controls[0].word} {controls[0].note}".strip()
        print(f"KernelBench calls no reference correct ({first}): nothing can be compared", file=sys.stderr)
        return 2
    settle(found, book)
    asking.ask([attack.key for attack in found.attacks if may_run(attack, book)], alone)
    text = page(found, book, matrix, options.jobs)
    if options.page is not None:
        options.page.write_text(text, encoding="utf-8")
    print(text if options.page is None else text.partition("\n## ")[0])
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except UserError as error:
        sys.exit(f"error: {error}")
