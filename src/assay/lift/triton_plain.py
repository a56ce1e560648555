"""Makes inductor's kernels plain Triton: nothing of inductor is called, nothing unused is left.

What has no plain form here (grid-wide barriers, look-back scans, sorting networks, random numbers) is refused
with `CannotLift` by name.
"""

from __future__ import annotations

import ast
import re

from assay.lift.record import CannotLift
from assay.lift.triton_syntax import (
    CallRewrite,
    Substitution,
    assignment_counts,
    base_pointer,
    blocks,
    calls,
    drop_unused,
    expression,
    names_in,
    simple_target,
    targets,
    text_of,
    tl_name,
)

SAME_IN_TL = frozenset({"abs", "rsqrt", "erf", "floor", "ceil", "exp2", "fma"})
"""Of libdevice: tl has the same instruction. Others keep libdevice's, so that results stay the same."""
SAME_MATH = SAME_IN_TL | {"exp", "log", "log2", "sin", "cos", "sqrt", "sqrt_rn", "div_rn", "umulhi"}
BY_ANOTHER_NAME = {
    "maximum": "larger",
    "minimum": "smaller",
    "maximum_with_index": "larger_at",
    "minimum_with_index": "smaller_at",
    "welford_reduce": "welford_step",
    "welford_combine": "welford_join",
    "div_floor_integer": "floor_divide",
    "remainder_integer": "floor_remainder",
    "frexp": "fraction_and_exponent",
}
REDUCTIONS = {"max2": "larger", "min2": "smaller", "any": "either", "prod": "product"}
REDUCTIONS_OF_MANY = {
    "max_with_index": "larger_at",
    "min_with_index": "smaller_at",
    "welford": "welford_join",
}
ALIASES = re.compile(r"rnumel|RBLOCK|roffset|rindex|rbase|[xyz]\d+|r\d_\d+")
ALIASED = re.compile(r"r\d_(numel|offset|index|base)|R\d_BLOCK|[xyz]index")


def make_plain(function: ast.FunctionDef) -> None:
    """Changes a kernel, or a function it calls, in place."""
    CallRewrite(_plain_call).visit(function)
    _drop_asserts_and_barriers(function)
    _drop_needless_casts(function)
    _spell_out_aliases(function)
    drop_unused(function)
    _refuse_what_is_left(function)


def _plain_call(node: ast.Call) -> ast.expr:
    if not (isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name)):
        return node
    module, name = node.func.value.id, node.func.attr
    if (module == "libdevice" and name in SAME_IN_TL) or (module == "tl_math" and name in SAME_MATH):
        node.func.value.id = "tl"
        return node
    return _plain_helper(name, node) if module == "triton_helpers" else node


def _plain_helper(name: str, node: ast.Call) -> ast.expr:
    given = [text_of(arg) for arg in node.args]
    if name in BY_ANOTHER_NAME:
        node.func = ast.Name(id=BY_ANOTHER_NAME[name], ctx=ast.Load())
        return node
    if name in REDUCTIONS:
        return expression(f"tl.reduce({given[0]}, {given[1]}, {REDUCTIONS[name]})")
    if name in REDUCTIONS_OF_MANY:
        return expression(f"tl.reduce(({', '.join(given[:-1])}), {given[-1]}, {REDUCTIONS_OF_MANY[name]})")
    if name in ("online_softmax_combine", "online_softmax_reduce"):
        if given[-1] != "False":
            raise CannotLift("inductor's fast exponential (use_fast_math)")
        plain = "softmax_step" if name == "online_softmax_combine" else "softmax_join"
        return expression(f"{plain}({', '.join(given[:-1])})")
    if name == "promote_to_tensor":
        return expression(f"({given[0]} + tl.zeros((1,), tl.int1))")
    if name == "device_assert_then":
        return node.args[2]
    if name == "select_one":
        named = {keyword.arg: text_of(keyword.value) for keyword in node.keywords}
        axis = named.get("dim") or given[2]
        return expression(f"only_at({given[0]}, {given[1]}, {axis}, {named.get('keep_dims', 'False')})")
    if name == "bucketize_binary_search":
        return _plain_search(given, node)
    raise CannotLift(f"inductor's device function {name} has no plain Triton here")


def _plain_search(given: list[str], node: ast.Call) -> ast.expr:
    """Inductor gives: values, edges, their count, all edges' count, stride, start, type, right, sorter."""
    if node.keywords or len(given) < 8 or any(sorter != "None" for sorter in given[8:]):
        raise CannotLift("a search in edges that are sorted by another tensor")
    return expression(f"places_in_sorted({', '.join(given[:8])})")


def _drop_asserts_and_barriers(function: ast.FunctionDef) -> None:
    """Asserts do nothing outside Triton's debug mode. Barriers stay where a kernel reads what it writes."""
    read = {base_pointer(call) for call in calls(function, "load")}
    written = {base_pointer(call) for call in calls(function, "store")}
    noise = {"device_assert"} if read & written else {"device_assert", "debug_barrier"}
    for block in blocks(function):
        block[:] = [n for n in block if not (isinstance(n, ast.Expr) and tl_name(n.value) in noise)]


def _cast(node: ast.AST) -> tuple[ast.expr, str] | None:
    """(value, type) of `value.to(type)`."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "to"):
        return None
    return (node.func.value, text_of(node.args[0])) if len(node.args) == 1 and not node.keywords else None


def _drop_needless_casts(function: ast.FunctionDef) -> None:
    """`b = a.to(t)` where a was made by `.to(t)`: b is a."""
    count = assignment_counts(function)
    types: dict[str, str] = {}
    same: dict[str, ast.expr] = {}
    for block in blocks(function):
        for node in block:
            name = simple_target(node)
            if name is None or count[name] != 1 or not isinstance(node, ast.Assign):
                continue
            cast = _cast(node.value)
            if cast is None:
                continue
            value, kind = cast
            if isinstance(value, ast.Name) and types.get(value.id) == kind:
                same[name] = same.get(value.id, value)
            types[name] = kind
    Substitution(same).visit(function)


def _spell_out_aliases(function: ast.FunctionDef) -> None:
    """`x0 = xindex`, `rnumel = r0_numel`: one name is enough where every assignment says the same."""
    said: dict[str, set[str]] = {}
    for block in blocks(function):
        for node in block:
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            for name in targets(node):
                said.setdefault(name, set()).add(value.id if isinstance(value, ast.Name) else "")
    aliases: dict[str, ast.expr] = {
        name: ast.Name(id=next(iter(values)), ctx=ast.Load())
        for name, values in said.items()
        if ALIASES.fullmatch(name) and len(values) == 1 and ALIASED.fullmatch(next(iter(values)))
    }
    Substitution(aliases).visit(function)
    for block in blocks(function):
        block[:] = [node for node in block if not (targets(node) and set(targets(node)) <= aliases.keys())]


def _refuse_what_is_left(function: ast.FunctionDef) -> None:
    if left := names_in(function) & {"triton_helpers", "tl_math", "triton_heuristics", "tlx"}:
        uses = [
            text_of(n)
            for n in ast.walk(function)
            if isinstance(n, ast.Attribute) and text_of(n.value) in left
        ]
        raise CannotLift(f"no plain Triton for {uses[0] if uses else min(left)}")
