"""Reads the C++ kernels out of the file that inductor wrote for a CPU, as a person would have written them.

Each `async_compile.cpp_pybinding(types, source)` becomes a `Kernel`: casts that say nothing dropped, blocks
flattened, inductor's own helpers replaced by ours (cpp_support.py), thread counts left to the run. Kernels
that could throw return whether they met an index that does not exist. Unknown functions are refused.

Not covered: kernels written with inductor's vector types, random numbers, complex numbers.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from assay.lift.cpp_constants import with_clamps, with_numbers
from assay.lift.cpp_reductions import plain_reductions
from assay.lift.cpp_support import defined_names
from assay.lift.cpp_text import Call, declaration, renamed, replace_calls, store
from assay.lift.cpp_tree import (
    Block,
    Function,
    If,
    Lambda,
    Loop,
    Node,
    Parameter,
    Statement,
    map_text,
    parse,
    rewrite,
    texts,
    walk,
    write,
)
from assay.lift.cpp_types import parameter_types, rewrite_typed, type_of
from assay.lift.record import CannotLift, Kernel, Launch

FAILS = "fails"
"""The fact of a kernel that returns whether it met an index that does not exist."""

_PREFIX = re.compile(r"cpp_fused_*|cpp_")
_UNTELLING = frozenset(
    (
        *("to", "copy", "view", "unsqueeze", "squeeze", "clone", "expand", "permute", "transpose"),
        *("slice", "select", "native", "forward", "full", "constant"),
    )
)
_TYPES = {
    "at::BFloat16": "bfloat16",
    "at::Half": "half",
    "at::Float8_e4m3fn": "float8_e4m3fn",
    "at::Float8_e5m2": "float8_e5m2",
    "unsigned char": "uint8_t",
    "signed char": "int8_t",
}
_NAMES = {
    "max_propagate_nan": "larger",
    "min_propagate_nan": "smaller",
    "c10::div_floor_integer": "floor_div<int64_t>",
    "floor_divide_integral": "floor_divide",
    "mod": "remainder_of",
    "std::signbit": "is_negative",
    "argmax_combine": "argmax_of",
    "argmin_combine": "argmin_of",
}
_STANDARD = frozenset(
    f"std::{name}"
    for name in (
        *("exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "sqrt", "abs", "pow", "fmod", "hypot"),
        *("tanh", "tan", "sin", "cos", "sinh", "cosh", "asin", "acos", "atan", "atan2", "erf", "erfc"),
        *("floor", "ceil", "trunc", "round", "nearbyint", "max", "min", "isnan", "isinf", "isfinite"),
        *("lgamma", "tgamma", "copysign", "nextafter", "frexp", "ldexp"),
    )
)
_NUMBERS = (
    *("float", "double", "half", "bfloat16", "float8_e4m3fn", "float8_e5m2", "bool", "int"),
    *("int8_t", "int16_t", "int32_t", "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t"),
)
_WORDS = frozenset({*_NUMBERS, "decltype", "sizeof", "if", "for", "__builtin_bit_cast"})
_DIVISION_ERRORS = re.compile(r".*inductor_cpu_(integer_div_error|throw_if_integer_div_error).*", re.DOTALL)
_CAST = re.compile(r"(?:static_cast|c10::convert)<(?P<type>[\w:]+|decltype\(\w+(?:\(\))?\))>")
_BIT_CAST = re.compile(r"c10::bit_cast<(?P<type>[\w:]+)>")
_CALLED = re.compile(r"(?<![\w.])(?P<name>[A-Za-z_][\w:]*)(?:<[^<>()]*>)?\(")
_LONG = re.compile(r"(?<![\w.])(\d+)L\b")
_CHECK = re.compile(r"(?:AOTI_)?TORCH_CHECK\((?P<condition>.*), \".*\"\)")
_EITHER = re.compile(r"= \w+ (?:&&|\|\|) \w+$")
"""Of two values that are there already: without a branch it vectorises."""
_NUMBER = re.compile(r"-?[\d.]+(?:e[-+]?\d+)?L?")
_NARROW = ("bfloat16", "half", "float8_e4m3fn", "float8_e5m2")
_SHIFT = re.compile(
    r"auto (?P<name>\w+) = \[&\]\(\)\s*\{.*return decltype\((?P<a>\w+)\)\("
    r"(?:static_cast<std::make_unsigned_t<\w+>>\()?(?P=a)\)? (?P<how>>>|<<) (?P<b>\w+)\);\s*\}\s*\(\)",
    re.DOTALL,
)


def read_kernels(wrapper: str) -> dict[str, Kernel]:
    """The kernels of inductor's file by the name that inductor calls them by."""
    found: dict[str, Kernel] = {}
    for name, types, source in _sources(wrapper):
        found[name] = _read_kernel(
            short_name(name, {kernel.name for kernel in found.values()}), types, source
        )
    return found


