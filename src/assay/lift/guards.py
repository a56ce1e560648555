"""When a lifted file may stand in for the module: Python expressions over the inputs and the state.

Everything inductor took for granted is asked: types, devices, layouts, sizes it fixed, how sizes hang
together, plain attributes of the module, and that no gradient would be recorded. Where one is false, the
module's own forward() answers.

Not covered: autocast, and tensors that are subclasses with behaviour of their own.
"""

from __future__ import annotations

import ast
import keyword
import math
import random
from collections.abc import Iterator, Mapping, Sequence

from assay.lift.capture import INPUT, Argument, Capture
from assay.lift.record import CannotLift

FUNCTIONS = {"max": max, "min": min, "float": float, "math": math}
"""What inductor's size expressions may call."""

_TRIALS = 3
_LEAST, _MOST = 10_007, 99_991


def guards_of(capture: Capture, names: Mapping[str, str], symbols: Mapping[str, str]) -> tuple[str, ...]:
    """The guards of a captured file.

    Args:
        names: what each argument of call() is called in the lines of the lifted file.
        symbols: for each symbol the expression that gives its value, such as "x.size(0)".
    """
    found = [_is_value(name, value) for name, value in capture.values.items()]
    found += [f"{attribute(path)} == {value}" for path, value in capture.settings.items()]
    if capture.training is not None:
        found.append("self.training" if capture.training else "not self.training")
    for argument in capture.arguments:
        found += _placement(argument, names[argument.name], capture.device)
    for argument in capture.arguments:
        found += _layout(argument, names[argument.name], symbols)
    for symbol, bounds in capture.ranges.items():
        found += _range(symbol, bounds, symbols)
    found += [_substituted(relation, symbols) for relation in capture.relations]
    return (*dict.fromkeys(found), *_no_gradient(capture, names))


def attribute(path: str) -> str:
    """The expression for what a module keeps there: parts of lists have numbers for names."""
    text = "self"
    for part in path.split("."):
        is_name = part.isidentifier() and not keyword.iskeyword(part)
        text = f"{text}.{part}" if is_name else f"getattr({text}, {part!r})"
    return text


def is_contiguous(sizes: Sequence[str], strides: Sequence[str]) -> bool:
    """Whether the strides are those of a dense tensor whatever the symbols are; tried with numbers."""
    rng = random.Random(0)
    free = {name for text in (*sizes, *strides) for name in _names(text)}
    for _ in range(_TRIALS):
        values = {name: rng.randint(_LEAST, _MOST) for name in sorted(free)}
        expected = 1
        for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
            extent = evaluate(size, values)
            if extent != 1 and evaluate(stride, values) != expected:
                return False
            expected *= extent
    return True


def evaluate(text: str, symbols: Mapping[str, int]) -> int:
    """The value of one of inductor's size expressions."""
    return int(eval(text, {"__builtins__": {}, **FUNCTIONS}, dict(symbols)))


def _names(text: str) -> set[str]:
    tree = ast.parse(text, mode="eval")
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - FUNCTIONS.keys()


def _is_value(name: str, literal: str) -> str:
    try:
        value = ast.literal_eval(literal)
    except ValueError:
        raise CannotLift(f"the input {name} is {literal}, which cannot be written down") from None
    return (
        f"{name} is None"
        if value is None
        else f"type({name}) is {type(value).__name__} and {name} == {literal}"
    )


def _placement(argument: Argument, name: str, device: str) -> Iterator[str]:
    yield f"{name}.is_{device}"
    yield f"{name}.dtype is torch.{argument.dtype}"
    if all(size.isdigit() for size in argument.sizes):
        yield f"{name}.shape == {_tuple(argument.sizes)}"
    else:
        yield f"{name}.dim() == {len(argument.sizes)}"


def _layout(argument: Argument, name: str, symbols: Mapping[str, str]) -> Iterator[str]:
    if not all(size.isdigit() for size in argument.sizes):
        for axis, size in enumerate(argument.sizes):
            yield from _equal(f"{name}.size({axis})", size, symbols)
    if is_contiguous(argument.sizes, argument.strides):
        yield f"{name}.is_contiguous()"
        return
    for axis, stride in enumerate(argument.strides):
        if argument.sizes[axis] != "1":
            yield from _equal(f"{name}.stride({axis})", stride, symbols)


def _equal(asked: str, expected: str, symbols: Mapping[str, str]) -> Iterator[str]:
    value = _substituted(expected, symbols)
    if value != asked:
        yield f"{asked} == {value}"


def _range(symbol: str, bounds: tuple[int, ...], symbols: Mapping[str, str]) -> Iterator[str]:
    value = _substituted(symbol, symbols)
    if len(bounds) == 2:
        yield f"{bounds[0]} <= {value} <= {bounds[1]}"
    elif bounds and bounds[0] > 0:
        yield f"{value} >= {bounds[0]}"


class _Substitute(ast.NodeTransformer):
    def __init__(self, symbols: Mapping[str, str]) -> None:
        self._symbols = symbols

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in FUNCTIONS:
            return node
        if node.id not in self._symbols:
            raise CannotLift(f"the size {node.id} cannot be told from the inputs")
        return ast.parse(self._symbols[node.id], mode="eval").body


def _substituted(text: str, symbols: Mapping[str, str]) -> str:
    plain = text.replace("torch.sym_float(", "float(")
    return ast.unparse(_Substitute(symbols).visit(ast.parse(plain, mode="eval")))


def _no_gradient(capture: Capture, names: Mapping[str, str]) -> Iterator[str]:
    floats = [a for a in capture.arguments if a.dtype.startswith(("float", "bfloat", "complex"))]
    # Parameters first: one of them nearly always settles it.
    ordered = sorted(floats, key=lambda argument: argument.kind == INPUT)
    if ordered:
        recorded = " or ".join(f"{names[a.name]}.requires_grad" for a in ordered)
        yield f"not (torch.is_grad_enabled() and ({recorded}))"


def _tuple(items: Sequence[str]) -> str:
    return f"({', '.join(items)},)" if len(items) == 1 else f"({', '.join(items)})"
