"""Runs a bare kernel by its launch directives: a shared library over ctypes, a cubin over the CUDA driver.

The directives become one Python code object whose line numbers are those of the candidate's source, so a
traceback points at the directive that failed. Arguments are checked against the kernel's C signature before
anything is called: a wrong pointer would end the process instead of naming the mistake.

Inputs and state are made contiguous before the directives see them; a kernel that wants to read strided
memory itself comes as a torch extension.

Not covered: gradients, kernels that keep state between calls, more than one device. A launch with an empty
grid is skipped, as torch does for empty tensors.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from assay.candidates.candidate import Candidate
from assay.candidates.launch import Invoke, compile_plan, parse_directives
from assay.candidates.signature import Parameter, parse_signature
from assay.records.errors import CandidateFailure, UserError
from assay.worker.cuda_driver import DriverError, check, declare_launch
from assay.worker.entry_types import Construction, StateReport, flat_name, named_state

_C_SCALARS: dict[str, Any] = {
    "bool": ctypes.c_bool,
    "int8": ctypes.c_int8,
    "uint8": ctypes.c_uint8,
    "int16": ctypes.c_int16,
    "uint16": ctypes.c_uint16,
    "int32": ctypes.c_int32,
    "uint32": ctypes.c_uint32,
    "int64": ctypes.c_int64,
    "uint64": ctypes.c_uint64,
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
}
_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8  # CUfunction_attribute


def _cdiv(a: int, b: int) -> int:
    return -(-a // b)


def _next_power_of_2(n: int) -> int:
    return 1 << max(int(n) - 1, 0).bit_length()


# __import__, because torch imports some of its parts from whatever frame needs them first.
_BUILTINS = {
    f.__name__: f for f in (__import__, abs, bool, float, int, len, list, max, min, range, round, sum, tuple)
}
_NAMES: dict[str, Any] = {
    "__builtins__": _BUILTINS,
    "torch": torch,
    "cdiv": _cdiv,
    "next_power_of_2": _next_power_of_2,
}


class BareEntry:
    """An Entry over launch directives."""

    def __init__(
        self,
        candidate: Candidate,
        built_path: str,
        argument_names: tuple[str, ...],
        folder: Path,
    ) -> None:
        self._plan = parse_directives(candidate.source, candidate.suffix)
        self._argument_names = argument_names
        self._values: dict[str, Any] = {}
        self._state: dict[str, torch.Tensor] = {}
        self._outputs: list[torch.Tensor] = []
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"candidate{candidate.suffix}"
        path.write_text(candidate.source, encoding="utf-8")  # tracebacks quote it
        is_cuda = candidate.suffix == ".cu"
        invokes = [step for step in self._plan.steps if isinstance(step, Invoke)]
        signatures = [parse_signature(candidate.source, step.kernel, is_cuda=is_cuda) for step in invokes]
        for step, parameters in zip(invokes, signatures, strict=True):
            _check_arity(step, parameters)
        backend = _Cubin(built_path) if is_cuda else _Library(built_path)
        self._backend: _Cubin | _Library = backend
        self._hooks: dict[str, Any] = {"__out": self._register_output}
        for index, (step, parameters) in enumerate(zip(invokes, signatures, strict=True)):
            self._hooks[f"__invoke_{index}"] = backend.bind(step.kernel, parameters, self._outputs)
        self._code = compile_plan(self._plan, str(path))

    def replace_kernels(self, stand_in: Callable[..., None]) -> None:
        """Every launch from now on goes to the stand-in."""
        self._hooks.update({name: stand_in for name in self._hooks if name.startswith("__invoke_")})

    def construct(self, how: Construction) -> None:
        """`init` becomes the list of constructor arguments; keyword arguments go by name."""
        torch.manual_seed(how.seed)
        self._backend.open()
        self._values = {**how.kwargs, "init": list(how.args)}

    def load_state(self, state: dict[str, torch.Tensor]) -> StateReport:
        """Every tensor gets its name with dots as underscores; loaded are those a directive names."""
        named = {name: flat_name(name) for name in state}
        used = self._plan.names_used()
        self._state = {named[name]: _contiguous(value) for name, value in state.items()}
        loaded = tuple(name for name in state if named[name] in used)
        return StateReport(loaded=loaded, unexpected=tuple(name for name in state if name not in loaded))

    def kept(self, names: list[str]) -> list[torch.Tensor]:
        return named_state(self._state, [flat_name(name) for name in names])

    def __call__(self, inputs: list[Any]) -> Any:
        # Later wins: an input may hide a state tensor, and directives may rebind anything.
        names = {**_NAMES, **self._hooks, **self._values, **self._state}
        given = [_contiguous(value) for value in inputs]
        names.update(zip(self._argument_names, given, strict=False))
        names["inputs"] = given
        self._outputs.clear()
        try:
            with torch.no_grad():
                exec(self._code, names)
        except NameError as error:
            known = [*self._argument_names[: len(inputs)], *self._state, *self._values]
            raise NameError(
                f"launch directive: {error}; known are {', '.join(known)}, torch, cdiv"
            ) from error
        finally:
            self._outputs.clear()
        return names["__result"]

    def _register_output(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"launch directive: `out` needs a tensor, not a {type(value).__name__}")
        if not value.is_contiguous():
            raise ValueError(
                "launch directive: an `out` tensor must be contiguous; use torch.empty(x.shape, ...)"
            )
        self._outputs.append(value)
        return value


def _contiguous(value: Any) -> Any:
    """Bare kernels see packed inputs: x.stride() is true of the pointer, torch.empty_like(x) is packed."""
    return value.detach().contiguous() if isinstance(value, torch.Tensor) else value


def _check_arity(step: Invoke, parameters: tuple[Parameter, ...]) -> None:
    if len(step.args) != len(parameters):
        wanted = ", ".join(p.describe() for p in parameters)
        message = f"line {step.line}: {step.kernel} takes {len(parameters)} arguments, {len(step.args)} given"
        raise CandidateFailure("build_failed", "arity", message, f"{step.kernel}({wanted})")


class _Pointer:
    """Checks one pointer argument. Messages are made on failure only: this is on the path that is timed."""

    def __init__(self, kernel: str, parameter: Parameter, device: str, outputs: list[torch.Tensor]) -> None:
        self._where = f"{kernel}({parameter.describe()})"
        self._device = device
        self._outputs = outputs
        self._wanted = parameter.dtypes
        # Older torch lacks some dtypes; those cannot arrive either.
        self._dtypes = frozenset(getattr(torch, name) for name in parameter.dtypes if hasattr(torch, name))

    def __call__(self, value: Any) -> torch.Tensor:
        """The tensor to hand over: the value itself, or a contiguous copy of what is no output."""
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{self._where}: a tensor is needed, not a {type(value).__name__}")
        if value.device.type != self._device:
            raise TypeError(
                f"{self._where}: the tensor is on {value.device}, the kernel runs on {self._device}"
            )
        if self._dtypes and value.dtype not in self._dtypes:
            found = str(value.dtype).removeprefix("torch.")
            raise TypeError(
                f"{self._where}: the tensor is {found}, the pointer wants {' or '.join(self._wanted)}"
            )
        if value.is_contiguous():
            return value
        # Writes into a copy would be lost without a word.
        storage = value.untyped_storage().data_ptr()
        if any(storage == output.untyped_storage().data_ptr() for output in self._outputs):
            raise ValueError(f"{self._where}: a non-contiguous view of an `out` tensor cannot be written")
        return value.contiguous()


class _Scalar:
    """Checks one number."""

    def __init__(self, kernel: str, parameter: Parameter) -> None:
        self._where = f"{kernel}({parameter.describe()})"
        self._is_float = parameter.scalar.startswith("float")
        bits = ctypes.sizeof(_C_SCALARS[parameter.scalar]) * 8
        if parameter.scalar == "bool":
            self._low, self._high = 0, 1
        elif parameter.scalar.startswith("u"):
            self._low, self._high = 0, 2**bits - 1
        else:
            self._low, self._high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1

    def __call__(self, value: Any) -> int | float:
        if not isinstance(value, int | float):
            raise TypeError(
                f"{self._where}: a number is needed, not a {type(value).__name__} (tensors: .item())"
            )
        if self._is_float:
            return float(value)
        if value % 1 != 0:  # also true of nan and inf
            raise TypeError(f"{self._where}: {value} is not a whole number")
        number = int(value)
        # ctypes would wrap it silently, and the kernel would run with another size.
        if not self._low <= number <= self._high:
            raise OverflowError(f"{self._where}: {number} does not fit; use long long")
        return number


def _checks(
    kernel: str, parameters: tuple[Parameter, ...], device: str, outputs: list[torch.Tensor]
) -> list[_Pointer | _Scalar]:
    return [_Pointer(kernel, p, device, outputs) if p.is_pointer else _Scalar(kernel, p) for p in parameters]


def _checked(checks: list[_Pointer | _Scalar], args: tuple[Any, ...]) -> list[Any]:
    """The arguments to pass; None for a pointer stays None, the null pointer."""
    return [
        None if value is None and isinstance(check, _Pointer) else check(value)
        for check, value in zip(checks, args, strict=True)
    ]


class _Library:
    """A shared library built from plain C++."""

    def __init__(self, path: str) -> None:
        try:
            self._library = ctypes.CDLL(path)
        except OSError as error:
            raise CandidateFailure(
                "build_failed", "load_failed", f"the library does not load: {error}"
            ) from error

    def open(self) -> None:
        """Nothing to do: it was opened when it was found."""

    def bind(
        self, name: str, parameters: tuple[Parameter, ...], outputs: list[torch.Tensor]
    ) -> Callable[..., None]:
        try:
            function = self._library[name]
        except AttributeError as error:
            raise CandidateFailure("build_failed", "no_kernel", f"the library exports no {name}") from error
        function.restype = None
        function.argtypes = [ctypes.c_void_p if p.is_pointer else _C_SCALARS[p.scalar] for p in parameters]
        checks = _checks(name, parameters, "cpu", outputs)

        def invoke(_grid: Any, _block: Any, _shared_bytes: Any, *args: Any) -> None:
            values = _checked(checks, args)  # holds copies until the call is over
            function(*(v.data_ptr() if isinstance(v, torch.Tensor) else v for v in values))

        return invoke


class _Cubin:
    """A cubin, loaded into torch's own context and launched on torch's current stream."""

    def __init__(self, path: str) -> None:
        self._image = Path(path).read_bytes()
        self._module = ctypes.c_void_p()
        self._kernels: list[_Kernel] = []
        try:
            self._cuda = ctypes.CDLL("libcuda.so.1")
            declare_launch(self._cuda)
        except OSError as error:
            raise UserError(
                "CUDA candidates need an NVIDIA driver (libcuda.so.1): use a machine with a GPU"
            ) from error

    def bind(
        self, name: str, parameters: tuple[Parameter, ...], outputs: list[torch.Tensor]
    ) -> Callable[..., None]:
        kernel = _Kernel(self._cuda, name, parameters, outputs)
        self._kernels.append(kernel)
        return kernel

    def open(self) -> None:
        """Loads the module once there is a context."""
        if self._module:
            return
        torch.cuda.synchronize()  # makes torch's context current in this thread
        try:
            check(self._cuda, "cuModuleLoadData", ctypes.byref(self._module), self._image)
            for kernel in self._kernels:
                kernel.find(self._module)
        except DriverError as error:
            raise CandidateFailure(
                "build_failed", "load_failed", f"the cubin does not load: {error}"
            ) from error


class _Kernel:
    """One kernel of a cubin with room for its arguments, reused from call to call: launching copies them."""

    def __init__(
        self, cuda: ctypes.CDLL, name: str, parameters: tuple[Parameter, ...], outputs: list[torch.Tensor]
    ) -> None:
        self._cuda = cuda
        self._name = name
        self._checks = _checks(name, parameters, "cuda", outputs)
        self._function = ctypes.c_void_p()
        self._slots = [ctypes.c_void_p() if p.is_pointer else _C_SCALARS[p.scalar]() for p in parameters]
        self._pointers = (ctypes.c_void_p * max(len(parameters), 1))(
            *(ctypes.addressof(s) for s in self._slots)
        )
        self._shared_bytes = 0

    def find(self, module: ctypes.c_void_p) -> None:
        check(self._cuda, "cuModuleGetFunction", ctypes.byref(self._function), module, self._name.encode())

    def __call__(self, grid: Any, block: Any, shared_bytes: Any, *args: Any) -> None:
        blocks, threads, shared = _three(grid), _three(block), int(shared_bytes)
        # Copies among the values are freed after the launch: torch's allocator reuses memory in stream order.
        values = _checked(self._checks, args)
        for slot, value in zip(self._slots, values, strict=True):
            slot.value = value.data_ptr() if isinstance(value, torch.Tensor) else value
        if 0 in blocks:
            return
        if shared > self._shared_bytes:
            # Above 48 KB (with static memory counted) the driver wants to be asked first.
            attribute = ctypes.c_int(_MAX_DYNAMIC_SHARED_SIZE_BYTES)
            check(self._cuda, "cuFuncSetAttribute", self._function, attribute, ctypes.c_int(shared))
            self._shared_bytes = shared
        stream = torch.cuda.current_stream().cuda_stream
        try:
            sizes = (*blocks, *threads, shared)
            check(self._cuda, "cuLaunchKernel", self._function, *sizes, stream, self._pointers, None)
        except DriverError as error:
            error.add_note(f"{self._name}<<<{blocks}, {threads}, {shared}>>>")
            raise


def _three(value: Any) -> tuple[int, int, int]:
    sizes = (value,) if isinstance(value, int | float) else tuple(value)
    if not 1 <= len(sizes) <= 3 or any(int(n) != n or n < 0 for n in sizes):
        raise ValueError(f"launch directive: {value!r} is not a grid or block: one to three whole numbers")
    padded = (*(int(n) for n in sizes), 1, 1)
    return padded[0], padded[1], padded[2]