def read_launch(kernel: Kernel, call: ast.Call) -> Launch:
    """A call of the kernel in inductor's call()."""
    if len(call.args) != len(kernel.parameters):
        raise CannotLift(
            f"{kernel.name} is called with {len(call.args)} arguments, it has {len(kernel.parameters)}"
        )
    return Launch(kernel.name, tuple(ast.unparse(argument) for argument in call.args))


def short_name(name: str, taken: set[str]) -> str:
    """cpp_fused__softmax_add_mul_0 as softmax_add_mul, or with a number where that is taken."""
    words = [word for word in _PREFIX.sub("", name, count=1).split("_") if word and not word.isdigit()]
    telling = [word for word in words if word not in _UNTELLING] or words or ["kernel"]
    short = "_".join(telling[:4])
    if not short.isidentifier() or f"std::{short}" in _STANDARD or short in defined_names():
        short = f"kernel_{short}"
    number = sum(
        one == short or (one.startswith(f"{short}_") and one[len(short) + 1 :].isdigit()) for one in taken
    )
    return f"{short}_{number}" if number else short


def _sources(wrapper: str) -> Iterator[tuple[str, tuple[str, ...], str]]:
    for node in ast.parse(wrapper).body:
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(
                    func=ast.Attribute(value=ast.Name(id="async_compile"), attr=how), args=arguments
                ),
            ):
                if how != "cpp_pybinding":
                    raise CannotLift(f"a kernel that inductor makes by async_compile.{how}")
                types, source = (ast.literal_eval(argument) for argument in arguments[:2])
                yield name, tuple(types), source


def _read_kernel(name: str, types: tuple[str, ...], source: str) -> Kernel:
    if "at::vec" in source:
        raise CannotLift("a kernel written with inductor's vector types")
    function = parse(source)
    body = tuple(node for node in function.body if not _is_about_division(node))
    body = rewrite(body, _shifts)
    body = _without_aliases(map_text(body, plain_text))
    body = plain_reductions(flattened(body))
    body = with_clamps(with_numbers(flattened(body)))
    body, fails = _with_checks(body)
    parameters = tuple(Parameter(_plain_type(one.type), one.name) for one in function.parameters)
    made = _with_narrow_stores(Function(name, "int" if fails else "void", parameters, body))
    _check_known(made)
    kinds = tuple(one.type for one in parameters)
    if len(kinds) != len(types):
        raise CannotLift(f"a kernel with {len(types)} arguments whose function has {len(kinds)}")
    return Kernel(name, write(made), kinds, facts={FAILS: "index"} if fails else {})


def _plain_type(text: str) -> str:
    """GCC vectorises choices by bytes, not by bools that are loaded."""
    plain = plain_text(text)
    return plain.replace("bool", "uint8_t") if plain.endswith("*") else plain


def _is_about_division(node: Node) -> bool:
    return isinstance(node, Statement) and _DIVISION_ERRORS.fullmatch(node.text) is not None


def _shifts(node: Node) -> Sequence[Node]:
    """Inductor writes a shift as a function of its own, called on the spot."""
    if isinstance(node, Statement) and (found := _SHIFT.fullmatch(node.text)):
        which = "shift_right" if found["how"] == ">>" else "shift_left"
        return (Statement(f"auto {found['name']} = {which}({found['a']}, {found['b']})"),)
    return (node,)


def _without_aliases(body: tuple[Node, ...]) -> tuple[Node, ...]:
    """One name for each pointer: `auto out_ptr0 = in_out_ptr0` gives a second."""
    names: dict[str, str] = {}
    rest: list[Node] = []
    for node in body:
        found = (
            re.fullmatch(r"auto (\w+) = (in_out_ptr\d+)", node.text) if isinstance(node, Statement) else None
        )
        if found is None:
            rest.append(node)
        else:
            names[found[1]] = found[2]
    return map_text(rest, lambda text: renamed(text, names))


def plain_text(text: str) -> str:
    """An expression of inductor's in plain C++."""
    text = replace_calls(text, _CAST, _plain_cast)
    text = replace_calls(
        text, _BIT_CAST, lambda call: f"__builtin_bit_cast({call.function['type']}, {call.arguments})"
    )
    for wide, short in _TYPES.items():
        text = text.replace(wide, short)
    for theirs, ours in _NAMES.items():
        text = re.sub(rf"(?<![\w:.]){theirs}\b(?=[(<])", ours, text)
    text = _LONG.sub(r"\1", text)
    text = _EITHER.sub(lambda found: found[0].replace("&&", "&").replace("||", "|"), text)
    text = re.sub(r"std::unique_ptr<(\w+) \[\]> (\w+) = std::make_unique<\w+ \[\]>\((.*)\)",
                  r"std::unique_ptr<\1[]> \2(new \1[\3])", text)  # fmt: skip
    text = re.sub(r"\(\(?-1\)\*(\w+)\)", r"(-\1)", text)
    return re.sub(r"(?<=[\[(= ])\((-\d+)\) \+ ", r"\1 + ", text)


