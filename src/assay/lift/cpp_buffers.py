"""Buffers of a lifted problem: scratch in variables or in the kernel, pointers that do not overlap, pages."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from assay.lift.cpp_text import declaration, loads, names_in, store
from assay.lift.cpp_tree import (
    Function,
    Loop,
    Node,
    Parameter,
    Statement,
    map_text,
    parse,
    rewrite,
    texts,
    write,
)
from assay.lift.guards import is_contiguous
from assay.lift.record import Kernel, Launch, Lifted, Line


@dataclass(frozen=True, slots=True)
class Scratch:
    """A buffer that only one call of one kernel sees."""

    kernel: Kernel
    parameter: Parameter
    position: int
    name: str
    sizes: tuple[str, ...]


def scratch_of(lifted: Lifted) -> Iterator[Scratch]:
    """Buffers that are allocated, handed to one kernel once, and never looked at again."""
    launches = [step for step in lifted.steps if isinstance(step, Launch)]
    for kernel in lifted.kernels:
        calls = [launch for launch in launches if launch.kernel == kernel.name]
        if len(calls) != 1:
            continue
        function = parse(kernel.text)
        for position, argument in enumerate(calls[0].arguments):
            sizes = _allocated(argument, lifted)
            if sizes is not None and _uses(argument, lifted) == 1:
                yield Scratch(kernel, function.parameters[position], position, argument, sizes)


def _allocated(name: str, lifted: Lifted) -> tuple[str, ...] | None:
    """The sizes of a buffer that a line of the wrapper allocates densely."""
    for step in lifted.steps:
        if not isinstance(step, Line) or not step.text.startswith(f"{name} = torch.empty"):
            continue
        call = ast.parse(step.text.partition(" = ")[2], mode="eval").body
        if not isinstance(call, ast.Call):
            return None
        if ast.unparse(call.func) == "torch.empty_like":
            return (f"{ast.unparse(call.args[0])}.numel()",)
        sizes, strides = (tuple(ast.unparse(i) for i in _items(one)) for one in call.args[:2])
        return sizes if is_contiguous(sizes, strides) else None
    return None


def _items(value: ast.expr) -> list[ast.expr]:
    return value.elts if isinstance(value, ast.Tuple) else []


def _uses(name: str, lifted: Lifted) -> int:
    """How often it is read, its allocation aside."""
    texts_ = [lifted.returns]
    for step in lifted.steps:
        if isinstance(step, Launch):
            texts_ += step.arguments
        elif not step.text.startswith(f"{name} = "):
            texts_.append(step.text)
    return sum(len(re.findall(rf"\b{name}\b", text)) for text in texts_)


def drop_argument(lifted: Lifted, scratch: Scratch, function: Function) -> Lifted:
    """The lifted problem whose kernel is `function` and does without the buffer."""
    parameters = tuple(one for one in function.parameters if one.name != scratch.parameter.name)
    function = replace(function, parameters=parameters)
    kernel = replace(scratch.kernel, text=write(function), parameters=tuple(one.type for one in parameters))
    steps: list[Line | Launch] = []
    for step in lifted.steps:
        if isinstance(step, Line) and step.text.startswith(f"{scratch.name} = "):
            continue
        if isinstance(step, Launch) and step.kernel == kernel.name:
            k = scratch.position
            step = replace(step, arguments=(*step.arguments[:k], *step.arguments[k + 1 :]))
        steps.append(step)
    kernels = tuple(kernel if one.name == kernel.name else one for one in lifted.kernels)
    return replace(lifted, kernels=kernels, steps=tuple(steps))


def kept_in_variables(lifted: Lifted) -> Lifted:
    """Scratch that is written and read in one iteration at one place, as a variable of that iteration."""
    while True:
        for scratch in scratch_of(lifted):
            function = parse(scratch.kernel.text)
            body = _as_variable(function.body, scratch.parameter)
            if body is not None:
                lifted = drop_argument(lifted, scratch, replace(function, body=body))
                break
        else:
            return lifted


def _as_variable(body: tuple[Node, ...], pointer: Parameter) -> tuple[Node, ...] | None:
    """The kernel with a variable instead of `pointer[index]`; None where it is more than one place."""
    uses = [text for text in texts(body) if pointer.name in names_in(text)]
    indices = {index for text in uses for name, index in loads(text) if name == pointer.name}
    if len(indices) != 1 or sum(len(re.findall(rf"\b{pointer.name}\b(?!\[)", text)) for text in uses):
        return None
    index = indices.pop()
    kind = pointer.type.replace("__restrict", "").strip().removesuffix("*").strip()
    if kind.startswith("const"):
        return None
    variable = f"{pointer.name}_here"
    changed = 0

    def change(node: Node) -> Sequence[Node]:
        nonlocal changed
        if changed or not isinstance(node, Loop) or not _holds_all(node.body, pointer.name, len(uses)):
            return (node,)
        inner = {one.var for one in node.body if isinstance(one, Loop)} | {
            one.name for text in texts(node.body) if (one := declaration(text))
        }
        if inner & names_in(index):
            return (node,)
        made = _with_variable(node.body, pointer.name, index, kind, variable)
        if made is None:
            return (node,)
        changed += 1
        return (replace(node, body=made),)

    result = rewrite(body, change)
    return result if changed else None


def _holds_all(body: Sequence[Node], pointer: str, count: int) -> bool:
    return sum(pointer in names_in(text) for text in texts(body)) == count


def _with_variable(
    body: Sequence[Node], pointer: str, index: str, kind: str, variable: str
) -> tuple[Node, ...] | None:
    made: list[Node] = []
    declared = False
    place = f"{pointer}[{index}]"
    for node in body:
        here = [text for text in texts((node,)) if pointer in names_in(text)]
        stored = store(node.text) if isinstance(node, Statement) else None
        if stored is not None and stored.pointer == pointer:
            if pointer in names_in(stored.value) and not declared:
                return None
            value = stored.value.replace(place, variable)
            made.append(Statement(f"{'' if declared else kind + ' '}{variable} = {value}"))
            declared = True
            continue
        if here and (not declared or any((s := store(text)) and s.pointer == pointer for text in here)):
            return None
        made += map_text((node,), lambda text: text.replace(place, variable)) if here else (node,)
    return tuple(made)


def kept_in_kernel(lifted: Lifted) -> Lifted:
    """Scratch that the kernel allocates itself: less for Python to do."""
    while True:
        for scratch in scratch_of(lifted):
            size = _in_kernel_terms(
                "*".join(f"({one})" for one in scratch.sizes) or "1", lifted, scratch.kernel
            )
            kind = scratch.parameter.type.replace("__restrict", "").strip().removesuffix("*").strip()
            if size is None or kind.startswith("const") or not scratch.parameter.type.rstrip().endswith("*"):
                continue
            function = parse(scratch.kernel.text)
            name = scratch.parameter.name
            own = (
                Statement(f"std::unique_ptr<{kind}[]> {name}_owned(new {kind}[{size}])"),
                Statement(f"{kind}* {name} = {name}_owned.get()"),
            )
            lifted = drop_argument(lifted, scratch, replace(function, body=(*own, *function.body)))
            break
        else:
            return lifted


def _in_kernel_terms(text: str, lifted: Lifted, kernel: Kernel) -> str | None:
    """A size of the wrapper in the kernel's own arguments; None if it lacks one, or is no product."""
    launch = next(step for step in lifted.steps if isinstance(step, Launch) and step.kernel == kernel.name)
    names = {
        a: p.name
        for a, p in zip(launch.arguments, parse(kernel.text).parameters, strict=True)
        if "*" not in p.type
    }
    found = {node.id for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name)}
    if not found <= names.keys() or "//" in text or "%" in text:
        return None
    plain = ast.unparse(ast.parse(text, mode="eval"))
    return re.sub(r"\b[A-Za-z_]\w*\b", lambda word: names[word[0]], plain)


