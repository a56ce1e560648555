"""Reads the Triton kernels out of the file that inductor wrote for a GPU.

Each `async_compile.triton(name, source)` becomes a `Kernel`: plain Triton, a short name, the launch
configuration as knobs, the grid as expressions. Nothing is imported or run for it. Kernels of several forms
(multi_kernel, combo kernels) and grids whose programs wait for each other are refused.

The facts of a kernel, as words: "kind", "inductor" (its name there), "reduction" (inductor's hint: INNER or
OUTER), "types" (of pointers), "processors" (of the GPU), "sizes" (along each axis), "divides" (block sizes
that have to divide a size, as there is no mask), "dot" (whether it multiplies matrices, and in what),
"arguments" (of inductor's launch).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from assay.lift.record import CannotLift, Kernel, Launch
from assay.lift.triton_launch import LAUNCH_OPTIONS, first_knobs, grid_of
from assay.lift.triton_plain import make_plain
from assay.lift.triton_syntax import BLOCK_OF, Rename, calls, constant, definitions, names_in, unparse

KINDS = ("pointwise", "reduction", "persistent_reduction")
PREFIX = re.compile(r"triton_(poi|red|per|tem|spl|unk)_fused_")
UNTELLING = frozenset(
    (
        *("to", "copy", "view", "unsqueeze", "squeeze", "clone", "expand", "permute", "transpose", "slice"),
        *("select", "prepare", "online", "convert", "element", "type", "native", "legit", "forward"),
        *("zeros", "ones", "like", "full", "arange", "constant"),
    )
)
"""Parts of operators' names that say little about a kernel."""


def read_kernels(wrapper_source: str) -> tuple[Kernel, ...]:
    """The kernels of inductor's file, in order; their launch settings are a guess that is for tuning."""
    kernels: list[Kernel] = []
    for name, source in _kernel_sources(wrapper_source):
        taken = {kernel.name for kernel in kernels}
        kernels.append(_read_kernel(name, source, taken))
    return tuple(kernels)


def read_launch(kernel: Kernel, call: ast.Call | str) -> Launch:
    """What `name.run(arg0, buf0, 4096, stream=stream0)` in inductor's call() launches.

    Sizes that the kernel holds as constants are no arguments of it any more.
    """
    if isinstance(call, str):
        parsed = ast.parse(call.strip(), mode="eval").body
        if not isinstance(parsed, ast.Call):
            raise CannotLift(f"not a launch: {call.strip()}")
        call = parsed
    given = kernel.facts["arguments"].split()
    if len(call.args) != len(given):
        raise CannotLift(f"{kernel.name} is launched with {len(call.args)} arguments, it has {len(given)}")
    by_name = {name: ast.unparse(value) for name, value in zip(given, call.args, strict=True)}
    return Launch(kernel.name, tuple(by_name[name] for name in kernel.parameters))


