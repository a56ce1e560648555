"""Launch directives: how a bare kernel says, in comments, how it is to be called.

    // assay: let rows, width = x.shape
    // assay: out y = torch.empty_like(x)
    // assay: launch layer_norm<<<rows, 256, 0>>>(x, weight, bias, y, width, 1e-5)
    // assay: return y

C++ for the CPU writes `call layer_norm(...)` instead of `launch`. Lines run in order; a line that ends in
a backslash goes on in the next comment line. Expressions are Python: the inputs by the names of the
specification's forward(), the module's state by name with dots as underscores, `init` (the list of
constructor arguments), `torch`, `cdiv`, `next_power_of_2` and a few builtins.

Parsing runs nothing. Not covered: what the expressions evaluate to (`assay.worker.bare`), and kernels that
are templates or need several streams: those come as a torch extension.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from types import CodeType
from typing import TypeVar

from assay.records.errors import CandidateFailure

_DIRECTIVE = re.compile(r"^[ \t]*//+[ \t]*assay:(.*)$", re.IGNORECASE)
_COMMENT = re.compile(r"^[ \t]*//+[ \t]?")
_LAUNCH = re.compile(r"^(?P<kernel>.*?)\s*<<<(?P<config>.*?)>>>\s*(?P<args>\(.*\))\s*;?$", re.DOTALL)
_IDENTIFIER = re.compile(r"^[A-Za-z_]\w*$")
_Node = TypeVar("_Node", bound=ast.AST)
_WORDS = ("let", "out", "launch", "call", "return")


@dataclass(frozen=True, slots=True)
class Assign:
    """`let` or `out`: names bound to the value of an expression."""

    line: int
    names: tuple[str, ...]
    value: ast.expr
    is_out: bool


@dataclass(frozen=True, slots=True)
class Invoke:
    """`launch` or `call`; a call has no grid, block or shared memory."""

    line: int
    kernel: str
    args: tuple[ast.expr, ...]
    grid: ast.expr | None = None
    block: ast.expr | None = None
    shared_bytes: ast.expr | None = None


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """The directives of one source, in order."""

    steps: tuple[Assign | Invoke, ...]
    result: ast.expr
    result_line: int

    def names_used(self) -> set[str]:
        """Every name an expression reads: inputs, state and what the directives bound themselves."""
        nodes: list[ast.expr] = [self.result]
        for step in self.steps:
            if isinstance(step, Assign):
                nodes.append(step.value)
            else:
                nodes += [*step.args, *(n for n in (step.grid, step.block, step.shared_bytes) if n)]
        return {n.id for node in nodes for n in ast.walk(node) if isinstance(n, ast.Name)}


def has_directives(source: str) -> bool:
    """Whether any comment line is addressed to Assay."""
    return any(_DIRECTIVE.match(line) for line in source.splitlines())


def parse_directives(source: str, suffix: str) -> LaunchPlan:
    """The plan in a source's comments; CandidateFailure("build_failed") names the line that is wrong."""
    steps: list[Assign | Invoke] = []
    result: ast.expr | None = None
    result_line = 0
    for line, text in _directive_lines(source):
        word, _, rest = text.partition(" ")
        rest = rest.strip()
        if result is not None:
            raise _failure(line, text, "nothing may follow `return`")
        if word == "return":
            result, result_line = _expression(line, rest, text), line
        elif word in ("let", "out"):
            steps.append(_parse_assign(line, rest, text, is_out=word == "out"))
        elif word == "launch":
            _require(
                suffix == ".cu",
                line,
                text,
                "`launch` is for .cu sources; C++ functions are entered with `call`",
            )
            steps.append(_parse_launch(line, rest, text))
        elif word == "call":
            _require(
                suffix == ".cpp",
                line,
                text,
                "`call` is for .cpp sources; CUDA kernels need `launch k<<<..>>>`",
            )
            steps.append(_parse_call(line, rest, text))
        else:
            raise _failure(line, text, f"unknown word {word!r}; known are {', '.join(_WORDS)}")
    if not any(isinstance(step, Invoke) for step in steps):
        word = "launch" if suffix == ".cu" else "call"
        raise _failure(None, "", f"no `// assay: {word} ...` line: nothing would run")
    if result is None:
        raise _failure(None, "", "no `// assay: return ...` line: say which tensor is the result")
    return LaunchPlan(tuple(steps), result, result_line)


def compile_plan(plan: LaunchPlan, path: str) -> CodeType:
    """The directives as one module, with their own line numbers: a traceback points at the directive.

    Whoever runs it supplies `__out(value)` and `__invoke_0(grid, block, shared_bytes, *args)`, `__invoke_1`
    and so on, and finds the result as `__result`.
    """
    body: list[ast.stmt] = []
    count = 0
    for step in plan.steps:
        if isinstance(step, Assign):
            value = _call("__out", [step.value]) if step.is_out else step.value
            names: list[ast.expr] = [ast.Name(name, ast.Store()) for name in step.names]
            target = names[0] if len(names) == 1 else ast.Tuple(names, ast.Store())
            body.append(_placed(ast.Assign([target], value), step.line))
        else:
            zero = ast.Constant(0)
            config = [step.grid or zero, step.block or zero, step.shared_bytes or zero]
            body.append(_placed(ast.Expr(_call(f"__invoke_{count}", [*config, *step.args])), step.line))
            count += 1
    body.append(_placed(ast.Assign([ast.Name("__result", ast.Store())], plan.result), plan.result_line))
    return compile(ast.Module(body, []), path, "exec")


