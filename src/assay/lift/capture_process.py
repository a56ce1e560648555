"""The process in which inductor runs: one problem in, a generated file out for each variant.

Started by capture.py: the first line of the standard input says what to capture, every further one names a
variant. Each is answered by a line of JSON to the descriptor named by the first argument: it holds either
"capture" or "refused".
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch._inductor.config as inductor_config
from torch._inductor.compile_fx import _recursive_joint_graph_passes, compile_fx_inner
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.graph import GraphLowering
from torch._inductor.virtualized import V
from torch.export import Dim, ExportedProgram, export
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, OutputKind, TensorArgument
from torch.utils._sympy.printers import PythonPrinter

from assay.lift.capture import BUFFER, INPUT, PARAMETER, Argument, Capture
from assay.lift.offline import described_device, move_module, moved
from assay.lift.problem_source import TASK_ENTRY, WHOLE, parts_of
from assay.lift.record import CannotLift
from assay.lift.triton_choices import DECOMPOSITIONS, TEMPLATES, choices_for, inductors_own
from assay.lift.triton_decompositions import table_for
from assay.lift.variants import Variant, variant_named
from assay.problems import PROBLEM_CODE_ERRORS, Case, load_problem
from assay.records import UserError, from_plain, to_plain

_STATE_KINDS = {
    InputKind.PARAMETER: PARAMETER,
    InputKind.BUFFER: BUFFER,
    InputKind.CONSTANT_TENSOR: BUFFER,
}
_PLAIN = (bool, int, float, str)
_PRINTER = PythonPrinter()


class _Written(BaseException):
    """Inductor has written its file: nothing after that is wanted."""

    def __init__(self, text: str) -> None:
        self.text = text


def main() -> None:
    warnings.simplefilter("ignore")
    subject = json.loads(sys.stdin.readline())
    with os.fdopen(int(sys.argv[1]), "w", encoding="utf-8") as answers, contextlib.ExitStack() as stack:
        desk: _Desk | None = None
        for line in sys.stdin:
            try:
                if desk is None:
                    desk = _Desk(subject, stack)
                reply: dict[str, Any] = {"capture": to_plain(desk.captured(line.strip()))}
            except (CannotLift, UserError) as error:
                reply = {"refused": str(error)}
            answers.write(json.dumps(reply) + "\n")
            answers.flush()


class _Desk:
    """One problem, exported once or twice and given to inductor with one set of options after the other."""

    def __init__(self, subject: Mapping[str, Any], stack: contextlib.ExitStack) -> None:
        problem = load_problem(subject["path"])
        instance = problem.bind(_case(subject["case"]))
        here = torch.device("cpu")
        self._device = torch.device(subject["device"])
        self._model = instance.build_reference(0, here)
        self._is_hopper = bool(subject["facts"]) and subject["facts"]["major"] == 9
        if subject["facts"]:
            stack.enter_context(described_device(subject["facts"]))
        self._given = instance.make_inputs(0, here)
        names = problem.argument_names
        if problem.entry == TASK_ENTRY:
            names, self._given = parts_of(self._given[0])
            self._model = _OfParts(instance, self._device, names)
        if self._device != here:
            move_module(self._model, self._device)
            self._given = [moved(value, self._device) for value in self._given]
        if len(self._given) > len(names):
            raise CannotLift("forward() takes more arguments than it names")
        self._names = names[: len(self._given)]
        self._exported: dict[bool, tuple[ExportedProgram, bool | None]] = {}

    def captured(self, name: str) -> Capture:
        variant = variant_named(name, self._device.type)
        table = {**select_decomp_table(), **table_for(variant.options.get(DECOMPOSITIONS, ""))}
        exported, training = self._export(dynamic=variant.dynamic)
        if TEMPLATES in variant.options and self._is_hopper:
            from assay.lift.tile_templates import with_tiles  # which needs Triton

            exported = with_tiles(exported, tuple(self._given), variant.options[TEMPLATES])
        program = exported.run_decompositions(table)
        written = _written(program, self._names)
        if written and not isinstance(self._model, _OfParts):
            raise CannotLift("a module that changes its inputs")
        arguments, values = _arguments(program, self._names, self._model)
        wrapper = _generated(program, variant, arguments)
        ranges, relations = _symbols(program)
        return Capture(
            device=self._device.type,
            variant=variant.name,
            torch_version=torch.__version__,
            wrapper=wrapper,
            inputs=self._names,
            arguments=tuple(arguments),
            values=values,
            settings=dict(_settings(self._model)),
            training=training,
            ranges=ranges,
            relations=relations,
            output=_output(program),
            written=written,
        )

    def _export(self, *, dynamic: bool) -> tuple[ExportedProgram, bool | None]:
        """The program, and the mode it holds for; None where both modes compute the same."""
        if dynamic not in self._exported:
            exported = _exported(self._model, self._given, dynamic=dynamic)
            alike = not _depends_on_mode(self._model, self._given, exported, dynamic=dynamic)
            self._exported[dynamic] = exported, None if alike else self._model.training
        return self._exported[dynamic]


class _OfParts(torch.nn.Module):
    """A task's reference, called with the parts of its data."""

    def __init__(self, task: Any, device: torch.device, names: tuple[str, ...]) -> None:
        super().__init__()
        self._task = task
        self._device = device
        self._is_whole = names == WHOLE

    def forward(self, *parts: Any) -> Any:
        return self._task.reference_output(parts[0] if self._is_whole else parts, self._device)


