"""The child: the only process that runs candidate code. It collects, it never judges.

Everything in here shares an interpreter with hostile code once `load` has run, so nothing it says is
believed: what counts are the bytes in the mailbox when the judge looks, and the judge's own clock. It holds
no seeds of inputs to come, no expected values and no reference.

This is one of the two process edges where any exception is caught: it becomes evidence.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from assay.build import Toolchain, compile_candidate
from assay.candidates import Candidate
from assay.correctness.reference import pin_precision
from assay.problems.values import NotCarried, canonical, dtype_named, flatten, unflatten
from assay.records.codec import from_plain, to_plain
from assay.records.errors import CandidateFailure, UserError
from assay.records.layers import Layer
from assay.sandbox import Plan, furnish, restrict, seal
from assay.worker import caches, inspection, protocol, resources, tripwires
from assay.worker.arena import Arena, attach_arena
from assay.worker.census import count_kernels, count_operators
from assay.worker.delivery import copy_out, shared_with
from assay.worker.elsewhere import elsewhere
from assay.worker.entry_types import Construction, Entry
from assay.worker.gate import done_of, go_of, queue_wait, queue_write
from assay.worker.graphed import GraphedCall
from assay.worker.lending import lend
from assay.worker.loading import load_candidate
from assay.worker.messages import AN_INPUT
from assay.worker.muting import Launches, mute
from assay.worker.placement import Placement
from assay.worker.reports import failure_reply, raised_reply
from assay.worker.stopwatch import Stopwatch, make_stopwatch

_M_PERTURB = -6
_GRAD_MODES = {"no_grad": torch.no_grad, "inference": torch.inference_mode, "grad": torch.enable_grad}


def main(plan: Plan, config: dict[str, Any], layers: list[Layer], control_fd: int, output_fd: int) -> None:
    """Become confined, say so, then serve the judge until it hangs up."""
    os.dup2(output_fd, 1)
    os.dup2(output_fd, 2)
    os.close(output_fd)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    judge = socket.socket(fileno=control_fd)
    device = torch.device(config["device"])
    layers = layers + furnish(plan)
    _set_environment(plan.scratch)
    # The driver starts under the new user and Landlock, so that its threads are bound too; it may not be
    # denied socket() while it starts, so the system-call filter comes last.
    layers = layers + restrict(plan)
    if device.type == "cuda":
        _open_cuda(device)
    layers = layers + (seal() if config["sealed"] else [])
    sys.path[:] = [entry for entry in sys.path if entry not in config["hidden_paths"]]
    lend()
    protocol.send(judge, {"ready": True, "layers": to_plain(layers)})
    session = Session(device, Path(plan.scratch))
    while True:
        try:
            message = protocol.receive_trusted(judge)
        except protocol.Closed:
            os._exit(0)
        reply, payload = answer(session, message)
        _flush_output()
        protocol.send(judge, reply, payload)


def _flush_output() -> None:
    """What the candidate printed goes out before its answer does; it may have broken its streams."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()


def _set_environment(scratch: str) -> None:
    """Home, temporary files and every cache into the private folder."""
    owner = os.stat(scratch)
    for name, folder in (
        ("HOME", ""),
        ("TMPDIR", "tmp"),
        ("XDG_CACHE_HOME", "cache"),
        ("TRITON_CACHE_DIR", "triton"),
        ("TORCHINDUCTOR_CACHE_DIR", "inductor"),
        ("TORCH_EXTENSIONS_DIR", "extensions"),
        ("CUDA_CACHE_PATH", "cuda"),
    ):
        path = os.path.join(scratch, folder)
        os.makedirs(path, exist_ok=True)
        os.chown(path, owner.st_uid, owner.st_gid)
        os.environ[name] = path
    tempfile.tempdir = None  # the zygote may have settled on the host's
    os.environ.update({"USER": "candidate", "LOGNAME": "candidate"})


def _open_cuda(device: torch.device) -> None:
    torch.cuda.set_device(device)
    pin_precision(allow_tf32=False)
    torch.ones(1, device=device).add_(1).cpu()


