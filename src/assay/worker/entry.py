"""Loads a candidate inside the confined child and gives every form of it one shape: construct, state, call.

    ModelNew       a module class: constructed like the specification, state loaded by name
    custom_kernel  a function of one data argument (KernelBot)
    forward        a function of the inputs; state by keyword where its parameters are named so
    launch         a bare kernel with directives (`bare.py`)
    extension      a compiled module with `forward(inputs..., state...)`

Whatever candidate code raises while it is imported or constructed becomes CandidateFailure("build_failed");
what it raises when called propagates. Only the child imports this.

Not covered: confinement, time limits, and judging what the calls return.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from types import MappingProxyType, ModuleType, TracebackType
from typing import Any

import torch

from assay.build.diagnosis import diagnose_exception
from assay.build.keys import EXTENSION_NAME
from assay.candidates.candidate import Candidate
from assay.records.errors import CandidateFailure, JudgeFault
from assay.worker.bare import BareEntry
from assay.worker.entry_types import Construction, Entry, StateReport, flat_name, named_state

MODULE_NAME = "candidate"
"""Neutral: neither the judge's name nor the problem's is told to the code."""


def load_entry(
    candidate: Candidate,
    built_path: str | None,
    argument_names: tuple[str, ...],
    support_files: Mapping[str, str],
    folder: Path,
) -> Entry:
    """Imports or opens the candidate; `folder` is its own and stays for as long as it is used."""
    if candidate.entry in ("launch", "extension") and built_path is None:
        raise JudgeFault(f"{candidate.name} has to be built before it is loaded")
    if candidate.entry == "launch":
        return BareEntry(candidate, str(built_path), argument_names, folder)
    if candidate.entry == "extension":
        return ExtensionEntry(_import_extension(candidate, str(built_path)))
    module = _import_source(candidate, support_files, folder)
    target = getattr(module, candidate.entry, None)
    if target is None:
        message = f"the source defines no {candidate.entry} once it is imported"
        raise CandidateFailure("build_failed", "no_entry", message)
    if candidate.entry == "ModelNew":
        return ModuleEntry(target, candidate.source)
    if not callable(target):
        raise CandidateFailure("build_failed", "no_entry", f"{candidate.entry} is not callable")
    return DataEntry(target) if candidate.entry == "custom_kernel" else FunctionEntry(target)


class CandidateCode:
    """Marks a stretch in which only candidate code runs: whatever it raises is the candidate's failure.

    SystemExit counts too (a candidate may call exit()), and so do our own error classes: candidate code can
    raise them, and must not thereby choose its verdict. KeyboardInterrupt is ours.
    """

    def __init__(self, code: str, source: str) -> None:
        self.code = code
        self.source = source

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, KeyboardInterrupt | GeneratorExit):
            return
        found = diagnose_exception(error, self.source)
        raise CandidateFailure("build_failed", self.code, found.summary, found.render()) from error


class ModuleEntry:
    """`class ModelNew(torch.nn.Module)`."""

    def __init__(self, model_class: Any, source: str) -> None:
        self._class = model_class
        self._source = source
        self._module: torch.nn.Module | None = None
        if not (isinstance(model_class, type) and issubclass(model_class, torch.nn.Module)):
            message = "ModelNew is not a torch.nn.Module class: derive it from torch.nn.Module"
            raise CandidateFailure("build_failed", "not_a_module", message)

    def construct(self, how: Construction) -> None:
        """Seed, construct on the CPU as the specification is, then move: one seed draws the same weights."""
        if how.mode not in ("constructed", "train", "eval"):
            raise JudgeFault(f"unknown module mode {how.mode!r}")
        torch.manual_seed(how.seed)
        with CandidateCode("construct_failed", self._source):
            module = self._class(*how.args, **how.kwargs)
            module = module.to(how.device)
            if how.dtype is not None:
                module = module.to(how.dtype)
            if how.mode != "constructed":
                module = module.train(how.mode == "train")
        if not isinstance(module, torch.nn.Module):
            message = f"constructing ModelNew gave a {type(module).__name__}, not a torch.nn.Module"
            raise CandidateFailure("build_failed", "not_a_module", message)
        self._module = module

    def load_state(self, state: dict[str, torch.Tensor]) -> StateReport:
        """By name, through load_state_dict: the module's load hooks run and tensor versions change."""
        own = self._state()
        mismatched = {
            name: (tuple(own[name].shape), tuple(value.shape))
            for name, value in state.items()
            if name in own and own[name].shape != value.shape
        }
        fitting = {name: v for name, v in state.items() if name in own and name not in mismatched}
        with CandidateCode("load_state_failed", self._source), torch.no_grad():
            self._required().load_state_dict(fitting, strict=False)
        return StateReport(
            loaded=tuple(fitting),
            missing=tuple(name for name in own if name not in state),
            unexpected=tuple(name for name in state if name not in own),
            mismatched=mismatched,
        )

    def kept(self, names: list[str]) -> list[torch.Tensor]:
        return named_state(self._state(), names)

    def __call__(self, inputs: list[Any]) -> Any:
        return self._required()(*inputs)

    def _required(self) -> torch.nn.Module:
        if self._module is None:
            raise JudgeFault("construct() comes before state and calls")
        return self._module

    def _state(self) -> dict[str, torch.Tensor]:
        with CandidateCode("state_dict_failed", self._source):
            state = self._required().state_dict()
        return {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}