def _depends_on_mode(
    model: torch.nn.Module, given: list[Any], exported: ExportedProgram, *, dynamic: bool
) -> bool:
    """Whether training and evaluating differ: most modules compute the same in both."""
    was = model.training
    model.train(not was)
    try:
        other = _exported(model, given, dynamic=dynamic)
    except CannotLift:
        return True
    finally:
        model.train(was)
    return other.graph_module.code != exported.graph_module.code


def _case(plain: Mapping[str, Any]) -> Case:
    sizes = {key: tuple(v) if isinstance(v, list) else v for key, v in plain["sizes"].items()}
    return from_plain(Case, {**plain, "sizes": sizes}, "case")


def _exported(model: torch.nn.Module, given: list[Any], *, dynamic: bool) -> ExportedProgram:
    for value in given:
        if value is not None and not isinstance(value, (torch.Tensor, *_PLAIN)):
            raise CannotLift(f"an input of type {type(value).__name__}")
    with torch.no_grad():
        if dynamic:
            free = tuple(
                dict.fromkeys(range(x.dim()), Dim.AUTO) if isinstance(x, torch.Tensor) else None
                for x in given
            )
            shapes = (free,) if isinstance(model, _OfParts) else free  # all parts are one argument
            try:
                return export(model, tuple(given), dynamic_shapes=shapes, strict=False)
            except PROBLEM_CODE_ERRORS:
                pass  # with fixed sizes it may still do
        try:
            return export(model, tuple(given), strict=False)
        except PROBLEM_CODE_ERRORS as error:
            raise CannotLift(f"torch.export refuses the module: {_first_line(error)}") from error


def _generated(program: ExportedProgram, variant: Variant, arguments: list[Argument]) -> str:
    """Inductor's file for the program, made as torch.compile makes it for a call without gradients."""
    module = program.graph_module
    for node in list(module.graph.nodes):
        # Numbers were taken as constants: nothing reads these any more.
        if node.op == "placeholder" and not isinstance(node.meta.get("val"), torch.Tensor):
            module.graph.erase_node(node)
    for node, argument in zip(module.graph.find_nodes(op="placeholder"), arguments, strict=True):
        node.name = node.target = argument.name
    module.recompile()
    values = [node.meta["val"] for node in module.graph.nodes if node.op == "placeholder"]
    if not values:
        raise CannotLift("a module that reads no tensor")
    mode = values[0].fake_mode
    tracing = torch._guards.tracing(torch._guards.TracingContext(mode))
    # Nothing after this point is wanted.
    setattr(GraphLowering, "compile_to_module", _take)  # noqa: B010
    try:
        choices = choices_for(variant.options)
        chosen = V.set_choices_handler(choices) if choices is not None else contextlib.nullcontext()
        options = inductor_config.patch(inductors_own(variant.options))
        with torch.no_grad(), options, chosen, V.set_fake_mode(mode), tracing:
            module = _recursive_joint_graph_passes(module)
            output = next(node for node in module.graph.nodes if node.op == "output")
            # They are laid out as the module's own.
            output.meta["user_visible_output_idxs"] = list(range(len(output.args[0])))
            compile_fx_inner(module, values, is_inference=True)
    except _Written as written:
        return written.text
    except PROBLEM_CODE_ERRORS as error:
        raise CannotLift(f"inductor refuses the module: {_first_line(error)}") from error
    raise CannotLift("inductor has nothing to generate for this module")


def _take(graph: GraphLowering) -> None:
    wrapper, _ = graph.codegen()
    raise _Written(wrapper.value)


