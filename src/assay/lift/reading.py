"""Reads inductor's file: what call() does, as lines of plain torch and calls of kernels.

Allocations, views, library calls, renamings and symbols are the same in every language; the kernels are read
by the module of their language. What is not known by name is refused: nothing is left out by mistake.

Not covered: memory pools, collectives, several devices, and sizes that only the data tell.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import replace

from assay.lift import cpp_kernels, triton_kernels
from assay.lift.capture import INPUT, Capture
from assay.lift.guards import guards_of, is_contiguous
from assay.lift.names import BUILTINS, new_names
from assay.lift.record import CannotLift, Kernel, Launch, Lifted, Line

_DROPPED = ("assert_size_stride", "assert_alignment", "args.clear", "torch.cuda.set_device")
_TILES = re.compile(r"torch\.ops\.assay\.(\w+)\.default")
_LIBRARY = ("mm", "addmm", "bmm", "baddbmm", "convolution")
_KNOWN_NAMES = frozenset({"torch", "math", "max", "min", "inf", "nan", "True", "False", "self", "operators"})


def read(capture: Capture) -> Lifted:
    """The captured file as data.

    Raises:
        CannotLift: it holds something that has no standalone form here.
    """
    module = ast.parse(capture.wrapper)
    found = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef) and node.name == "call"]
    if len(found) != 1:
        raise CannotLift("a file of inductor without a single call()")
    if capture.device == "cuda":
        generated = triton_kernels.read_kernels(capture.wrapper)
        kernels: Mapping[str, Kernel] = {kernel.facts["inductor"]: kernel for kernel in generated}
    else:
        kernels = cpp_kernels.read_kernels(capture.wrapper)
    reader = _Reader(_with_inputs_aside(capture, found[0]), kernels)
    reader.read_block(found[0].body)
    return reader.lifted()


def _with_inputs_aside(capture: Capture, call: ast.FunctionDef) -> Capture:
    """Inputs have names that nothing else has in the lines of call() and in guards."""
    arguments = {argument.name for argument in capture.arguments}
    taken = {node.id for node in ast.walk(call) if isinstance(node, ast.Name)} - arguments
    taken |= BUILTINS | _KNOWN_NAMES | {f"{name}_shape" for name in (*capture.inputs, *arguments)}
    new = new_names(taken & set(capture.inputs), taken | set(capture.inputs))
    return replace(
        capture,
        inputs=tuple(new.get(name, name) for name in capture.inputs),
        arguments=tuple(
            replace(one, target=new.get(one.target, one.target)) if one.kind == INPUT else one
            for one in capture.arguments
        ),
        values={new.get(name, name): value for name, value in capture.values.items()},
        written=tuple(new.get(name, name) for name in capture.written),
    )


class _Reader:
    """Goes through call() once, line by line."""

    def __init__(self, capture: Capture, kernels: Mapping[str, Kernel]) -> None:
        self._capture = capture
        self._kernels = kernels
        self._names: dict[str, str] = {}
        """What inductor's names are called here; renamed buffers have the name they were made under."""
        self._sizes: dict[str, str] = {}
        """`x_size` and `x_stride`: the expression that makes them."""
        self._symbols: dict[str, str] = {}
        self._made: set[str] = set()
        self._fresh: set[str] = set()
        self._steps: list[Line | Launch] = []
        self._returns: str | None = None

    def lifted(self) -> Lifted:
        capture = self._capture
        if self._returns is None:
            raise CannotLift("a call() that returns nothing")
        state = {self._names[a.name]: a.target for a in capture.arguments if a.kind != INPUT}
        used = {step.kernel for step in self._steps if isinstance(step, Launch)}
        lines = [Line(f"{name} = {value}") for name, value in self._symbols.items()]
        lifted = Lifted(
            language="triton" if capture.device == "cuda" else "cpp",
            variant=capture.variant,
            inputs=capture.inputs,
            state=state,
            guards=guards_of(capture, self._names, self._symbols),
            kernels=tuple(kernel for kernel in self._kernels.values() if kernel.name in used),
            steps=(*lines, *self._steps),
            returns=self._returns,
        )
        _check_names(lifted)
        return without_unused_lines(lifted)

    def read_block(self, body: list[ast.stmt]) -> None:
        for statement in body:
            match statement:
                case ast.Assign(targets=[target], value=value):
                    self._assign(target, value)
                case ast.Expr(value=ast.Call() as call):
                    self._call(call)
                case ast.Expr(value=ast.Constant()) | ast.Delete() | ast.Pass():
                    pass
                case ast.Return(value=ast.Tuple(elts=values)):
                    self._return(values)
                case ast.With(items=[ast.withitem(context_expr=ast.Call(func=guard))], body=inside):
                    if ast.unparse(guard) != "torch.cuda._DeviceGuard":
                        raise _unknown(statement)
                    self.read_block(inside)
                case _:
                    raise _unknown(statement)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        match target, value:
            case ast.Tuple(elts=names), ast.Name(id="args"):
                self._name_arguments([ast.unparse(name) for name in names])
            # Triton tells by itself where a pointer is aligned.
            case (ast.Name(id=name), ast.Name(id=other)) | (
                ast.Name(id=name),
                ast.Call(func=ast.Name(id="copy_if_misaligned"), args=[ast.Name(id=other)]),
            ):
                self._names[name] = self._names.get(other, other)
                if other in self._symbols:
                    self._symbols[name] = self._symbols[other]
            case ast.Name(id=name), ast.Call(
                func=ast.Attribute(value=ast.Name(id=owner), attr=asked), args=[]
            ):
                if asked not in ("size", "stride"):
                    raise _unknown(value)
                self._sizes[name] = f"{self._names[owner]}.{asked}"
            case ast.Name(id=name), ast.Subscript(value=ast.Name(id=sizes), slice=axis) if (
                sizes in self._sizes
            ):
                self._symbols[name] = f"{self._sizes[sizes]}({ast.unparse(axis)})"
                self._made.add(name)
            case ast.Name(id=name), ast.Call(func=ast.Name(id="get_raw_stream")):
                self._names[name] = name
            case ast.Name(id=name), _:
                self._make(name, value)
            case _:
                raise _unknown(target)

    def _name_arguments(self, names: list[str]) -> None:
        arguments = self._capture.arguments
        if names != [argument.name for argument in arguments]:
            raise CannotLift("a call() whose arguments are not those of the module")
        taken = set(self._capture.inputs)
        for argument in arguments:
            name = argument.target if argument.kind == INPUT else argument.name
            while argument.kind != INPUT and name in taken:
                name += "_"
            taken.add(name)
            self._names[argument.name] = name
            self._made.add(name)

    def _make(self, name: str, value: ast.expr) -> None:
        """A buffer: allocated, a view of another, or what a library function gives."""
        fresh = isinstance(value, ast.Call) and ast.unparse(value.func).startswith("empty_strided_")
        text = self._text(value)
        self._steps.append(Line(f"{name} = {text}"))
        self._names[name] = name
        self._made.add(name)
        if fresh:
            self._fresh.add(name)

    def _call(self, call: ast.Call) -> None:
        name = ast.unparse(call.func)
        if name in _DROPPED:
            return
        kernel = self._kernels.get(name.removesuffix(".run"))
        if kernel is None:
            self._steps.append(Line(self._text(call)))
            return
        plain = self._rewritten(call)
        if not isinstance(plain, ast.Call):
            raise _unknown(call)
        language = triton_kernels if self._capture.device == "cuda" else cpp_kernels
        self._steps.append(language.read_launch(kernel, plain))

    def _return(self, values: list[ast.expr]) -> None:
        texts = [self._text(value) for value in values]
        written = self._capture.written
        if any(text in written for text in texts[: len(written)]):
            raise CannotLift("inputs that take the contents of each other")
        for name, text in zip(written, texts, strict=False):
            self._write_into(name, text)
        # What was written is what is given back, if it is among that.
        places = dict(zip(texts, written, strict=False))
        texts = [places.get(text, text) for text in texts[len(written) :]]
        if self._capture.output == "tensor":
            if len(texts) != 1:
                raise CannotLift(f"a call() that returns {len(texts)} values for one tensor")
            self._returns = texts[0]
        elif self._capture.output == "list":
            self._returns = f"[{', '.join(texts)}]"
        else:
            self._returns = f"({', '.join(texts)}{',' * (len(texts) == 1)})"

    def _write_into(self, name: str, made: str) -> None:
        """An input's new contents: made where they belong if nothing else is read there, or else copied."""
        place = next((k for k, step in enumerate(self._steps) if self._allocates(step, made, name)), None)
        others = [step for k, step in enumerate(self._steps) if k != place]
        read = {word for step in others for text in _texts(step) for word in _names_in(text)}
        if place is None or name in read:
            self._steps.append(Line(f"{name}.copy_({made})"))
        else:
            self._steps = [_renamed(step, made, name) for step in others]

    def _allocates(self, step: Line | Launch, made: str, name: str) -> bool:
        """Whether it makes such a buffer, as long and of the same type as the input."""
        by_name = {self._names[a.name]: (a.dtype, a.sizes, a.strides) for a in self._capture.arguments}
        return isinstance(step, Line) and any(
            step.text == f"{made} = torch.empty_like({other})" and known == by_name[name]
            for other, known in by_name.items()
        )

    def _text(self, value: ast.expr) -> str:
        return ast.unparse(self._rewritten(value))

    def _rewritten(self, value: ast.expr) -> ast.expr:
        likes: dict[tuple[str, ...], str] = {}
        for argument in self._capture.arguments:
            sizes = tuple(_canonical(self._renamed(size)) for size in argument.sizes)
            if is_contiguous(argument.sizes, argument.strides):
                likes.setdefault((argument.dtype, *sizes), self._names[argument.name])
        device = f"{self._names[self._capture.arguments[0].name]}.device"
        return _Plain(self._names, self._fresh, device, likes).visit(value)

    def _renamed(self, size: str) -> str:
        """Symbols that are equal have one name here."""
        return re.sub(r"\b[a-z]\w*\b", lambda word: self._names.get(word[0], word[0]), size)