def with_huge_pages(lifted: Lifted) -> Lifted:
    """Large outputs get large pages: filling a fresh one is mostly page faults."""
    returned = {
        node.id for node in ast.walk(ast.parse(lifted.returns, mode="eval")) if isinstance(node, ast.Name)
    }
    seen: set[str] = set()
    for step in lifted.steps:
        if not isinstance(step, Launch):
            continue
        kernel = next(one for one in lifted.kernels if one.name == step.kernel)
        function = parse(kernel.text)
        calls: list[Node] = []
        for argument, parameter in zip(step.arguments, function.parameters, strict=True):
            sizes = _allocated(argument, lifted)
            if sizes is None or argument not in returned or argument in seen:
                continue
            seen.add(argument)
            size = _in_kernel_terms("*".join(f"({one})" for one in sizes) or "1", lifted, kernel)
            if size is not None:
                calls.append(
                    Statement(f"use_huge_pages({parameter.name}, ({size}) * sizeof(*{parameter.name}))")
                )
        if calls:
            text = write(replace(function, body=(*calls, *function.body)))
            changed = replace(kernel, text=text)
            lifted = replace(lifted, kernels=tuple(changed if k is kernel else k for k in lifted.kernels))
    return lifted


def with_restrict(lifted: Lifted) -> Lifted:
    """Pointers of a kernel that no other of its pointers overlaps, marked so."""
    return with_functions(lifted, lambda function: _restricted(function, lifted))


def _restricted(function: Function, lifted: Lifted) -> Function:
    launches = [step for step in lifted.steps if isinstance(step, Launch) and step.kernel == function.name]
    doubled: set[int] = set()
    for launch in launches:
        bases = [_base(argument) for argument in launch.arguments]
        doubled |= {k for k, base in enumerate(bases) if base and bases.count(base) > 1}
    aliased = {
        word
        for text in texts(function.body)
        if re.fullmatch(r"auto \w+ = \w*ptr\d+", text)
        for word in names_in(text)
    }
    parameters: list[Parameter] = []
    for k, one in enumerate(function.parameters):
        free = (
            one.type.endswith("*")
            and k not in doubled
            and one.name not in aliased
            and "in_out" not in one.name
        )
        parameters.append(replace(one, type=f"{one.type} __restrict") if free else one)
    return replace(function, parameters=tuple(parameters))


def _base(argument: str) -> str:
    """The tensor whose memory an argument is."""
    tree = ast.parse(argument, mode="eval").body
    names = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id != "torch"]
    return names[0] if names and not argument.isdigit() else ""


def with_functions(lifted: Lifted, change: Callable[[Function], Function]) -> Lifted:
    """Every kernel changed as a tree."""
    kernels = []
    for kernel in lifted.kernels:
        function = change(parse(kernel.text))
        parameters = tuple(one.type for one in function.parameters)
        kernels.append(replace(kernel, text=write(function), parameters=parameters))
    return replace(lifted, kernels=tuple(kernels))
