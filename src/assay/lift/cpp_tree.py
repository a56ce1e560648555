"""The C++ of a kernel as a tree: loops, blocks, statements; read from text and printed again.

Covers what inductor writes for a CPU and what the actions make of it: counting loops, blocks with pragmas,
conditions, lambdas without arguments, statements. Expressions stay text. Everything else is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from assay.lift.record import CannotLift

INDENT = "    "
_LOOP = re.compile(
    r"(?:const )?(?P<type>int64_t|int|long) (?P<var>\w+)\s*=\s*(?P<start>.*?);"
    r"\s*(?P=var)\s*(?P<test><|<=)\s*(?P<stop>.*?);\s*(?P<step>.*)",
    re.DOTALL,
)
_LAMBDA = re.compile(r"auto (?P<name>\w+) = \[&\]\s*(?:\(\)\s*)?\{(?P<body>.*)\}", re.DOTALL)
_SIGNATURE = re.compile(
    r'extern "C"\s+(?P<returns>\w+)\s+(?P<name>\w+)\((?P<parameters>.*?)\)\s*\{', re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement, without its semicolon."""

    text: str


@dataclass(frozen=True, slots=True)
class Lambda:
    """A value that is computed where it is asked for: what a mask protects."""

    name: str
    body: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class If:
    condition: str
    body: tuple[Node, ...]
    otherwise: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    body: tuple[Node, ...]
    pragmas: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Loop:
    """for (int64_t var = start; var < stop; var += step)"""

    var: str
    start: str
    stop: str
    step: str
    body: tuple[Node, ...]
    pragmas: tuple[str, ...] = ()


Node = Statement | Lambda | If | Block | Loop


@dataclass(frozen=True, slots=True)
class Parameter:
    type: str
    name: str


@dataclass(frozen=True, slots=True)
class Function:
    """One kernel."""

    name: str
    returns: str
    parameters: tuple[Parameter, ...]
    body: tuple[Node, ...]


def parse(text: str) -> Function:
    """The first extern "C" function of the text."""
    found = _SIGNATURE.search(text)
    if found is None:
        raise CannotLift("C++ without a kernel")
    parameters = tuple(_parameter(one) for one in found["parameters"].split(",") if one.strip())
    body, _ = _Parser(text, found.end()).block()
    return Function(found["name"], found["returns"], parameters, body)


def _parameter(text: str) -> Parameter:
    kind, _, name = text.strip().rpartition(" ")
    return Parameter(kind.strip(), name)


class _Parser:
    def __init__(self, text: str, position: int = 0) -> None:
        self._text = text
        self._at = position

    def block(self) -> tuple[tuple[Node, ...], int]:
        """Up to the closing brace, which is read as well, or the end."""
        nodes: list[Node] = []
        pragmas: list[str] = []
        while True:
            self._skip_space()
            if self._at >= len(self._text):
                return tuple(nodes), self._at
            if self._text[self._at] == "}":
                self._at += 1
                return tuple(nodes), self._at
            if self._text[self._at] == "#":
                pragmas.append(self._line())
                continue
            node = self._node(tuple(pragmas))
            pragmas = []
            if node is not None:
                nodes.append(node)

    def _node(self, pragmas: tuple[str, ...]) -> Node | None:
        if self._text[self._at] == ";":
            self._at += 1
            return None
        if self._text[self._at] == "{":
            self._at += 1
            return Block(self.block()[0], pragmas)
        if self._starts("for"):
            return self._loop(pragmas)
        if self._starts("if"):
            condition = self._parenthesised("if")
            return If(condition, self._body(), self._body() if self._take("else") else ())
        text = self._until_semicolon()
        if pragmas:
            return Block((Statement(text),), pragmas)
        inner = _LAMBDA.fullmatch(text)
        if inner is not None:
            return Lambda(inner["name"], _Parser(inner["body"]).block()[0])
        return Statement(" ".join(text.split()))

    def _loop(self, pragmas: tuple[str, ...]) -> Loop:
        head = self._parenthesised("for")
        found = _LOOP.fullmatch(head)
        if found is None:
            raise CannotLift(f"a loop of another kind: for ({head})")
        var, step = found["var"], found["step"].strip()
        stop = found["stop"] if found["test"] == "<" else f"{found['stop']} + 1"
        if step in (f"{var}++", f"++{var}"):
            step = "1"
        elif step.startswith((f"{var}+=", f"{var} +=")):
            step = step.partition("+=")[2].strip()
        else:
            raise CannotLift(f"a loop of another kind: for ({head})")
        return Loop(var, found["start"], stop, step, self._body(), pragmas)

    def _body(self) -> tuple[Node, ...]:
        self._skip_space()
        if self._text[self._at] == "{":
            self._at += 1
            return self.block()[0]
        pragmas: list[str] = []
        while self._text[self._at] == "#":
            pragmas.append(self._line())
            self._skip_space()
        node = self._node(tuple(pragmas))
        return () if node is None else (node,)

    def _skip_space(self) -> None:
        while self._at < len(self._text) and self._text[self._at].isspace():
            self._at += 1

    def _starts(self, word: str) -> bool:
        return re.match(rf"{word}\b", self._text[self._at :]) is not None

    def _take(self, word: str) -> bool:
        self._skip_space()
        if self._starts(word):
            self._at += len(word)
            return True
        return False

    def _line(self) -> str:
        end = self._text.find("\n", self._at)
        end = len(self._text) if end < 0 else end
        line, self._at = self._text[self._at : end].strip(), end
        return line

    def _parenthesised(self, word: str) -> str:
        start = self._text.index("(", self._at + len(word))
        end = closing(self._text, start)
        self._at = end + 1
        return self._text[start + 1 : end].strip()

    def _until_semicolon(self) -> str:
        depth, position = 0, self._at
        while position < len(self._text):
            character = self._text[position]
            if character == '"':
                position = self._text.index('"', position + 1)
            depth += (character in "([{") - (character in ")]}")
            if character == ";" and depth == 0:
                text, self._at = self._text[self._at : position].strip(), position + 1
                return text
            position += 1
        raise CannotLift(f"C++ that does not end: {self._text[self._at : self._at + 60].strip()}")