class _Stateless:
    """What functions have in common: no construction, no state but what they are called with."""

    _state: Mapping[str, torch.Tensor] = MappingProxyType({})

    def kept(self, names: list[str]) -> list[torch.Tensor]:
        return named_state(self._state, [flat_name(name) for name in names])

    def construct(self, how: Construction) -> None:
        """Constructor arguments mean nothing to a function; the seed is set all the same."""
        torch.manual_seed(how.seed)


class DataEntry(_Stateless):
    """`custom_kernel(data)`: one argument, whatever the task puts into it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def load_state(self, state: dict[str, torch.Tensor]) -> StateReport:
        return StateReport(unexpected=tuple(state))

    def __call__(self, inputs: list[Any]) -> Any:
        # A problem with several positional inputs hands them over as the tuple KernelBot tasks use.
        return self._function(inputs[0] if len(inputs) == 1 else tuple(inputs))


class FunctionEntry(_Stateless):
    """`forward(x, ..., weight=...)`: state by keyword, for the parameters that are named like it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        try:
            parameters = inspect.signature(function).parameters
        except (TypeError, ValueError):  # compiled callables may hide their signature
            parameters = {}
        kinds = [p.kind for p in parameters.values()]
        self._takes_any = inspect.Parameter.VAR_KEYWORD in kinds
        by_keyword = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        self._accepted = [name for name, p in parameters.items() if p.kind in by_keyword]
        self._positional = [
            name for name, p in parameters.items() if p.kind is not inspect.Parameter.KEYWORD_ONLY
        ]

    def load_state(self, state: dict[str, torch.Tensor]) -> StateReport:
        named = {name: flat_name(name) for name in state}
        taken = [name for name, flat in named.items() if self._takes_any or flat in self._accepted]
        self._state = {named[name]: state[name] for name in taken}
        return StateReport(loaded=tuple(taken), unexpected=tuple(name for name in state if name not in taken))

    def __call__(self, inputs: list[Any]) -> Any:
        filled = self._positional[: len(inputs)]
        return self._function(*inputs, **{k: v for k, v in self._state.items() if k not in filled})


class ExtensionEntry(_Stateless):
    """`forward` of a compiled torch extension.

    pybind11 writes a function's parameters into its docstring. If those after the inputs are named like state
    (py::arg("weight")), state goes by keyword; otherwise as many state tensors as are still required follow
    the inputs in the specification's order.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._parameters = _pybind_parameters(function.__doc__ or "")

    def load_state(self, state: dict[str, torch.Tensor]) -> StateReport:
        self._state = {flat_name(name): value for name, value in state.items()}
        return StateReport(loaded=tuple(state))

    def __call__(self, inputs: list[Any]) -> Any:
        if self._parameters is None:
            return self._function(*inputs, *self._state.values())
        rest = self._parameters[len(inputs) :]
        required = [name for name, has_default in rest if not has_default]
        if all(name in self._state for name in required):
            return self._function(*inputs, **{n: self._state[n] for n, _ in rest if n in self._state})
        return self._function(*inputs, *list(self._state.values())[: len(required)])


def _pybind_parameters(docstring: str) -> list[tuple[str, bool]] | None:
    """(name, has a default) for each parameter; None where the docstring does not say (overloads)."""
    first = docstring.strip().split("\n", 1)[0]
    match = re.match(r"forward\((.*)\) -> ", first)
    if match is None or "*args" in first:
        return None
    pieces = re.findall(r"(\w+): ((?:[^,\[\]()]|\[[^\]]*\]|\([^)]*\))*)", match[1])
    return [(name, "=" in rest) for name, rest in pieces]


def _import_source(candidate: Candidate, support_files: Mapping[str, str], folder: Path) -> ModuleType:
    folder.mkdir(parents=True, exist_ok=True)
    _write_support(support_files, folder)
    # A real file, because triton.jit reads its own source through inspect.
    path = folder / f"{MODULE_NAME}.py"
    path.write_text(candidate.source, encoding="utf-8")
    sys.path.insert(0, str(folder))
    # Bytecode is matched by time and size only: a rewrite within one second could load the old code.
    sys.dont_write_bytecode = True
    # load_inline in the source: a folder of its own, since torch's lock file outlives a killed builder.
    os.environ["TORCH_EXTENSIONS_DIR"] = str(folder / "extensions")
    importlib.invalidate_caches()
    spec = importlib.util.spec_from_file_location(MODULE_NAME, path)
    if spec is None or spec.loader is None:
        raise JudgeFault(f"no loader for {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE_NAME] = module
    with CandidateCode("import_failed", candidate.source):
        spec.loader.exec_module(module)
    return module


def _write_support(support_files: Mapping[str, str], folder: Path) -> None:
    for name, text in support_files.items():
        place = PurePosixPath(name)
        if place.is_absolute() or ".." in place.parts or name == f"{MODULE_NAME}.py":
            raise JudgeFault(f"support file {name!r} has no place beside the candidate")
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        # The child was forked from a process that may have imported another module called utils.
        sys.modules.pop(".".join(place.with_suffix("").parts), None)


def _import_extension(candidate: Candidate, built_path: str) -> Callable[..., Any]:
    loader = importlib.machinery.ExtensionFileLoader(EXTENSION_NAME, built_path)
    spec = importlib.util.spec_from_file_location(EXTENSION_NAME, built_path, loader=loader)
    if spec is None:
        raise JudgeFault(f"no loader for {built_path}")
    with CandidateCode("import_failed", candidate.source):
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    function = getattr(module, "forward", None)
    if not callable(function):
        message = 'the extension binds no forward: m.def("forward", &forward)'
        raise CandidateFailure("build_failed", "no_entry", message)
    return function
