"""Tile kernels where an exported module computes what one of them does.

Operators are matched by name and by what the kernel takes; what follows a product or a convolution and can
ride on it goes along. Inductor generates what is left, and calls the kernels as it calls a library.

Not covered: batched products, masks, and modules that write out in small steps what has no operator (linear
attention, state spaces, rotary embeddings).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.export import ExportedProgram, export
from torch.fx import Node

from assay.lift.record import CannotLift
from assay.problems import PROBLEM_CODE_ERRORS
from assay.tiles import (
    attention,
    conv2d,
    conv2d_relu_maxpool,
    cross_entropy,
    gemm,
    layer_norm,
    rms_norm,
    softmax,
)

HALF = (torch.bfloat16, torch.float16)
HEAD_SIZES = (64, 128, 256)
ALIGNED = 8
"""Elements: where a row does not begin at a multiple of so many, torch's own product answers."""
REDUCTIONS = {0: "none", 1: "mean"}
aten = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Fit:
    """A call of a kernel in place of what `last` computes."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    last: Node


def with_tiles(program: ExportedProgram, given: tuple[Any, ...], kinds: str) -> ExportedProgram:
    """The program with tile kernels where they fit; itself where none does.

    Args:
        kinds: names of BY_KIND with commas between.
    """
    module = program.module(check_guards=False)
    templates: dict[Any, Callable[[Node], Fit | None]] = {}
    for kind in kinds.split(","):
        if kind not in BY_KIND:
            raise CannotLift(f"no templates are named {kind}")
        templates |= BY_KIND[kind]
    found = [_replaced(node, templates) for node in list(module.graph.nodes)]
    if not any(found):
        return program
    module.graph.eliminate_dead_code()
    module.recompile()
    try:
        with torch.no_grad():
            return export(module, given, strict=False)
    except PROBLEM_CODE_ERRORS as error:
        raise CannotLift(f"a tile kernel refuses: {str(error).splitlines()[0]}") from error


def _replaced(node: Node, templates: Mapping[Any, Callable[[Node], Fit | None]]) -> bool:
    template = templates.get(node.target) if node.users else None
    fit = template(node) if template is not None else None
    if fit is None:
        return False
    with node.graph.inserting_before(fit.last):
        call = node.graph.call_function(fit.function, fit.arguments)
    call.meta = dict(fit.last.meta)
    fit.last.replace_all_uses_with(call)
    return True


def product(left: Any, right: Any, bias: Any, residual: Any, activation: str) -> torch.Tensor:
    """`right` is (N, K), as linear layers keep it."""
    return gemm(left, right.T, bias, residual, activation)


def _linear(node: Node) -> Fit | None:
    asked = _asked(node)
    left, weight = asked["input"], asked["weight"]
    if not _is_product(left, _shape(weight)[::-1]):
        return None
    return _with_epilogue(product, (left, weight, asked["bias"]), node)


def _matmul(node: Node) -> Fit | None:
    left, right = node.args[:2]
    if not _is_product(left, _shape(right)):
        return None
    return _with_epilogue(gemm, (left, right, None), node)


def _is_product(left: Any, right: tuple[int, ...]) -> bool:
    half = isinstance(left, Node) and left.meta["val"].dtype in HALF
    return half and len(_shape(left)) > 1 and len(right) == 2 and not any(size % ALIGNED for size in right)


def _with_epilogue(function: Callable[..., Any], operands: tuple[Any, ...], last: Node) -> Fit:
    """What follows and can be done before the result is written."""
    activation, residual = "", None
    user = _only_user(last)
    if user is not None and (name := _activation(user)):
        activation, last = name, user
        user = _only_user(last)
    if user is not None and user.target is aten.add.Tensor and _asked(user)["alpha"] == 1:
        other = user.args[1] if user.args[0] is last else user.args[0]
        if isinstance(other, Node) and other is not last and _is_alike(other, last):
            residual, last = other, user
    return Fit(function, (*operands, residual, activation), last)


def _activation(node: Node) -> str:
    if node.target is aten.gelu.default:
        return "gelu" if _asked(node)["approximate"] == "tanh" else ""
    names: dict[Any, str] = {aten.relu.default: "relu", aten.silu.default: "silu"}
    return names.get(node.target, "")


def _attention(node: Node) -> Fit | None:
    asked = _asked(node)
    q, k, v = asked["query"], asked["key"], asked["value"]
    shapes = [_shape(x) for x in (q, k, v)]
    # torch counts the diagonal from the first key, the kernel from the last one.
    is_square = shapes[0][-2] == shapes[1][-2] or not asked["is_causal"]
    if (
        asked["attn_mask"] is not None
        or asked["dropout_p"]
        or q.meta["val"].dtype not in HALF
        or any(len(shape) != 4 for shape in shapes)
        or shapes[1] != shapes[2]
        or shapes[0][-1] not in HEAD_SIZES
        or not is_square
    ):
        return None
    return Fit(attention, (q, k, v, asked["is_causal"], asked["scale"]), node)


def _convolution(node: Node) -> Fit | None:
    asked = _asked(node)
    x, weight = asked["input"], asked["weight"]
    if asked["groups"] != 1 or x.meta["val"].dtype not in HALF or len(_shape(x)) != 4:
        return None
    operands = (x, weight, asked["bias"], *(_pair(asked[name]) for name in ("stride", "padding", "dilation")))
    after = _only_user(node)
    if after is None or after.target is not aten.relu.default:
        return Fit(conv2d, (*operands, False), node)
    pool = _only_user(after)
    if pool is not None and _is_pool_of_four(pool):
        return Fit(conv2d_relu_maxpool, operands, pool)
    return Fit(conv2d, (*operands, True), after)


def _is_pool_of_four(node: Node) -> bool:
    if node.target is not aten.max_pool2d.default:
        return False
    asked = _asked(node)
    windows = _pair(asked["kernel_size"]), _pair(asked["stride"] or asked["kernel_size"])
    rest = _pair(asked["padding"]), _pair(asked["dilation"]), asked["ceil_mode"]
    return windows == ((2, 2), (2, 2)) and rest == ((0, 0), (1, 1), False)


def _softmax(node: Node) -> Fit | None:
    asked = _asked(node)
    x = asked["self"]
    is_last = asked["dim"] in (-1, len(_shape(x)) - 1)
    if not is_last or asked["dtype"] is not None or x.meta["val"].dtype == torch.float64:
        return None
    return Fit(softmax, (x,), node)


def _layer_norm(node: Node) -> Fit | None:
    asked = _asked(node)
    if len(asked["normalized_shape"]) != 1 or asked["weight"] is None or asked["bias"] is None:
        return None
    return Fit(layer_norm, (asked["input"], asked["weight"], asked["bias"], None, asked["eps"]), node)


def _rms_norm(node: Node) -> Fit | None:
    asked = _asked(node)
    if len(asked["normalized_shape"]) != 1 or asked["weight"] is None or asked["eps"] is None:
        return None
    return Fit(rms_norm, (asked["input"], asked["weight"], None, asked["eps"]), node)


def _cross_entropy(node: Node) -> Fit | None:
    asked = _asked(node)
    logits, targets = asked["self"], asked["target"]
    is_plain = asked["weight"] is None and not asked["label_smoothing"] and len(_shape(logits)) == 2
    if not is_plain or asked["reduction"] not in REDUCTIONS or targets.meta["val"].dtype != torch.int64:
        return None
    return Fit(cross_entropy, (logits, targets, asked["ignore_index"], REDUCTIONS[asked["reduction"]]), node)


def _asked(node: Node) -> dict[str, Any]:
    """The arguments of an operator by name, defaults among them."""
    target: Any = node.target
    found = {}
    for index, argument in enumerate(target._schema.arguments):
        default = argument.default_value if argument.has_default_value() else None
        is_given = index < len(node.args)
        found[argument.name] = node.args[index] if is_given else node.kwargs.get(argument.name, default)
    return found


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(value.meta["val"].shape) if isinstance(value, Node) else ()


def _is_alike(one: Node, other: Node) -> bool:
    return _shape(one) == _shape(other) and one.meta["val"].dtype == other.meta["val"].dtype


def _only_user(node: Node) -> Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _pair(value: Any) -> tuple[int, int]:
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * 2 if len(values) == 1 else values


BY_KIND: Mapping[str, Mapping[Any, Callable[[Node], Fit | None]]] = {
    "products": {
        aten.linear.default: _linear,
        aten.matmul.default: _matmul,
        aten.mm.default: _matmul,
        aten.scaled_dot_product_attention.default: _attention,
        aten.conv2d.default: _convolution,
    },
    "rows": {
        aten.softmax.int: _softmax,
        aten.layer_norm.default: _layer_norm,
        aten.rms_norm.default: _rms_norm,
        aten.cross_entropy_loss.default: _cross_entropy,
    },
}
"""What gains by a kernel of its own, and what inductor would fuse with its neighbours."""
