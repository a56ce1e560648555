"""Searches nobody ran: made-up snapshots, and a driver that shows them.

`python tests/null/live_demo.py` runs one on the terminal; with a number, one that stands still at so many
candidates; with --plain, as lines.
"""

from __future__ import annotations

import io
import queue
import random
import sys
import time
from collections.abc import Iterator
from dataclasses import replace

from rich.console import Console

from assay.cli.live_controls import HELP, Controls
from assay.cli.live_picture import Scene, picture
from assay.cli.live_text import Pen
from assay.cli.live_view import open_view
from assay.records import Interval
from assay.search.snapshot import (
    BAN,
    CANDIDATE,
    IDEA,
    INJECT,
    PIN,
    STOP,
    UNBAN,
    UNPIN,
    Activity,
    BestShown,
    BudgetShown,
    Command,
    Counts,
    Event,
    LimitShown,
    ProposerShown,
    RungShown,
    Snapshot,
    TreeNode,
)

OPPONENT_US, FLOOR_US = 55.2, 30.3
LADDER = (
    RungShown("eager", 102.3),
    RungShown("compile", OPPONENT_US),
    RungShown("compile, max-autotune", 57.9),
    RungShown("cudnn", None, "no such operation"),
)
IDEAS = ("vector loads", "two rows to a block", "one pass with a running maximum")
STATUSES = ("passed", "wrong", "passed", "duplicate", "build_failed", "passed", "timed_out", "passed")
STEP_S = 9.5
PRINTED = "printed while the view was open"


def node_of(number: int, rng: random.Random) -> TreeNode:
    """The candidate of this number; its parent is an idea or an earlier one."""
    status = STATUSES[number % len(STATUSES)]
    middle = 0.8 + 0.55 * rng.random()
    ratio = Interval(middle, middle - 0.02, middle + 0.02) if status == "passed" else None
    parent = (IDEA, 1 + number % len(IDEAS)) if number < 6 else (CANDIDATE, rng.randrange(1, number - 2))
    return TreeNode(number, CANDIDATE, f"softmax_{number}", parent, status, ratio, note="other constants")


def search(candidates: int, *, seed: int = 3) -> Snapshot:
    """A search after so many candidates."""
    rng = random.Random(seed)
    elapsed_s = STEP_S * candidates
    nodes = [node_of(number, rng) for number in range(1, candidates + 1)]
    nodes = [replace(node, age_s=elapsed_s - STEP_S * node.id) for node in nodes]
    timed = [(node.ratio.middle, node) for node in nodes if node.ratio is not None]
    best = max(timed, key=lambda pair: pair[0])[1] if timed else None
    ideas = [
        TreeNode(k, IDEA, title, status="open", age_s=elapsed_s, note=f"{title} should halve the traffic")
        for k, title in enumerate(IDEAS, start=1)
    ]
    marked = [replace(node, is_best=node is best, pinned=node.id == 2) for node in nodes]
    return Snapshot(
        problem="softmax",
        device="NVIDIA H200",
        strategy="bandit",
        elapsed_s=elapsed_s,
        ladder=LADDER,
        limit=LimitShown(FLOOR_US, 100 * FLOOR_US / _time_us(best) if best is not None else None),
        best=_best(best),
        budgets=(
            BudgetShown("time", elapsed_s, 3600, "s"),
            BudgetShown("device", 0.7 * elapsed_s, None, "s"),
            BudgetShown("evaluations", candidates, 50, ""),
            BudgetShown("tokens", 1234.0 * candidates, 2e6, "tokens"),
            BudgetShown("cost", None, 5.0, "$"),
        ),
        counts=_counts(nodes),
        activity=Activity(
            f"judging #{candidates + 1} softmax_{candidates + 1}", elapsed_s, (("to judge", 3),), 0.72
        ),
        proposers=(ProposerShown("compiler", 1, candidates, 0.0), ProposerShown("model", 2, 3, None)),
        tree=(*ideas, *marked),
        events=tuple(Event(n.id, STEP_S * n.id, _event(n)) for n in nodes[-40:]),
    )


