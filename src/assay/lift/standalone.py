"""Prints a lifted problem as a candidate: one Python file that imports torch and nothing of inductor.

The file holds the problem's Model, the kernels, and ModelNew, whose forward() checks that the kernels are for
these inputs and runs them; otherwise Model's own forward() answers.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace

from assay.lift import triton_launch
from assay.lift.cpp_library import call_of, library_source
from assay.lift.guards import FUNCTIONS, attribute
from assay.lift.names import clashes, free, hidden_builtins, names_of, new_names, renamed, words
from assay.lift.problem_source import MODEL, entry_source, model_source, module_name, task_model
from assay.lift.record import Launch, Lifted, Line
from assay.problems import Problem

_FEW_SIZES = 8
"""Conditions on sizes up to which they are asked one by one; more of them are remembered by size."""
_WIDTH = 100


def write(lifted: Lifted, problem: Problem, actions: Sequence[str] = ()) -> str:
    """The candidate as text.

    Args:
        actions: how it was made, for the docstring.
    """
    imports, reference = model_source(problem)
    ours, generated = _generated(lifted, problem, reference)
    outside = names_of("\n".join([*ours, generated])).bound | {MODEL}
    if set(lifted.inputs) & outside:
        lifted = _with_inputs_aside(lifted, outside)
        ours, generated = _generated(lifted, problem, reference)
    theirs = names_of(f"{imports}\n{reference}")
    covered = hidden_builtins(names_of(generated), theirs)
    ours += ["import builtins"] * bool(covered)
    met = clashes(names_of("\n".join([*ours, generated])), theirs)
    new = new_names(met, words(imports, reference, *ours, generated))
    # The judge asks for the entry by its name: there it is the problem's own that changes.
    entry = {name: new.pop(name) for name in met if name == problem.entry}
    new |= {name: f"{new.get('builtins', 'builtins')}.{name}" for name in covered}
    parts = [
        _docstring(problem, lifted, actions),
        _imports(renamed(imports, entry), [renamed(line, new) for line in ours]),
        renamed(reference, entry),
        renamed(generated, new),
    ]
    return "\n\n\n".join(part for part in parts if part) + "\n"


def _generated(lifted: Lifted, problem: Problem, reference: str) -> tuple[list[str], str]:
    """(imports, the rest): all that is not the problem's own."""
    lifted = _with_shapes(lifted)
    sized, guards = _sized(lifted)
    made_once, asked = _split_guards(guards)
    is_triton = lifted.language == "triton"
    flag = free("is_as_compiled", words(reference))
    parts = [
        task_model(problem, lifted.inputs),
        triton_launch.triton_source(lifted).strip() if is_triton else library_source(lifted, problem.name),
        sized,
        _module(module_name(problem), lifted, made_once, asked, flag),
        entry_source(problem, lifted.inputs),
    ]
    return _our_imports(lifted, remembered=bool(sized)), "\n\n\n".join(part for part in parts if part)


def _with_inputs_aside(lifted: Lifted, outside: frozenset[str]) -> Lifted:
    """Inputs have names that nothing has around forward()."""
    lines = [step.text for step in lifted.steps if isinstance(step, Line)]
    arguments = [text for step in lifted.steps if isinstance(step, Launch) for text in step.arguments]
    taken = words(*lifted.inputs, *lifted.state, *lifted.guards, *lines, *arguments, *outside)
    new = new_names(set(lifted.inputs) & outside, taken)
    return replace(
        lifted,
        inputs=tuple(new.get(name, name) for name in lifted.inputs),
        guards=tuple(renamed(guard, new) for guard in lifted.guards),
        steps=tuple(
            Line(renamed(step.text, new))
            if isinstance(step, Line)
            else replace(step, arguments=tuple(renamed(text, new) for text in step.arguments))
            for step in lifted.steps
        ),
        returns=renamed(lifted.returns, new),
    )


def _docstring(problem: Problem, lifted: Lifted, actions: Sequence[str]) -> str:
    """What the file is, so that a reader needs nothing else."""
    how = ", ".join(actions) if actions else f"variant:{lifted.variant}"
    text = (
        f"{problem.name}: the code that torch.compile generates for it, changed by these actions: {how}. "
        "Other sizes, types and layouts, and calls that record gradients, take the module's own path."
    )
    return '"""' + "\n".join(textwrap.wrap(text, _WIDTH - 3)) + '\n"""'