def _kernel_sources(wrapper_source: str) -> list[tuple[str, str]]:
    """(name, source) of each kernel that the file hands to inductor's compiler."""
    found: list[tuple[str, str]] = []
    for node in ast.walk(ast.parse(wrapper_source)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if not (isinstance(node.func.value, ast.Name) and node.func.value.id == "async_compile"):
            continue
        if node.func.attr == "wait":
            continue
        if node.func.attr != "triton":
            raise CannotLift(f"a kernel that inductor makes by async_compile.{node.func.attr}")
        name, source = (ast.literal_eval(arg) for arg in node.args[:2])
        found.append((name, source))
    return found


def _read_kernel(name: str, source: str, taken: set[str]) -> Kernel:
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    kernel = next((f for f in functions if f.name == name), None)
    decorator = _heuristics(kernel) if kernel is not None else None
    if kernel is None or decorator is None:
        raise CannotLift(f"no decorated kernel in the source of {name}")
    facts = _facts(name, decorator)
    if facts["kind"] not in KINDS:
        raise CannotLift(f"{name}: kernels of inductor's kind {facts['kind']}")
    kernel.decorator_list = [d for d in kernel.decorator_list if d is not decorator]
    kernel.name = short_name(name, taken)
    sizes = {axis: constant(kernel, f"{axis}numel") for axis in BLOCK_OF if _has_axis(kernel, axis)}
    facts |= {"divides": " ".join(_unmasked(kernel, sizes)), "dot": _product(kernel)}
    for function in functions:
        make_plain(function)
    return _assembled(kernel, functions, facts, sizes)


def _assembled(
    kernel: ast.FunctionDef,
    functions: list[ast.FunctionDef],
    facts: dict[str, str],
    sizes: Mapping[str, int | None],
) -> Kernel:
    """Sizes that the body holds as numbers are no parameters any more."""
    given = [arg.arg for arg in kernel.args.args if arg.annotation is None]
    constants = [arg.arg for arg in kernel.args.args if arg.annotation is not None]
    known = {axis: size for axis, size in sizes.items() if size is not None}
    parameters = tuple(name for name in given if name.removesuffix("numel") not in known)
    kernel.args.args = [arg for arg in kernel.args.args if arg.arg in parameters or arg.arg in constants]
    facts |= {
        "arguments": " ".join(given),
        "sizes": " ".join(f"{axis}={size}" for axis, size in known.items()),
    }
    hints = {axis: known.get(axis, 1024) for axis in sizes}
    knobs = first_knobs(facts["kind"], hints, facts)
    knobs = {knob: value for knob, value in knobs.items() if knob in constants or knob in LAUNCH_OPTIONS}
    if missing := set(constants) - knobs.keys():
        raise CannotLift(f"{kernel.name}: no value for {', '.join(sorted(missing))}")
    sizes_as_text = {axis: f"{axis}numel" if size is None else str(size) for axis, size in sizes.items()}
    return Kernel(
        name=kernel.name,
        text=_text(kernel, functions),
        parameters=parameters,
        knobs=_dividing(knobs, facts["divides"]),
        grid=grid_of(facts["grid_type"], sizes_as_text, knobs),
        facts={key: value for key, value in facts.items() if key != "grid_type"},
    )


def _text(kernel: ast.FunctionDef, functions: list[ast.FunctionDef]) -> str:
    """The kernel behind the functions that it alone calls; those get names of their own."""
    others = [function for function in functions if function is not kernel]
    used = [function for function in others if function.name in names_in(kernel)]
    names = {f.name: f"{kernel.name}{f.name.removeprefix('_triton_helper_fn')}" for f in used}
    tree = ast.Module(body=[*used, kernel], type_ignores=[])
    for function in used:
        function.name = names[function.name]
    Rename(names).visit(tree)
    return unparse(tree)


def _product(kernel: ast.FunctionDef) -> str:
    """ "half" where the kernel multiplies matrices in 16 bits, "full" in more, "" where it does not."""
    if not calls(kernel, "dot"):
        return ""
    casts = {ast.unparse(n.args[0]) for n in ast.walk(kernel) if isinstance(n, ast.Call) and n.args}
    return "half" if casts & {"tl.float16", "tl.bfloat16"} else "full"


def _has_axis(kernel: ast.FunctionDef, axis: str) -> bool:
    return any(arg.arg == f"{axis}numel" for arg in kernel.args.args)


def _unmasked(kernel: ast.FunctionDef, sizes: Mapping[str, int | None]) -> list[str]:
    """ "XBLOCK:4096" for each block size that has to divide a size, as inductor left its mask out."""
    found = []
    for axis, size in sizes.items():
        masks = definitions(kernel, f"{axis}mask")
        if size is not None and masks and not all(isinstance(mask, ast.Compare) for mask in masks):
            found.append(f"{BLOCK_OF[axis]}:{size}")
    return found


def _dividing(knobs: Mapping[str, int], divides: str) -> dict[str, int]:
    """Halves block sizes until they divide what they have to divide."""
    fitting = dict(knobs)
    for pair in divides.split():
        knob, size = pair.split(":")
        while knob in fitting and int(size) % fitting[knob]:
            fitting[knob] //= 2
    return fitting


def _heuristics(kernel: ast.FunctionDef) -> ast.Call | None:
    for decorator in kernel.decorator_list:
        if isinstance(decorator, ast.Call) and ast.unparse(decorator.func).startswith("triton_heuristics."):
            return decorator
    return None


def _facts(name: str, decorator: ast.Call) -> dict[str, str]:
    """What the decorator says, as words."""
    given = {keyword.arg: keyword.value for keyword in decorator.keywords if keyword.arg}
    meta, inductor = _entries(given.get("triton_meta")), _entries(given.get("inductor_meta"))
    signature = ast.literal_eval(meta["signature"])
    device = _entries(meta.get("device"))
    hint = ast.unparse(given["reduction_hint"]) if "reduction_hint" in given else ""
    return {
        "kind": ast.unparse(decorator.func).removeprefix("triton_heuristics."),
        "inductor": name,
        "reduction": hint.removeprefix("ReductionHint."),
        "grid_type": ast.literal_eval(inductor["grid_type"]),
        "types": " ".join(f"{arg}={kind}" for arg, kind in signature.items() if kind.startswith("*")),
        "processors": ast.unparse(device["multi_processor_count"])
        if "multi_processor_count" in device
        else "132",
    }


def _entries(node: ast.expr | None) -> dict[str, ast.expr]:
    """What a dictionary or the call of a record names."""
    if isinstance(node, ast.Call):
        return {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return {str(key.value): value for key, value in pairs if isinstance(key, ast.Constant)}
    return {}


def short_name(name: str, taken: set[str]) -> str:
    """Of triton_red_fused__softmax_exp_sub_0: "softmax_exp_0", two operators that tell something."""
    words = PREFIX.sub("", name).split("_")
    number = words.pop() if words[-1].isdigit() else "0"
    telling = [word for word in dict.fromkeys(words) if word and not word.isdigit() and word not in UNTELLING]
    base = "_".join(telling[:2] or [word for word in words if word][:2]) or "kernel"
    short = f"{base}_{number}"
    while short in taken:
        short += "b"
    return short