def _call(name: str, args: list[ast.expr]) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), args, [])


def _directive_lines(source: str) -> list[tuple[int, str]]:
    """Directives with the number of their first line; backslashes at the end join lines."""
    found: list[tuple[int, str]] = []
    lines = source.splitlines()
    index = 0
    while index < len(lines):
        match = _DIRECTIVE.match(lines[index])
        start = index + 1
        index += 1
        if match is None:
            continue
        text = match.group(1).strip(" \t")
        while text.endswith("\\") and index < len(lines):
            text = text[:-1].rstrip() + " " + _COMMENT.sub("", lines[index]).strip()
            index += 1
        found.append((start, text))
    return found


def _parse_assign(line: int, rest: str, text: str, *, is_out: bool) -> Assign:
    try:
        body = ast.parse(rest).body
    except (SyntaxError, ValueError) as error:
        raise _failure(line, text, f"not `name = expression`: {_reason(error)}") from error
    node = body[0] if len(body) == 1 else None
    _require(isinstance(node, ast.Assign) and len(node.targets) == 1, line, text, "not `name = expression`")
    assert isinstance(node, ast.Assign)
    target = node.targets[0]
    targets = target.elts if isinstance(target, ast.Tuple) else [target]
    names = tuple(t.id for t in targets if isinstance(t, ast.Name))
    _require(len(names) == len(targets), line, text, "only plain names can be assigned")
    _require(
        not any(n.startswith("__") for n in names), line, text, "names must not start with two underscores"
    )
    return Assign(line, names, _placed(node.value, line), is_out)


def _parse_launch(line: int, rest: str, text: str) -> Invoke:
    match = _LAUNCH.match(rest)
    if match is None:
        raise _failure(line, text, "not `launch kernel<<<grid, block, shared_bytes>>>(arguments)`")
    config = _expression(line, f"({match['config']},)", text)
    assert isinstance(config, ast.Tuple)
    count = len(config.elts)
    _require(
        count in (2, 3),
        line,
        text,
        f"<<<...>>> takes grid, block and optionally shared bytes, not {count} values",
    )
    shared = config.elts[2] if count == 3 else None
    kernel = _kernel_name(line, match["kernel"], text)
    return Invoke(line, kernel, _arguments(line, match["args"], text), config.elts[0], config.elts[1], shared)


def _parse_call(line: int, rest: str, text: str) -> Invoke:
    name, paren, args = rest.rstrip(";").partition("(")
    _require(bool(paren), line, text, "not `call function(arguments)`")
    return Invoke(line, _kernel_name(line, name, text), _arguments(line, paren + args, text))


def _kernel_name(line: int, name: str, text: str) -> str:
    name = name.strip()
    _require(
        "<" not in name, line, text, 'templates cannot be launched by name; add an extern "C" wrapper kernel'
    )
    _require(_IDENTIFIER.match(name) is not None, line, text, f"{name!r} is not the name of a kernel")
    return name


def _arguments(line: int, parenthesised: str, text: str) -> tuple[ast.expr, ...]:
    call = _expression(line, f"f{parenthesised.strip()}", text)
    plain = isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and not call.keywords
    _require(plain, line, text, "arguments are positional and end with one closing parenthesis")
    assert isinstance(call, ast.Call)
    starred = any(isinstance(a, ast.Starred) for a in call.args)
    _require(not starred, line, text, "* arguments are not possible: write them out")
    return tuple(call.args)


def _expression(line: int, code: str, text: str) -> ast.expr:
    _require(bool(code.strip()), line, text, "an expression is missing")
    try:
        node = ast.parse(code.strip(), mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise _failure(line, text, f"not a Python expression: {_reason(error)}") from error
    return _placed(node, line)


def _placed(node: _Node, line: int) -> _Node:
    """The node, numbered as the directive's line, so that tracebacks of its evaluation point there."""
    for child in ast.walk(node):
        if isinstance(child, ast.stmt | ast.expr | ast.keyword):
            child.lineno = child.end_lineno = line
            child.col_offset = child.end_col_offset = 0
    return node


def _reason(error: SyntaxError | ValueError) -> str:
    return (error.msg if isinstance(error, SyntaxError) else str(error)) or "invalid syntax"


def _require(condition: bool, line: int, text: str, problem: str) -> None:
    if not condition:
        raise _failure(line, text, problem)


def _failure(line: int | None, text: str, problem: str) -> CandidateFailure:
    where = f"line {line}: " if line is not None else ""
    detail = f"line {line}: // assay: {text}" if line is not None else ""
    return CandidateFailure("build_failed", "bad_directive", f"{where}launch directive: {problem}", detail)