def _our_imports(lifted: Lifted, *, remembered: bool) -> list[str]:
    remembering = ["import functools"] if remembered else []
    if lifted.language == "triton":
        return [*remembering, *dict.fromkeys(("import torch", *triton_launch.triton_imports(lifted)))]
    linking = "from torch.utils.cpp_extension import load_inline"
    return ["import ctypes", *remembering, "import torch", linking]


def _imports(theirs: str, ours: Sequence[str]) -> str:
    standard = sorted(line for line in ours if line.split()[1].split(".")[0] in sys.stdlib_module_names)
    others = [line for line in ours if line not in standard]
    statements = [ast.get_source_segment(theirs, one) or "" for one in ast.parse(theirs).body]
    future = [one for one in statements if one.startswith("from __future__")]
    rest = [one for one in statements if one not in (*future, *ours)]
    groups = (future, standard, [*others, *rest])
    return "\n\n".join("\n".join(group) for group in groups if group)


class _Shapes(ast.NodeTransformer):
    """x.size(0) as x_shape[0], and x.dim() == 2 as the place where x_shape is taken: once is enough."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="size"), args=[axis]) if (
                name in self._names
            ):
                return ast.Subscript(ast.Name(f"{name}_shape", ast.Load()), axis, ast.Load())
            case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="dim"), args=[]) if (
                name in self._names
            ):
                return ast.parse(f"len({name}_shape := {name}.shape)", mode="eval").body
        return node

    def text(self, given: str) -> str:
        return ast.unparse(self.visit(_parsed(given)))


def _with_shapes(lifted: Lifted) -> Lifted:
    asked = (re.fullmatch(r"(\w+)\.dim\(\) == \d+", guard) for guard in lifted.guards)
    shapes = _Shapes(frozenset(found[1] for found in asked if found))
    steps: list[Line | Launch] = []
    for step in lifted.steps:
        if isinstance(step, Launch):
            steps.append(replace(step, arguments=tuple(shapes.text(one) for one in step.arguments)))
            continue
        name, made, value = step.text.partition(" = ")
        plain = made and name.isidentifier()
        steps.append(Line(f"{name} = {shapes.text(value)}" if plain else shapes.text(step.text)))
    guards = tuple(shapes.text(guard) for guard in lifted.guards)
    return replace(lifted, guards=guards, steps=tuple(steps), returns=shapes.text(lifted.returns))


def _sized(lifted: Lifted) -> tuple[str, tuple[str, ...]]:
    """(a function that remembers, the guards with a call of it) where many guards are about sizes alone."""
    about_sizes = [guard for guard in lifted.guards if _is_about_sizes(guard)]
    if len(about_sizes) <= _FEW_SIZES:
        return "", lifted.guards
    names: dict[str, str] = {}
    conditions = [ast.unparse(_NameSizes(names).visit(_parsed(guard))) for guard in about_sizes]
    text = _joined(conditions, "    return ")
    function = f"@functools.cache\ndef sizes_fit({', '.join(names.values())}):\n{text}"
    call = f"sizes_fit({', '.join(names)})"
    others = [guard for guard in lifted.guards if guard not in about_sizes]
    return function, (*others, call)


def _is_about_sizes(guard: str) -> bool:
    """Arithmetic on sizes and strides, and nothing else."""
    asked = {ast.unparse(node) for node in ast.walk(_parsed(guard)) if _is_size(node)}
    rest = guard
    for one in asked:
        rest = rest.replace(one, "0")
    names = {node.id for node in ast.walk(_parsed(rest)) if isinstance(node, ast.Name)}
    return bool(asked) and names <= FUNCTIONS.keys() and "." not in rest.replace("math.", "")


def _is_size(node: ast.AST) -> bool:
    match node:
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant()):
            return name.endswith("_shape")
        case ast.Call(func=ast.Attribute(value=ast.Name(), attr="stride"), args=[ast.Constant()]):
            return True
    return False


class _NameSizes(ast.NodeTransformer):
    """x_shape[0] as a parameter x_0."""

    def __init__(self, names: dict[str, str]) -> None:
        self._names = names

    def visit(self, node: ast.AST) -> ast.AST:
        if not _is_size(node):
            return self.generic_visit(node)
        text = ast.unparse(node)
        plain = re.sub(r"\W+", "_", text.replace("_shape", "")).strip("_")
        if text not in self._names:
            self._names[text] = free(plain, set(self._names.values()))
        return ast.Name(self._names[text], ast.Load())


def _split_guards(guards: Sequence[str]) -> tuple[list[str], list[str]]:
    """(what construction settles, what every call asks)."""
    once, asked = [], []
    for guard in guards:
        names = {node.id for node in ast.walk(_parsed(guard)) if isinstance(node, ast.Name)}
        (once if names <= {"self", "getattr"} and "self.training" not in guard else asked).append(guard)
    return once, asked


def _module(name: str, lifted: Lifted, once: list[str], asked: list[str], flag: str) -> str:
    lines = [f"class {name}({MODEL}):"]
    if once:
        asked = [f"self.{flag}", *asked]
        lines += [
            "    def __init__(self, *args, **kwargs):",
            f"        {MODEL}.__init__(self, *args, **kwargs)",
            _joined(once, f"        self.{flag} = "),
            "",
        ]
    inputs = ", ".join(lifted.inputs)
    lines.append(f"    def forward(self, {inputs}):")
    lines += [f"        {name} = {attribute(path)}" for name, path in lifted.state.items()]
    lines += [
        _joined(asked, "        if not ", opening="(", closing="):"),
        f"            return {MODEL}.forward({', '.join(['self', *lifted.inputs])})",
    ]
    lines += [f"        {line}" for line in _steps(lifted)]
    lines.append(f"        return {lifted.returns}")
    return "\n".join(lines)


def _joined(conditions: Sequence[str], start: str, opening: str = "(", closing: str = ")") -> str:
    """The conditions joined by `and`, as many on a line as fit."""
    inner = " " * (len(start) - len(start.lstrip()) + 4)
    parts = [f"({one})" if _binds_loosely(one) else one for one in conditions]
    lines = textwrap.wrap(
        " and\0".join(part.replace(" ", "\1") for part in parts).replace(" and\0", " and "),
        _WIDTH,
        initial_indent=inner,
        subsequent_indent=inner,
        break_long_words=False,
        break_on_hyphens=False,
    )
    body = "\n".join(lines).replace("\1", " ")
    return f"{start}{opening}\n{body}\n{' ' * (len(inner) - 4)}{closing}"


def _binds_loosely(condition: str) -> bool:
    return isinstance(
        _parsed(condition).body, (ast.BoolOp, ast.IfExp, ast.Lambda)
    ) and not condition.startswith("(")


def _steps(lifted: Lifted) -> Iterator[str]:
    """The steps in Python; what is no longer needed goes before more is made."""
    reads = [_read_by(step) for step in lifted.steps] + [_names_in(lifted.returns)]
    made: set[str] = set()
    for k, step in enumerate(lifted.steps):
        if isinstance(step, Launch):
            yield from _call(step, lifted)
        else:
            yield step.text
            name, is_made, _ = step.text.partition(" = ")
            if is_made and name.isidentifier() and name not in lifted.inputs:
                made.add(name)
        gone = sorted(name for name in made if not any(name in later for later in reads[k + 1 :]))
        made -= set(gone)
        tensors = [name for name in gone if _is_tensor(name, lifted)]
        if tensors and any(_makes_more(later) for later in lifted.steps[k + 1 :]):
            yield f"del {', '.join(tensors)}"


def _call(step: Launch, lifted: Lifted) -> Iterator[str]:
    if lifted.language == "triton":
        yield triton_launch.call_of(step, lifted)
    else:
        yield from call_of(step, lifted)


def _is_tensor(name: str, lifted: Lifted) -> bool:
    return any(isinstance(s, Line) and s.text.startswith(f"{name} = torch.") for s in lifted.steps)


def _makes_more(step: Line | Launch) -> bool:
    return isinstance(step, Line) and "torch." in step.text and "as_strided" not in step.text


def _read_by(step: Line | Launch) -> set[str]:
    if isinstance(step, Launch):
        return {name for argument in step.arguments for name in _names_in(argument)}
    name, made, value = step.text.partition(" = ")
    return _names_in(value if made and name.isidentifier() else step.text)


def _names_in(text: str) -> set[str]:
    return {node.id for node in ast.walk(_parsed(text)) if isinstance(node, ast.Name)}


def _parsed(text: str) -> ast.Expression:
    return ast.parse(text, mode="eval")