def _plain_cast(call: Call) -> str:
    kind, value = call.function["type"], call.arguments
    if kind == "int64_t" and call.function[0].startswith("static_cast") and _is_index(call):
        if value.rstrip("L").isdigit() and re.search(r"std::(max|min)\(", call.before):
            return f"int64_t({value})"  # both of their arguments have one type
        return value if call.stands_alone else f"({value})"
    if _NUMBER.fullmatch(value) and not kind.startswith(("at::", "decltype")):
        return f"{kind}({value})"
    return f"as<{kind}>({value})"


def _is_index(call: Call) -> bool:
    """A cast whose type no `auto` depends on: all that stands in brackets is 64 bits wide anyway."""
    return not re.match(r"auto \w+ = $", call.before)


def flattened(nodes: Sequence[Node], taken: frozenset[str] = frozenset()) -> tuple[Node, ...]:
    """Without blocks that only nest; where two of them use one name, the second gets another."""
    made: list[Node] = []
    declared = set(taken)
    for node in nodes:
        if isinstance(node, Block) and not node.pragmas:
            body = flattened(node.body, frozenset(declared))
            clashes = {name for name in _declared(body) if name in declared}
            names = {name: _fresh(name, declared) for name in sorted(clashes)}
            spliced = _renamed_nodes(body, names)
        elif isinstance(node, Statement):
            spliced = (node,)
        else:
            inside = frozenset(declared | _declared(nodes))
            spliced = (replace(node, body=flattened(node.body, inside)),)
        declared |= _declared(spliced)
        made += spliced
    return tuple(node for node in made if not isinstance(node, Block) or node.body)


def _renamed_nodes(nodes: Sequence[Node], names: dict[str, str]) -> tuple[Node, ...]:
    def change(node: Node) -> Sequence[Node]:
        return (replace(node, name=names.get(node.name, node.name)),) if isinstance(node, Lambda) else (node,)

    return rewrite(map_text(nodes, lambda text: renamed(text, names)), change) if names else tuple(nodes)


def _declared(nodes: Sequence[Node]) -> set[str]:
    """Names that the nodes of one block declare."""
    found = {node.name for node in nodes if isinstance(node, Lambda)}
    for node in nodes:
        if isinstance(node, Statement) and (one := declaration(node.text)):
            found.add(one.name)
    return found


def _fresh(name: str, taken: set[str]) -> str:
    number = 2
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"


def _with_narrow_stores(function: Function) -> Function:
    """Sums that go to a tensor of narrow numbers are converted where they are stored."""

    def change(node: Node, types: Mapping[str, str]) -> Sequence[Node]:
        one = store(node.text) if isinstance(node, Statement) else None
        kind = types.get(one.pointer, "").removesuffix("*") if one else ""
        if one is None or kind not in _NARROW or type_of(one.value, types) == kind:
            return (node,)
        return (Statement(f"{one.pointer}[{one.index}] = as<{kind}>({one.value})"),)

    return replace(function, body=rewrite_typed(function.body, parameter_types(function), change))


def _with_checks(body: tuple[Node, ...]) -> tuple[tuple[Node, ...], bool]:
    """Checks of indices without exceptions: the iteration is left out, and the kernel says so at its end."""
    if not any("TORCH_CHECK" in text for text in texts(body)):
        return body, False
    for node in walk(body):
        if isinstance(node, Lambda) and any("TORCH_CHECK" in text for text in texts(node.body)):
            raise CannotLift("an index that is checked only where a mask allows it")
    checked = tuple(_checked(node, in_loop=False) for node in body)
    return (Statement("std::atomic<bool> bad_index{false}"), *checked, Statement("return bad_index")), True


def _checked(node: Node, *, in_loop: bool) -> Node:
    match node:
        case Statement(text) if found := _CHECK.fullmatch(text):
            if not in_loop:
                raise CannotLift("an index that is checked outside of all loops")
            return If(f"!({found['condition']})", (Statement("bad_index = true"), Statement("continue")))
        case Statement():
            return node
        case If():
            inside = tuple(_checked(one, in_loop=in_loop) for one in node.otherwise)
            node = replace(node, otherwise=inside)
    in_loop = in_loop or isinstance(node, Loop)
    return replace(node, body=tuple(_checked(one, in_loop=in_loop) for one in node.body))


def _check_known(function: Function) -> None:
    """Every function that is called is in the standard library, among ours, or a lambda of the kernel."""
    lambdas = {node.name for node in walk(function.body) if isinstance(node, Lambda)}
    declared = {one.name for text in texts(function.body) if (one := declaration(text))}
    known = lambdas | declared | defined_names() | _STANDARD | _WORDS
    methods = {"infinity", "quiet_NaN", "lowest", "max", "min", "epsilon", "get", "merge", "add"}
    for text in texts(function.body):
        for called in _CALLED.finditer(text):
            name = called["name"]
            if name.startswith(("std::numeric_limits", "std::unique_ptr")):
                continue
            if (
                name not in known
                and name.rpartition("::")[2] not in methods
                and name not in ("omp_get_max_threads", "omp_get_thread_num")
            ):
                raise CannotLift(f"the C++ function {name}")