def _time_us(node: TreeNode) -> float:
    return OPPONENT_US / node.ratio.middle if node.ratio is not None else OPPONENT_US


def _best(node: TreeNode | None) -> BestShown | None:
    if node is None:
        return None
    note = "vector loads, two rows to a block"
    return BestShown(node.id, node.label, node.ratio, _time_us(node), note, "compiler", "mutate")


def _counts(nodes: list[TreeNode]) -> Counts:
    ratios = [node.ratio for node in nodes if node.ratio is not None]
    duplicates = sum(node.status == "duplicate" for node in nodes)
    return Counts(
        asked=len(nodes) + 4,
        drafted=len(nodes),
        duplicates=duplicates,
        judged=len(nodes) - duplicates,
        right=len(ratios),
        faster=sum(ratio.low > 1 for ratio in ratios),
        wrong=sum(node.status == "wrong" for node in nodes),
        failed=sum(node.status in ("build_failed", "timed_out") for node in nodes),
    )


def _event(node: TreeNode) -> str:
    speed = f", {node.ratio.middle:.2f}x of compile" if node.ratio is not None else ""
    return f"#{node.id} {node.label}: {node.status.replace('_', ' ')}{speed}"


class Desk:
    """Does what commands say to the snapshots that follow."""

    def __init__(self) -> None:
        self.commands: queue.Queue[Command] = queue.Queue()
        self.is_stopped = False
        self._pinned: dict[int, bool] = {}
        self._banned: dict[int, bool] = {}
        self._message = ""

    def obey(self, snapshot: Snapshot) -> Snapshot:
        while not self.commands.empty():
            command = self.commands.get()
            self._message = f"done: {command.kind} {command.candidate or command.path}".rstrip()
            self.is_stopped = self.is_stopped or command.kind == STOP
            if command.kind in (PIN, UNPIN):
                self._pinned[command.candidate or 0] = command.kind == PIN
            elif command.kind in (BAN, UNBAN):
                self._banned[command.candidate or 0] = command.kind == BAN
            elif command.kind == INJECT:
                self._message = f"there is no file {command.path}"
        tree = tuple(self._marked(node) for node in snapshot.tree)
        return replace(snapshot, tree=tree, message=self._message)

    def _marked(self, node: TreeNode) -> TreeNode:
        if node.kind == IDEA:
            return node
        pinned, banned = self._pinned.get(node.id, node.pinned), self._banned.get(node.id, node.banned)
        return replace(node, pinned=pinned, banned=banned)


def detail(candidate: int) -> str:
    return f"candidate {candidate}\nstatus: passed\n" + "\n".join(f"finding {k}" for k in range(40))


def drawn(snapshot: Snapshot, width: int, height: int, controls: Controls | None = None) -> list[str]:
    """The picture as it comes out of a console of this size."""
    console = Console(record=True, width=width, height=height, file=io.StringIO())
    scene = Scene(snapshot, snapshot.elapsed_s, controls or Controls(queue.Queue(), detail, HELP))
    for line in picture(Pen("utf-8"), scene, width, height):
        console.print(line, soft_wrap=True, end="\n")
    return console.export_text().splitlines()


def steps(desk: Desk, at_once: int | None) -> Iterator[Snapshot]:
    candidates = at_once or 1
    while not desk.is_stopped:
        yield search(candidates)
        candidates += at_once is None


def main(arguments: list[str]) -> None:
    numbers = [int(word) for word in arguments if word.isdigit()]
    desk = Desk()
    console = Console()
    with open_view(console, plain="--plain" in arguments, commands=desk.commands, detail=detail) as view:
        for snapshot in steps(desk, numbers[0] if numbers else None):
            for _ in range(5):
                view.show(desk.obey(snapshot))
                if desk.is_stopped:
                    break
                time.sleep(0.1)
        print(PRINTED)
    console.print("the search was stopped")


if __name__ == "__main__":
    main(sys.argv[1:])