def answer(session: Session, message: protocol.Message) -> tuple[dict[str, Any], bytes]:
    """One request; whatever the candidate raises becomes evidence."""
    try:
        handler = getattr(session, "do_" + message.head["op"])
        reply = handler(message)
        return reply if isinstance(reply, tuple) else (reply, b"")
    except CandidateFailure as failure:
        return failure_reply(failure.status, failure.code, failure.message, failure.detail), b""
    except SystemExit as leaving:
        return failure_reply("crashed", "exited", f"the candidate called sys.exit({leaving.code!r})"), b""
    except Exception as error:  # noqa: BLE001 - the process edge: anything here is the candidate's doing
        return raised_reply(error, session.source), b""


def _carried(result: Any, leaves: list[torch.Tensor]) -> Any:
    """A result's plain form, its tensors set apart."""
    try:
        return flatten(canonical(result), leaves)
    except NotCarried as refused:
        raise CandidateFailure("wrong", "output_type", f"the output holds {refused}") from refused


class Session:
    """One candidate's life in the child."""

    def __init__(self, device: torch.device, folder: Path) -> None:
        self._device = device
        self._folder = folder
        self._arenas: dict[str, Arena] = {}
        self._entry: Entry | None = None
        self._held: list[list[torch.Tensor]] = []
        self._staged: torch.Tensor | None = None
        self._views: dict[Placement, torch.Tensor] = {}
        self._watched = tripwires.snapshot()
        self._stopwatch: Stopwatch | None = None
        self._running: Stopwatch | None = None
        """The same, if it timed the last call."""
        self._graphed: dict[str, GraphedCall] = {}
        self._muted: Launches | None = None
        self._spent = resources.Spent()
        self.source = ""

    def do_arena(self, message: protocol.Message) -> dict[str, Any]:
        arena = attach_arena(message.head["description"], message.fds, self._device)
        self._arenas[message.head["role"]] = arena
        self._views.clear()
        return {"ok": True}

    def do_stopwatch(self, message: protocol.Message) -> dict[str, Any]:
        self._stopwatch = make_stopwatch(self._device, message.payload, self._arenas["flush"].bytes)
        return {"ok": True}

    def do_build(self, message: protocol.Message) -> tuple[dict[str, Any], bytes]:
        candidate = from_plain(Candidate, message.head["candidate"], "candidate")
        toolchain = from_plain(Toolchain, message.head["toolchain"], "toolchain")
        folder = self._folder / "build"
        folder.mkdir()
        try:
            built = compile_candidate(candidate, toolchain, folder)
        except UserError as error:  # a compiler is missing; no candidate code runs during a build
            return {"ok": True, "user_error": str(error)}, b""
        reply = {"ok": True, "kind": built.kind, "seconds": built.seconds, "log": built.log[-4000:]}
        return reply, Path(built.path).read_bytes()

    def do_load(self, message: protocol.Message) -> tuple[dict[str, Any], bytes]:
        candidate = from_plain(Candidate, message.head["candidate"], "candidate")
        self.source = candidate.source
        self._entry, builds = load_candidate(candidate, message.head, message.payload, self._folder / "work")
        return {"ok": True}, builds.pack()

    def do_construct(self, message: protocol.Message) -> dict[str, Any]:
        head = message.head
        tensors = self._inputs(head["tensors"], clone=True)
        args, kwargs = unflatten(head["args"], tensors), unflatten(head["kwargs"], tensors)
        dtype = dtype_named(head["dtype"]) if head["dtype"] else None
        how = Construction(args, kwargs, head["seed"], self._device, dtype, head["mode"])
        pin_precision(allow_tf32=head["allow_tf32"])
        self._need_entry().construct(how)
        return {"ok": True}

    def do_state(self, message: protocol.Message) -> dict[str, Any]:
        names = list(message.head["tensors"])
        views = self._inputs(list(message.head["tensors"].values()), clone=True)
        report = self._need_entry().load_state(dict(zip(names, views, strict=True)))
        self._settle()
        return {"ok": True, "loaded": list(report.loaded)}

    def do_call(self, message: protocol.Message) -> dict[str, Any]:
        head = message.head
        self._poison(head["poison_bytes"], head["pattern"])
        inputs = unflatten(head["inputs"], self._inputs(head["tensors"], clone=False))
        leaves: list[torch.Tensor] = []
        moved = head.get("elsewhere")
        place = elsewhere(inputs, self._device) if moved else contextlib.nullcontext(inputs)
        # Resetting the cache waits for the device, and with it for inputs that are to be late.
        self._running = stopwatch = None if moved else self._stopwatch
        with _GRAD_MODES[head["grad"]](), place as inputs:
            work = self._work(inputs, head)
            if stopwatch is not None:
                stopwatch.start(head["timing"], head["cover_us"])
            result = work()
            if stopwatch is not None:
                stopwatch.stop()
            tree = _carried(result, leaves)
            # No synchronisation before this: the copy queues right behind the call on the same stream, so
            # work left on another stream has not happened yet.
            facts = self._deliver(leaves, self._arenas["out"].bytes, head["strides"])
            self._settle()
        if head["hold"]:
            self._hold(leaves, facts)
        self._give_back_inputs()
        return {"ok": True, "outputs": tree, "tensors": facts}

    def _hold(self, leaves: list[torch.Tensor], facts: list[dict[str, Any]]) -> None:
        """Keep an answer; what is memory of an input is gone with the next one."""
        told = zip(leaves, facts, strict=True)
        self._held.append([torch.clone(leaf) if fact["aliases"] == AN_INPUT else leaf for leaf, fact in told])

    def do_sample(self, _message: protocol.Message) -> dict[str, Any]:
        """The last call's times; asked for apart, so that the answer itself goes out at once."""
        return {"ok": True, "sample": self._running.read() if self._running is not None else None}

    def do_burst(self, message: protocol.Message) -> dict[str, Any]:
        """Many calls, each on its own input into its own part of the mailbox, and one answer for all.

        Behind a gate it is sent when all is queued; the inputs come later.
        """
        head = message.head
        entry, mailbox = self._need_entry(), self._arenas["out"].bytes
        calls = [unflatten(c["inputs"], self._inputs(c["tensors"], clone=False)) for c in head["calls"]]
        answers = []
        with torch.no_grad():
            if head["gate"]:
                queue_wait(go_of(self._arenas["gate"].bytes), head["gate"])
            for k, inputs in enumerate(calls):
                leaves: list[torch.Tensor] = []
                tree = _carried(entry(inputs), leaves)
                part = mailbox[k * head["room_bytes"] : (k + 1) * head["room_bytes"]]
                facts = self._deliver(leaves, part, head["strides"])
                answers.append({"outputs": tree, "tensors": facts})
                if head["hold"]:
                    self._hold(leaves, facts)
            if head["gate"]:
                queue_write(done_of(self._arenas["gate"].bytes), head["gate"])
            else:
                self._settle()
        self._give_back_inputs()
        return {"ok": True, "answers": answers}

    def _work(self, inputs: list[Any], head: dict[str, Any]) -> Callable[[], Any]:
        """The call to make: of the candidate itself, or of a recording of it over the same places."""
        entry = self._need_entry()
        if not head.get("graphed"):
            return lambda: entry(inputs)
        key = repr(head["tensors"])
        if key not in self._graphed:
            self._graphed[key] = GraphedCall(lambda: entry(inputs))
        return self._graphed[key]

    def do_census(self, message: protocol.Message) -> dict[str, Any]:
        """What one call runs; its answer is not looked at."""
        head = message.head
        inputs = unflatten(head["inputs"], self._inputs(head["tensors"], clone=False))
        entry = self._need_entry()
        with torch.no_grad():
            counted = count_operators(lambda: entry(inputs))
            if self._device.type == "cuda":
                counted["kernels"] = count_kernels(lambda: entry(inputs), self._spent.launches)
            elif counted["total_us"] < resources.SHORT_US:
                self._spent.measure(lambda: entry(inputs))
        self._settle()
        return {"ok": True, **counted}

    def do_resources(self, message: protocol.Message) -> dict[str, Any]:
        """What its compiled code takes. Asked last: nothing depends on it."""
        return {"ok": True, **resources.tell(self._spent, self._folder / "work", message.head["library"])}

    def do_mute(self, _message: protocol.Message) -> dict[str, Any]:
        self._muted = mute(self._need_entry())
        return {"ok": True}

    def do_caches(self, _message: protocol.Message) -> tuple[dict[str, Any], bytes]:
        return {"ok": True}, caches.pack(self._folder)

    def do_refill(self, message: protocol.Message) -> dict[str, Any]:
        """Caches of an earlier process of the same candidate."""
        caches.unpack(message.payload, self._folder)
        return {"ok": True}

    def do_inspect(self, message: protocol.Message) -> tuple[dict[str, Any], bytes]:
        """Run the candidate as a program of its own, under a tool that looks at its kernels."""
        return inspection.run(message.head, message.payload, self._folder)

    def do_held(self, message: protocol.Message) -> dict[str, Any]:
        """Copy a kept output, or buffers by name, out after everything that may be running has ended."""
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        head = message.head
        leaves = self._need_entry().kept(head["names"]) if "names" in head else self._held[head["index"]]
        facts = copy_out(leaves, self._arenas["out"].bytes, head["strides"])
        self._settle()
        return {"ok": True, "tensors": facts}

    def do_facts(self, _message: protocol.Message) -> dict[str, Any]:
        kept = self._stopwatch.persisting_l2_bytes if self._stopwatch is not None else 0
        left_out = self._muted.count if self._muted is not None else 0
        patched = tripwires.changed(self._watched)
        return {"ok": True, "patched": patched, "persisting_l2_bytes": kept, "left_out": left_out}

    def do_release(self, message: protocol.Message) -> dict[str, Any]:
        """Forget kept outputs; with `trim` give back idle memory, with `all` the shared memory as well."""
        self._held.clear()
        if message.head.get("all"):
            self._stopwatch = self._running = None
            self._graphed.clear()
            self._views.clear()
            for arena in self._arenas.values():
                arena.close()
            self._arenas.clear()
        if (message.head.get("all") or message.head.get("trim")) and self._device.type == "cuda":
            torch.cuda.empty_cache()
        return {"ok": True}

    def _need_entry(self) -> Entry:
        if self._entry is None:
            raise CandidateFailure("crashed", "not_loaded", "the candidate was never loaded")
        return self._entry

    def _inputs(self, placements: list[dict[str, Any]], *, clone: bool) -> list[torch.Tensor]:
        if not placements:
            return []
        shared = self._arenas["in"].bytes
        self._staged = None if shared.device.type == self._device.type else shared.to(self._device)
        views = [self._view(Placement.from_plain(p)) for p in placements]
        return [v.clone() for v in views] if clone else views

    def _view(self, placement: Placement) -> torch.Tensor:
        """The same object for the same place: the judge writes new contents under an unchanged tensor, so
        identity, pointer and version tell a candidate nothing."""
        if self._staged is not None:
            return placement.view(self._staged)
        if placement not in self._views:
            self._views[placement] = placement.view(self._arenas["in"].bytes)
        return self._views[placement]

    def _input_bytes(self) -> torch.Tensor:
        return self._arenas["in"].bytes if self._staged is None else self._staged

    def _give_back_inputs(self) -> None:
        """Where inputs were staged through the host, show the judge what the candidate left of them."""
        if self._staged is not None:
            self._arenas["in"].bytes.copy_(self._staged)

    def _settle(self) -> None:
        """Wait for the current stream only: work hidden on another one has not happened for the caller."""
        if self._device.type == "cuda":
            torch.cuda.current_stream().synchronize()

    def _poison(self, sizes_bytes: list[int], pattern: int) -> None:
        """Fill memory that the candidate's next allocations will get with noise."""
        if self._device.type == "cuda":
            for size in sizes_bytes:
                words = torch.empty(max(size // 4, 1), dtype=torch.int32, device=self._device)
                words.fill_(pattern - (1 << 32) if pattern >= 1 << 31 else pattern)
                del words
        else:
            ctypes.CDLL(None).mallopt(_M_PERTURB, pattern & 0xFF)

    def _deliver(
        self, leaves: list[torch.Tensor], mailbox: torch.Tensor, specified: list[list[int]]
    ) -> list[dict[str, Any]]:
        facts = copy_out(leaves, mailbox, specified)
        for leaf, fact in zip(leaves, facts, strict=True):
            fact["aliases"] = shared_with(leaf, self._input_bytes(), self._held)
        return facts
