"""The desk between judge and children: inputs are laid out on it, answers are picked up from it.

Owns the shared arenas: one child's, or both contestants' in a race, who then read the very same bytes.
The judge's originals never lie here, so whatever a candidate does to the desk, the oracle does not see it.
Answers are copied off the moment the child says it is done.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Sequence
from itertools import zip_longest
from typing import Any

import torch

from assay.correctness import Fingerprinter
from assay.judge.devices import leave_room
from assay.judge.gate import Gate
from assay.problems.layouts import dense_strides
from assay.problems.values import NotCarried, dtype_named
from assay.records import CandidateFailure
from assay.worker import Child
from assay.worker.arena import Arena, make_arena, make_walk
from assay.worker.gate import GATE_BYTES
from assay.worker.messages import OutputFact
from assay.worker.placement import ALIGNMENT_BYTES, Form, Placement, place, place_densely

SETUP_TIMEOUT_S = 60.0
NEARBY_BYTES = 32 * ALIGNMENT_BYTES
Making = Callable[[int, torch.device], Arena]


class Desk:
    """Shared memory with one child, or with several."""

    def __init__(self, device: torch.device, fingerprinter: Fingerprinter) -> None:
        self._device = device
        self._fingerprinter = fingerprinter
        self._children: list[Child] = []
        self._arenas: dict[str, Arena] = {}
        self._placements: list[Placement] = []
        self._laid = slice(0)
        self._writable: list[Placement] = []
        self._fingerprint = 0
        self._gate: Gate | None = None

    def join(self, child: Child) -> None:
        """From now on this child sees the desk too."""
        self._children.append(child)
        for role in self._arenas:
            self._show(child, role)

    def leave(self, child: Child) -> None:
        if child in self._children:
            self._children.remove(child)

    def close(self) -> None:
        for arena in self._arenas.values():
            arena.close()
        self._arenas.clear()

    def size_bytes(self) -> int:
        return sum(arena.size_bytes for arena in self._arenas.values())

    def need_flush(self, size_bytes: int) -> None:
        """A buffer that everybody walks over to empty the caches."""
        self._arena("flush", size_bytes, make_walk)

    def lay(
        self,
        tensors: list[torch.Tensor],
        layout: str,
        *,
        within_bytes: int = 0,
        calls: int = 1,
        written: Collection[int] = (),
    ) -> list[dict[str, Any]]:
        """Copy tensors onto the desk under a layout; returns their places.

        Args:
            calls: of how many calls these are the inputs.
            within_bytes: somewhere new within so many bytes; 0 for the same places as ever, so that new
                contents appear under the same tensors.
            written: which of a call's inputs a candidate may write into.
        """
        slots = within_bytes // ALIGNMENT_BYTES
        start = ALIGNMENT_BYTES * (1 + secrets.randbelow(slots)) if slots else 0
        placements, end = place(tensors, layout, start, calls)
        room = max(within_bytes, NEARBY_BYTES) + 2 * ALIGNMENT_BYTES
        arena = self._arena("in", end - start + room)
        if layout != "given":
            arena.bytes[start:end].random_(0, 256)
        # Zeros behind an input would make reading past its end right.
        for placement in placements:
            behind = placement.end_bytes
            arena.bytes[behind : -(-(behind + 1) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES].random_(0, 256)
        self._placements = placements
        self._laid = slice(start, end)
        for tensor, placement in zip(tensors, placements, strict=True):
            fill(placement, arena.bytes, tensor)
        self._settle()
        each = max(1, len(tensors) // calls)
        self._writable = [placement for k, placement in enumerate(placements) if k % each in written]
        self._fingerprint = self._watched()
        return [placement.plain() for placement in placements]

    def withhold(self, tensors: list[torch.Tensor]) -> Callable[[], None]:
        """Zeros in the place of what was laid out; returns what lays it out again, and waits for nothing."""
        pairs = [
            _stored(placement, self._arenas["in"].bytes, tensor)
            for placement, tensor in zip(self._placements, tensors, strict=True)
        ]
        for view, _ in pairs:
            view.zero_()
        self._settle()
        views, values = [view for view, _ in pairs], [value for _, value in pairs]
        return lambda: torch._foreach_copy_(views, values) if views else None

    def gate(self) -> Gate:
        """The gate that everybody at this desk sees."""
        if self._gate is None:
            self._gate = Gate(self._arena("gate", GATE_BYTES).bytes)
        return self._gate

    def flush(self) -> None:
        """Walk over more than the caches hold."""
        words = self._arenas["flush"].bytes
        words[: words.numel() // 4 * 4].view(torch.int32).add_(1)

    def inputs_untouched(self) -> bool:
        """Whether every byte that is not for writing, gaps between elements included, is as it was."""
        return self._watched() == self._fingerprint

    def _watched(self) -> int:
        laid = self._on_device(self._arenas["in"].bytes[: self._laid.stop])
        if self._writable:
            laid = laid.clone()
            for placement in self._writable:
                _elements(placement, laid).zero_()
        return self._fingerprinter.of(laid[self._laid])

    def need_mailbox(self, capacity_bytes: int) -> None:
        """Room for answers, which everybody who is asked next has to see."""
        self._arena("out", capacity_bytes)

    def clear_mailbox(self, capacity_bytes: int) -> None:
        """Fill the mailbox with noise of this call alone: nothing stale can be taken for an answer."""
        arena = self._arena("out", capacity_bytes)
        words = arena.bytes[: arena.size_bytes // 8 * 8].view(torch.int64)
        words.fill_(secrets.randbits(62))
        self._settle()

    def take(self, size_bytes: int) -> torch.Tensor:
        """The judge's own copy of what lies in the mailbox now."""
        taken = self.take_later(size_bytes)
        self._settle()
        return taken

    def take_later(self, size_bytes: int) -> torch.Tensor:
        """The same when everything queued before has ended; not waited for."""
        taken = torch.empty(size_bytes, dtype=torch.uint8, device=self._device)
        return taken.copy_(self._arenas["out"].bytes[:size_bytes])

    def fingerprints(self, tensors: list[torch.Tensor]) -> list[int]:
        return [self._fingerprinter.of(t.reshape(-1).view(torch.uint8)) for t in tensors]

    def _arena(self, role: str, size_bytes: int, make: Making = make_arena) -> Arena:
        arena = self._arenas.get(role)
        if arena is not None and arena.size_bytes >= size_bytes:
            return arena
        if arena is not None:
            arena.close()
        leave_room(self._device)
        arena = make(size_bytes, self._device)
        self._arenas[role] = arena
        for child in self._children:
            self._show(child, role)
        return arena

    def _show(self, child: Child, role: str) -> None:
        arena = self._arenas[role]
        child.extra_memory_bytes = sum(
            a.size_bytes for a in self._arenas.values() if a.bytes.device.type == "cpu"
        )
        head = {"role": role, "description": arena.describe()}
        stood_still = child.is_frozen
        child.ask("arena", head, fds=arena.fds(), timeout_s=SETUP_TIMEOUT_S)
        if stood_still:  # asking wakes it, and what is laid out next is not for it to see
            child.freeze()

    def _on_device(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._device)

    def _settle(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def fill(placement: Placement, arena_bytes: torch.Tensor, tensor: torch.Tensor) -> None:
    """Write a tensor's values into its place."""
    view, values = _stored(placement, arena_bytes, tensor)
    view.copy_(values)


def _stored(
    placement: Placement, arena_bytes: torch.Tensor, tensor: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """A place and what belongs there, each element once."""
    view = _elements(placement, arena_bytes)
    # An expanded input: writing its one stored copy writes all of them.
    return view, tensor if view.shape == tensor.shape else tensor.as_strided(view.shape, tensor.stride())


def _elements(placement: Placement, arena_bytes: torch.Tensor) -> torch.Tensor:
    """What is stored at a place, each element once."""
    view = placement.view(arena_bytes)
    if 0 in placement.strides and view.numel():
        return view.as_strided(_stored_shape(placement), placement.strides)
    return view


def _stored_shape(placement: Placement) -> tuple[int, ...]:
    return tuple(1 if s == 0 else n for n, s in zip(placement.shape, placement.strides, strict=True))


def unpacked(
    taken: torch.Tensor, facts: list[OutputFact], specified: Sequence[tuple[int, ...]] = ()
) -> list[torch.Tensor]:
    """What was taken from the mailbox, in row-major order and shaped as the child says; a specification's
    own strides are used where the child says so, and no others."""
    forms = [
        (fact.shape, fact.dtype, strides if fact.as_specified else None)
        for fact, strides in zip_longest(facts, specified[: len(facts)])
    ]
    placements, end = _mailbox(forms)
    if end > taken.numel():
        raise CandidateFailure("rejected", "forged_message", "claims to have delivered more than fits")
    return [placement.view(taken).contiguous() for placement in placements]


def capacity_bytes(shapes: tuple[tuple[int, ...], ...], dtypes: tuple[str, ...]) -> int:
    """Room for outputs of these forms."""
    return _mailbox([(shape, dtype, None) for shape, dtype in zip(shapes, dtypes, strict=True)])[1]


def _mailbox(
    forms: Sequence[tuple[tuple[int, ...], str, tuple[int, ...] | None]],
) -> tuple[list[Placement], int]:
    """Places in the mailbox; a form that cannot exist was made up by the child."""
    try:
        return place_densely(
            [
                Form(shape, dtype_named(dtype), dense_strides(shape) if strides is None else strides)
                for shape, dtype, strides in forms
            ]
        )
    except (NotCarried, RuntimeError, OverflowError, TypeError) as error:
        raise CandidateFailure("rejected", "forged_message", f"claims outputs {forms[:3]}") from error
