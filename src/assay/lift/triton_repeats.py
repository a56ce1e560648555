"""Computes and loads nothing twice in straight code.

A value that was loaded before is taken again where nothing can have been written over it; one that the kernel
itself has stored is taken from where it came, in the type it was stored in.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from assay.lift.record import CannotLift, Kernel
from assay.lift.triton_buffers import Overlap
from assay.lift.triton_syntax import (
    CallRewrite,
    Substitution,
    argument,
    assignment_counts,
    base_pointer,
    blocks,
    calls,
    expression,
    is_pure,
    names_in,
    set_keyword,
    simple_target,
    text_of,
    tl_name,
)

TYPES = {"*fp64": "tl.float64", "*fp32": "tl.float32", "*fp16": "tl.float16", "*bf16": "tl.bfloat16",
         "*i64": "tl.int64", "*i32": "tl.int32", "*i16": "tl.int16", "*i8": "tl.int8", "*u8": "tl.uint8",
         "*i1": "tl.int1"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stored:
    """What was written last through a pointer."""

    address: str
    value: ast.expr
    mask: str


def drop_repeats(function: ast.FunctionDef, kernel: Kernel, overlap: Overlap) -> None:
    """Works on the function's own statements and on those of a loop over tiles, in place."""
    for block in list(blocks(function)):
        _Block(function, kernel, overlap).clean(block)


class _Block:
    """One list of statements, from top to bottom."""

    def __init__(self, function: ast.FunctionDef, kernel: Kernel, overlap: Overlap) -> None:
        self.function, self.kernel, self.overlap = function, kernel, overlap
        self.assigned = assignment_counts(function)
        self.known: dict[str, str] = {}
        self.same: dict[str, ast.expr] = {}
        self.stored: dict[str, Stored] = {}

    def clean(self, block: list[ast.stmt]) -> None:
        kept: list[ast.stmt] = []
        for node in block:
            Substitution(self.same).visit(node)
            if isinstance(node, ast.For | ast.While | ast.If):
                self._forget_loads_of(node)
                kept.append(node)
                continue
            CallRewrite(self._taken_from_store).visit(node)
            self._note_writes(node)
            if not self._is_repeat(node):
                kept.append(node)
        block[:] = kept
        Substitution(self.same).visit(self.function)

    def _is_repeat(self, node: ast.stmt) -> bool:
        name = simple_target(node)
        if name is None or not isinstance(node, ast.Assign) or not is_pure(node) or self.assigned[name] != 1:
            return False
        if any(self.assigned[inner] > 1 for inner in names_in(node.value)):
            return False
        text = _without(node.value, "eviction_policy", "cache_modifier")
        if text in self.known:
            self.same[name] = ast.Name(id=self.known[text], ctx=ast.Load())
            return True
        self.known[text] = name
        # What is said about masked elements may be left out: then anything may stand there.
        self.known.setdefault(_without(node.value, "eviction_policy", "cache_modifier", "other"), name)
        return False

    def _note_writes(self, node: ast.stmt) -> None:
        for call in calls(node, "store"):
            pointer = base_pointer(call)
            self._forget_loads(pointer)
            mask = argument(call, 2, "mask")
            self.stored[pointer] = Stored(
                text_of(call.args[0]), call.args[1], text_of(mask) if mask else "None"
            )
        for call in calls(node, "atomic_add"):
            self._forget_loads(base_pointer(call))

    def _forget_loads_of(self, node: ast.stmt) -> None:
        for name in ("store", "atomic_add"):
            for call in calls(node, name):
                self._forget_loads(base_pointer(call))

    def _forget_loads(self, pointer: str) -> None:
        loads = {text: calls(expression(text), "load") for text in self.known if "tl.load(" in text}
        for text, inner in loads.items():
            if any(self.overlap(base_pointer(call), pointer) for call in inner):
                del self.known[text]
        self.stored = {
            name: stored for name, stored in self.stored.items() if not self.overlap(name, pointer)
        }

    def _taken_from_store(self, call: ast.Call) -> ast.expr:
        """A load of what was just stored, at the same place and under the same mask."""
        if tl_name(call) != "load":
            return call
        pointer = base_pointer(call)
        stored = self.stored.get(pointer)
        if stored is None:
            return call
        mask = argument(call, 1, "mask")
        if text_of(call.args[0]) != stored.address or (text_of(mask) if mask else "None") != stored.mask:
            raise CannotLift(f"{self.kernel.name} reads {pointer} in other places than it wrote")
        types = dict(pair.split("=") for pair in self.kernel.facts["types"].split())
        value = f"({text_of(stored.value)}).to({TYPES[types[pointer]]})"
        other = argument(call, 2, "other")
        if stored.mask != "None" and other is not None:
            value = f"tl.where({stored.mask}, {value}, {text_of(other)})"
        return expression(value)


def _without(value: ast.expr, *keywords: str) -> str:
    """The text of an expression, its loads without these arguments."""
    copy = expression(text_of(value))
    for call in calls(copy, "load"):
        for keyword in keywords:
            set_keyword(call, keyword, None)
    return text_of(copy)