class _Plain(ast.NodeTransformer):
    """Inductor's expressions as plain torch."""

    def __init__(
        self, names: Mapping[str, str], fresh: set[str], device: str, likes: Mapping[tuple[str, ...], str]
    ) -> None:
        self._names = names
        self._fresh = fresh
        self._device = device
        self._likes = likes
        """Dense arguments by type and sizes: what is like one of them is allocated faster."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name(self._names.get(node.id, node.id), node.ctx)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        function = ast.unparse(node.func)
        arguments = [self.visit(argument) for argument in node.args]
        keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
        if function in ("empty_strided_cpu", "empty_strided_cuda"):
            return self._allocation(arguments)
        if function == "reinterpret_tensor":
            return self._view(arguments)
        if function.startswith("extern_kernels."):
            library = function.removeprefix("extern_kernels.")
            if library not in _LIBRARY:
                raise CannotLift(f"the library function {library}")
            return ast.Call(_expression(f"torch.{library}"), arguments, keywords)
        if function.startswith("aten."):
            return ast.Call(_expression(f"torch.ops.{function}"), arguments, keywords)
        if tile := _TILES.fullmatch(function):
            return ast.Call(_expression(f"operators.{tile[1]}"), arguments, keywords)
        known = function.startswith("torch.ops.") and not function.startswith("torch.ops.inductor")
        if known or function in ("max", "min", "torch.device") or function in self._names:
            return ast.Call(node.func, arguments, keywords)
        if function.startswith(("cpp_", "triton_")):
            return ast.Call(node.func, arguments, keywords)
        raise CannotLift(f"the function {function}")

    def _allocation(self, arguments: list[ast.expr]) -> ast.expr:
        sizes, strides, dtype = (ast.unparse(argument) for argument in arguments)
        items = _items(arguments[0])
        if is_contiguous(items, _items(arguments[1])):
            like = (dtype.removeprefix("torch."), *(_canonical(item) for item in items))
            if items and like in self._likes:
                return _expression(f"torch.empty_like({self._likes[like]})")
        return _expression(f"torch.empty_strided({sizes}, {strides}, dtype={dtype}, device={self._device})")

    def _view(self, arguments: list[ast.expr]) -> ast.expr:
        """torch.as_strided counts from the start of the storage, inductor from where the tensor begins."""
        base, sizes, strides, offset = (ast.unparse(argument) for argument in arguments)
        if offset == "0":
            return _expression(f"torch.as_strided({base}, {sizes}, {strides})")
        start = offset if base in self._fresh else f"{base}.storage_offset() + {offset}"
        return _expression(f"torch.as_strided({base}, {sizes}, {strides}, {start})")


def _texts(step: Line | Launch) -> tuple[str, ...]:
    """The expressions that a step reads."""
    return step.arguments if isinstance(step, Launch) else (step.text.partition(" = ")[2] or step.text,)


def _renamed(step: Line | Launch, old: str, new: str) -> Line | Launch:
    def changed(text: str) -> str:
        return re.sub(rf"\b{old}\b", new, text)

    if isinstance(step, Launch):
        return replace(step, arguments=tuple(changed(text) for text in step.arguments))
    return Line(changed(step.text))


def without_unused_lines(lifted: Lifted) -> Lifted:
    """Without assignments of symbols and buffers that nothing reads any more."""
    steps = list(lifted.steps)
    while True:
        read = _names_in(lifted.returns)
        for step in steps:
            read |= {name for text in _texts(step) for name in _names_in(text)}
        kept = [step for step in steps if not _is_unused(step, read)]
        if len(kept) == len(steps):
            return replace(lifted, steps=tuple(steps))
        steps = kept


def _is_unused(step: Line | Launch, read: set[str]) -> bool:
    if isinstance(step, Launch):
        return False
    name, made, value = step.text.partition(" = ")
    pure = value.startswith(("torch.empty", "torch.as_strided")) or ".size(" in value or ".stride(" in value
    return bool(made) and name.isidentifier() and pure and name not in read


def _check_names(lifted: Lifted) -> None:
    """Every name that is read was made before: a constant of inductor's file would be missing."""
    known = set(_KNOWN_NAMES) | set(lifted.inputs) | set(lifted.state)
    for step in lifted.steps:
        if isinstance(step, Launch):
            for text in step.arguments:
                _require(_names_in(text), known)
            continue
        name, made, value = step.text.partition(" = ")
        is_made = bool(made) and name.isidentifier()
        _require(_names_in(value if is_made else step.text), known)
        if is_made:
            known.add(name)
    _require(_names_in(lifted.returns), known)


def _require(names: set[str], known: set[str]) -> None:
    if missing := sorted(names - known):
        raise CannotLift(f"inductor's constant {missing[0]}")


def _names_in(text: str) -> set[str]:
    tree = ast.parse(text, mode="eval")
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _items(value: ast.expr) -> list[str]:
    if not isinstance(value, ast.Tuple):
        raise _unknown(value)
    return [ast.unparse(item) for item in value.elts]


def _canonical(size: str) -> str:
    return ast.unparse(ast.parse(size, mode="eval"))


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _unknown(node: ast.AST) -> CannotLift:
    return CannotLift(f"a line that is not known: {ast.unparse(node)[:120]}")