def _arguments(
    program: ExportedProgram, names: tuple[str, ...], model: torch.nn.Module
) -> tuple[list[Argument], dict[str, str]]:
    """The arguments of call(), and the inputs that became constants."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"}
    found: list[Argument] = []
    constants: dict[str, str] = {}
    inputs = iter(names)
    for spec in program.graph_signature.input_specs:
        if spec.kind is InputKind.USER_INPUT:
            target, kind = next(inputs), INPUT
        else:
            target, kind = _attribute(spec, model), _STATE_KINDS[spec.kind]
        if isinstance(spec.arg, ConstantArgument):
            constants[target] = repr(spec.arg.value)
        elif isinstance(spec.arg, TensorArgument):
            # What the author calls an input may be what inductor calls a buffer or a size.
            name = f"arg{len(found)}_1" if kind == INPUT else spec.arg.name
            found.append(_argument(name, kind, target, values[spec.arg.name]))
        else:
            raise CannotLift(f"the input {target} is neither a tensor nor a plain value")
    return found, constants


def _attribute(spec: InputSpec, model: torch.nn.Module) -> str:
    """Where the module keeps a tensor that it reads."""
    if spec.kind not in _STATE_KINDS or spec.target is None:
        raise CannotLift(f"an argument of kind {spec.kind.name}")
    holder: Any = model
    for part in spec.target.split("."):
        holder = getattr(holder, part, None)
    if not isinstance(holder, torch.Tensor):
        raise CannotLift("a tensor that forward() makes of Python numbers")
    return spec.target


def _argument(name: str, kind: str, target: str, value: torch.Tensor) -> Argument:
    return Argument(
        name=name,
        kind=kind,
        target=target,
        dtype=str(value.dtype).removeprefix("torch."),
        sizes=tuple(_text(size) for size in value.size()),
        strides=tuple(_text(stride) for stride in value.stride()),
    )


def _written(program: ExportedProgram, names: tuple[str, ...]) -> tuple[str, ...]:
    """The inputs that it writes into; what cannot be an output of a file is refused."""
    signature = program.graph_signature
    given = [spec.arg.name for spec in signature.input_specs if spec.kind is InputKind.USER_INPUT]
    found = []
    for spec in signature.output_specs:
        if spec.kind is OutputKind.USER_INPUT_MUTATION and spec.target is not None:
            found.append(names[given.index(spec.target)])
        elif spec.kind is not OutputKind.USER_OUTPUT:
            raise CannotLift("a module that changes its buffers")
        if not isinstance(spec.arg, TensorArgument):
            raise CannotLift("an output that is no tensor")
    return tuple(found)


def _output(program: ExportedProgram) -> str:
    spec = program.call_spec.out_spec
    if spec is not None and spec.is_leaf():
        return "tensor"
    kinds = {tuple: "tuple", list: "list"}
    if spec is None or spec.type not in kinds or not all(child.is_leaf() for child in spec.children()):
        raise CannotLift("outputs that are neither a tensor nor a flat tuple or list of them")
    return kinds[spec.type]


def _settings(model: torch.nn.Module) -> Iterator[tuple[str, str]]:
    """Plain values that the module and its parts keep: forward() may read them, so they are constants now."""
    for path, part in model.named_modules():
        for name, value in vars(part).items():
            if name != "training" and not name.startswith("_") and _is_plain(value):
                yield f"{path}.{name}".lstrip("."), repr(value)


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(_is_plain(item) for item in value)
    return value is None or type(value) in _PLAIN


def _symbols(program: ExportedProgram) -> tuple[dict[str, tuple[int, ...]], tuple[str, ...]]:
    """What is known of the sizes that were left free, and what inductor and export took for granted."""
    values = [node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder"]
    mode = next(getattr(value, "fake_mode") for value in values if isinstance(value, torch.Tensor))  # noqa: B009
    shapes = mode.shape_env
    sizes = [size for value in values if isinstance(value, torch.Tensor) for size in _all_sizes(value)]
    used = {symbol for size in sizes for symbol in size.free_symbols}
    ranges: dict[str, tuple[int, ...]] = {}
    for symbol in sorted(used, key=str):
        bounds = shapes.var_to_range[symbol]
        ranges[str(symbol)] = tuple(int(b) for b in (bounds.lower, bounds.upper) if _is_finite(b))
    relations: list[str] = []
    for guard in shapes.guards:
        relation = shapes.simplify(guard.expr)
        text = _PRINTER.doprint(relation)
        if relation.free_symbols and relation.free_symbols <= used and text not in relations:
            relations.append(text)
    return ranges, tuple(relations)


def _all_sizes(value: torch.Tensor) -> Iterator[Any]:
    for size in (*value.size(), *value.stride()):
        if isinstance(size, torch.SymInt):
            yield size.node.expr


def _is_finite(bound: Any) -> bool:
    return bool(bound.is_Integer) and abs(int(bound)) < sys.maxsize


def _text(size: int | torch.SymInt) -> str:
    return _PRINTER.doprint(size.node.expr) if isinstance(size, torch.SymInt) else str(size)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


if __name__ == "__main__":
    main()
