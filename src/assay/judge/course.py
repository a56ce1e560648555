"""The nominal case of a problem, laid out for contestants: inputs drawn, calls timed, answers taken."""

from __future__ import annotations

import math
import secrets
from typing import Any

import torch

from assay.correctness import Fingerprinter
from assay.judge.desk import NEARBY_BYTES, Desk, capacity_bytes
from assay.judge.devices import is_scarce
from assay.judge.prepare import Prepared, is_full_size
from assay.judge.run import Answer, Burst, Run, carried, laid_side_by_side
from assay.judge.seat import FLUSHED_CACHES, Seat
from assay.judge.workshop import Workshop
from assay.worker import Child
from assay.worker.messages import Sample

LARGE_BYTES = 2 << 30
ROTATED_CACHES = 5
BURST_BYTES = 1 << 29
LEAST_BURST_CALLS, MOST_BURST_CALLS = 4, 24
MOST_BURST_US, HOST_CALL_US = 20e3, 150.0
"""On a CPU; what handing out an answer costs there."""
GATED_US, MOST_QUEUED_US = 300.0, 2e3
"""On a device: a few microseconds more for one than for another are no matter then; what a stream holds."""
LONG_US = 1000.0
"""Kernels this long scatter so little that few calls will do."""


class Course:
    """One problem at the size it is scored at, ready for contestants."""

    def __init__(self, shop: Workshop, prepared: Prepared) -> None:
        self._shop = shop
        self.case = prepared.cases[0]
        self._others = [case.instance for case in prepared.cases if is_full_size(case.instance.case)]
        self.desk = Desk(shop.device, Fingerprinter(shop.device))
        self.run = Run(self.case, secrets.randbits(31), shop.device, prepared.precision)
        self.room_bytes = capacity_bytes(self.case.calibration.shapes, self.case.calibration.dtypes)
        self.size_bytes = self.room_bytes + self.case.calibration.input_bytes
        """Inputs and outputs of one call."""
        self.inputs: list[Any] = []
        self._head: dict[str, Any] = {}
        self._burst: list[list[Any]] = []
        self._calls: list[dict[str, Any]] = []
        # Small problems move through more memory than the cache holds; large ones do so by themselves.
        cache_bytes = shop.watch.flush_bytes // FLUSHED_CACHES if shop.watch.cover else 0
        self._spread_bytes = max(
            ROTATED_CACHES * cache_bytes - self.case.calibration.input_bytes, NEARBY_BYTES
        )

    def close(self) -> None:
        self.desk.close()

    @property
    def is_large(self) -> bool:
        return self.size_bytes > LARGE_BYTES

    def seat(self, child: Child, *, is_module: bool) -> Seat:
        self.desk.join(child)
        self._shop.watch.hand_to(child, self.desk)
        return Seat(child, self.desk, self._shop.device, self._shop.policy, is_module=is_module)

    def deal(self, *, moved: bool = True) -> None:
        """A fresh input on the desk."""
        self._burst.clear()
        self.inputs = self.run.instance.make_inputs(secrets.randbits(62), self._shop.device)
        self.desk.need_mailbox(self.room_bytes)
        self._lay(moved=moved)

    def deal_other(self) -> bool:
        """The same size with other contents, where the problem takes any: unlike all that is timed."""
        if not self._others:
            return False
        instance = secrets.choice(self._others)
        self.inputs = instance.make_inputs(secrets.randbits(62), self._shop.device)
        self.desk.need_mailbox(self.room_bytes)
        self._lay(moved=True)
        return True

    def _lay(self, *, moved: bool) -> None:
        tensors: list[torch.Tensor] = []
        tree = carried(self.inputs, tensors, "get_inputs()")
        spread = self._spread_bytes if moved else 0
        layout, written = self.case.instance.case.layout, self.run.calibration.written
        places = self.desk.lay(tensors, layout, within_bytes=spread, written=written)
        self._head = {"inputs": tree, "tensors": places, "grad": "no_grad", "hold": False}

    def burst_calls(self, each_us: float, launch_us: float) -> int:
        """How many calls of this problem one exchange can hold.

        Where they wait behind a gate, a stream must hold all that they launch. On a CPU few tell nothing.
        """
        fitting = min(MOST_BURST_CALLS, BURST_BYTES // max(self.size_bytes, 1))
        if self._shop.device.type == "cuda":
            enough = math.ceil(GATED_US / max(each_us, 1.0))
            return max(1, int(min(fitting, enough, MOST_QUEUED_US // max(launch_us, 1.0))))
        most = int(min(fitting, MOST_BURST_US // max(each_us, HOST_CALL_US)))
        return most if most >= LEAST_BURST_CALLS and each_us <= LONG_US else 0

    def deal_burst(self, calls: int) -> None:
        """So many fresh inputs on the desk, side by side."""
        instance, device = self.run.instance, self._shop.device
        self.inputs = []
        self._burst = [instance.make_inputs(secrets.randbits(62), device) for _ in range(calls)]
        self.desk.need_mailbox(calls * self.room_bytes)
        self._lay_burst()

    def _lay_burst(self) -> None:
        layout, written = self.case.instance.case.layout, self.run.calibration.written
        self._calls = laid_side_by_side(self.desk, self._burst, layout, written)

    def ask_burst(self, seat: Seat) -> Burst:
        """All calls that were dealt, in one exchange."""
        if self.run.calibration.written:
            self._lay_burst()
        if self._shop.device.type != "cuda":
            return seat.burst(self.run, self._calls)
        tensors: list[torch.Tensor] = []
        for inputs in self._burst:
            carried(inputs, tensors, "get_inputs()")
        return seat.gated_burst(self.run, self._calls, tensors)

    def turn_to(self, call: int) -> None:
        """What is compared next answers this call of the burst."""
        self.inputs = self._burst[call]

    def ask(self, seat: Seat, mode: str, *, cover_us: int | None = None, graphed: bool = False) -> Answer:
        """One call on the input that was dealt; contestants that are compared get the same cover."""
        if self.run.calibration.written:  # the one before may have written into them, and was allowed to
            self._lay(moved=not graphed)
        head = {**self._head, "timing": mode, "graphed": graphed, "cover_us": cover_us or seat.cover_us}
        answer = seat.answer(self.run, head)
        if self.is_large and is_scarce(self._shop.device):
            seat.child.ask("release", {"trim": True}, timeout_s=self._shop.policy.call_timeout_s)
        return answer

    def first_call(self, seat: Seat, timeout_s: float) -> Sample:
        """A call whose answer nobody takes: several contestants may compile at the same time."""
        return seat.first_call(self.run, {**self._head, "timing": "idle", "cover_us": 0}, timeout_s)
