"""Which parameters of a kernel may be given the same memory.

Followed through the lines of the wrapper: what is a view of what. Where a line cannot be read, its result
counts as sharing memory with everything it is made from.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace

from assay.lift.record import Kernel, Launch, Lifted, Line
from assay.lift.triton_syntax import base_pointer, blocks, calls, drop_unused, names_in, parse, unparse

Overlap = Callable[[str, str], bool]
"""Whether two parameters of a kernel may be given memory in common."""
FRESH = (
    "empty_strided",
    "torch.empty",
    "torch.empty_strided",
    "torch.full",
    "torch.zeros",
    "torch.empty_like",
)


def owners(lifted: Lifted) -> dict[str, str]:
    """For each name of the wrapper: a name that stands for the memory it may share."""
    parents: dict[str, str] = {}

    def root(name: str) -> str:
        while parents.get(name, name) != name:
            name = parents[name]
        return name

    for step in lifted.steps:
        if isinstance(step, Line):
            for target, sources in _assignments(step.text):
                for source in sources:
                    parents[root(target)] = root(source)
    names = {name for step in lifted.steps for name in _names(step)} | {*lifted.inputs, *lifted.state}
    return {name: root(name) for name in names}


def _names(step: Line | Launch) -> set[str]:
    texts = (step.text,) if isinstance(step, Line) else step.arguments
    return {name for text in texts for name in names_in(ast.parse(text))}


def _assignments(text: str) -> list[tuple[str, set[str]]]:
    """(target, names its memory may come from) of each assignment in a line."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assign) and not ast.unparse(node.value).startswith(FRESH):
            sources = names_in(node.value)
            found += [(name, sources) for target in node.targets for name in names_in(target)]
    return found


def overlaps(lifted: Lifted, kernel: str) -> Overlap:
    """For a kernel: a test whether two of its parameters are ever given memory in common."""
    memory = owners(lifted)
    parameters = next(k.parameters for k in lifted.kernels if k.name == kernel)
    given: dict[str, set[tuple[int, str]]] = {name: set() for name in parameters}
    launches = [step for step in lifted.steps if isinstance(step, Launch) and step.kernel == kernel]
    for number, launch in enumerate(launches):
        for name, text in zip(parameters, launch.arguments, strict=True):
            given[name] |= {(number, memory[part]) for part in names_in(ast.parse(text)) if part in memory}

    def overlap(one: str, other: str) -> bool:
        return one == other or bool(given.get(one, set()) & given.get(other, set()))

    return overlap


def pointer_types(kernel: Kernel) -> dict[str, str]:
    """By parameter that is a pointer: what it points at, as Triton writes it ("*bf16")."""
    return dict(pair.split("=", 1) for pair in kernel.facts["types"].split())


def without_dead_results(lifted: Lifted, name: str) -> Lifted:
    """Without what a kernel writes into buffers that nothing reads, and without those buffers."""
    kernel = next(kernel for kernel in lifted.kernels if kernel.name == name)
    launches = [step for step in lifted.steps if isinstance(step, Launch) and step.kernel == name]
    if len(launches) != 1:
        return lifted
    given = dict(zip(kernel.parameters, launches[0].arguments, strict=True))
    dead = _dead_parameters(lifted, kernel, launches[0])
    tree, function = parse(kernel.text)
    for block in blocks(function):
        block[:] = [n for n in block if not any(base_pointer(c) in dead for c in calls(n, "store"))]
    drop_unused(function)
    function.args.args = [arg for arg in function.args.args if arg.arg not in dead]
    kept = tuple(name for name in kernel.parameters if name not in dead)
    types = " ".join(f"{p}={kind}" for p, kind in pointer_types(kernel).items() if p not in dead)
    smaller = replace(kernel, text=unparse(tree), parameters=kept, facts={**kernel.facts, "types": types})
    buffers = {given[parameter] for parameter in dead}
    steps = [step for step in lifted.steps if not (isinstance(step, Line) and _target(step.text) in buffers)]
    launch = Launch(name, tuple(given[parameter] for parameter in kept))
    return replace(
        lifted,
        kernels=tuple(smaller if each is kernel else each for each in lifted.kernels),
        steps=tuple(launch if step is launches[0] else step for step in steps),
    )


def _target(text: str) -> str:
    return text.partition(" = ")[0]


def _dead_parameters(lifted: Lifted, kernel: Kernel, launch: Launch) -> set[str]:
    """Written and not read by the kernel, and named by no other step."""
    _, function = parse(kernel.text)
    written = {base_pointer(call) for call in calls(function, "store")}
    written -= {base_pointer(call) for name in ("load", "atomic_add") for call in calls(function, name)}
    fresh = {_target(step.text) for step in lifted.steps if isinstance(step, Line) and _is_fresh(step.text)}
    named = names_in(ast.parse(lifted.returns))
    for step in lifted.steps:
        if isinstance(step, Line):
            named |= _names(step) - ({_target(step.text)} if _is_fresh(step.text) else set())
        elif step is not launch:
            named |= _names(step)
    pairs = zip(kernel.parameters, launch.arguments, strict=True)
    return {name for name, text in pairs if name in written and text in fresh and text not in named}


def _is_fresh(text: str) -> bool:
    return text.partition(" = ")[2].startswith(FRESH)