def closing(text: str, start: int) -> int:
    """Where the bracket at `start` is closed."""
    pairs = {"(": ")", "[": "]", "{": "}", "<": ">"}
    opening, end = text[start], pairs[text[start]]
    depth = 0
    for position in range(start, len(text)):
        depth += (text[position] == opening) - (text[position] == end)
        if depth == 0:
            return position
    raise CannotLift(f"a bracket that is not closed: {text[start : start + 60]}")


def write(function: Function) -> str:
    """The kernel as text."""
    parameters = ", ".join(f"{one.type} {one.name}" for one in function.parameters)
    head = f'extern "C" {function.returns} {function.name}({parameters}) {{'
    if len(head) > 100:
        parameters = ",\n".join(f"{INDENT}{one.type} {one.name}" for one in function.parameters)
        head = f'extern "C" {function.returns} {function.name}(\n{parameters})\n{{'
    return "\n".join([head, *_lines(function.body, 1), "}"])


def _lines(nodes: Sequence[Node], depth: int) -> Iterator[str]:
    for node in nodes:
        yield from _node_lines(node, depth)


def _node_lines(node: Node, depth: int) -> Iterator[str]:
    space = INDENT * depth
    match node:
        case Statement(text):
            yield f"{space}{text};"
        case Lambda(name, body):
            yield f"{space}auto {name} = [&] {{"
            yield from _lines(body, depth + 1)
            yield f"{space}}};"
        case If(condition, body, otherwise):
            yield f"{space}if ({condition}) {{"
            yield from _lines(body, depth + 1)
            if otherwise:
                yield f"{space}}} else {{"
                yield from _lines(otherwise, depth + 1)
            yield f"{space}}}"
        case Block(body, pragmas):
            yield from (f"{space}{pragma}" for pragma in pragmas)
            yield f"{space}{{"
            yield from _lines(body, depth + 1)
            yield f"{space}}}"
        case Loop():
            yield from (f"{space}{pragma}" for pragma in node.pragmas)
            step = f"++{node.var}" if node.step == "1" else f"{node.var} += {node.step}"
            yield f"{space}for (int64_t {node.var} = {node.start}; {node.var} < {node.stop}; {step}) {{"
            yield from _lines(node.body, depth + 1)
            yield f"{space}}}"


def walk(nodes: Sequence[Node]) -> Iterator[Node]:
    """Every node, outer ones first."""
    for node in nodes:
        yield node
        if not isinstance(node, Statement):
            yield from walk(node.body)
        if isinstance(node, If):
            yield from walk(node.otherwise)


def rewrite(nodes: Sequence[Node], change: Callable[[Node], Sequence[Node]]) -> tuple[Node, ...]:
    """The tree with every node replaced by what `change` makes of it, inner ones first."""
    made: list[Node] = []
    for node in nodes:
        if not isinstance(node, Statement):
            node = replace(node, body=rewrite(node.body, change))
        if isinstance(node, If) and node.otherwise:
            node = replace(node, otherwise=rewrite(node.otherwise, change))
        made += change(node)
    return tuple(made)


def map_text(nodes: Sequence[Node], change: Callable[[str], str]) -> tuple[Node, ...]:
    """The tree with every expression and statement changed as text."""

    def changed(node: Node) -> Sequence[Node]:
        match node:
            case Statement(text):
                return (Statement(change(text)),)
            case If():
                return (replace(node, condition=change(node.condition)),)
            case Loop():
                start, stop, step = change(node.start), change(node.stop), change(node.step)
                return (replace(node, start=start, stop=stop, step=step),)
        return (node,)

    return rewrite(nodes, changed)


def texts(nodes: Sequence[Node]) -> Iterator[str]:
    """Every expression and statement, in order."""
    for node in walk(nodes):
        match node:
            case Statement(text):
                yield text
            case If(condition=condition):
                yield condition
            case Loop(start=start, stop=stop, step=step):
                yield from (start, stop, step)
