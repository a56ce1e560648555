"""KernelBench's way to one verdict, reconstructed from its published parameters, to measure what it costs.

    python benchmarks/kernelbench_path.py PROBLEM CANDIDATE [--device cuda] [--json]

One fresh process per verdict: import torch, import the candidate from a temporary module (load_inline runs
nvcc in an empty build folder), make the inputs on the CPU and move them, five trials against the reference
with allclose, then a hundred timed calls of the candidate and of the eager reference. The process is started
and timed by this one, so `wall_s` holds the interpreter's own start.

None of KernelBench's code is used. Not covered: its batch mode, its static checks, casting integer inputs to
the working precision (cross-entropy would only raise), and its cheats: this path believes the candidate.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

SEED = 42
CORRECTNESS_TRIALS = 5
WARM_UPS = 3
TIMED_TRIALS = 100
FLUSH_BYTES = 256 << 20
TOLERANCE = {4: 1e-4, 2: 1e-2}
"""By bytes of an element: atol and rtol alike."""
PHASES = ("import", "build", "inputs", "correctness", "timing")


class Stopwatch:
    """Adds up the seconds of named phases."""

    def __init__(self, device: str) -> None:
        self._device = device
        self.seconds = dict.fromkeys(PHASES, 0.0)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start = time.monotonic()
        yield
        synchronise(self._device)  # or the next phase would pay for this one's work
        self.seconds[name] += time.monotonic() - start


def run_path(problem: Path, candidate: Path, device: str, timeout_s: float = 600.0) -> dict[str, Any]:
    """One verdict in a fresh process: status, time_ms, phases_s and wall_s. Failures are a status as well."""
    with tempfile.TemporaryDirectory(prefix="path-") as folder:
        environment = {
            **os.environ,
            "TORCH_EXTENSIONS_DIR": f"{folder}/extensions",
            "TRITON_CACHE_DIR": f"{folder}/triton",
            # load_inline calls ninja by name; in a virtual environment it lies beside the interpreter.
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath))),
        }
        if device == "cpu":
            environment["TRITON_INTERPRET"] = "1"
        inside = [sys.executable, __file__, str(problem), str(candidate), "--device", device]
        start = time.monotonic()
        # Its own session: nvcc's processes must end with it when the time is up.
        process = subprocess.Popen(
            [*inside, "--inside", folder, "--started", str(start)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            printed, complaints = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return {"status": "timed_out", "wall_s": round(time.monotonic() - start, 3)}
        wall_s = round(time.monotonic() - start, 3)
    if process.returncode != 0:
        last = (complaints.strip().splitlines() or [f"exit status {process.returncode}"])[-1]
        return {"status": "failed", "error": last, "wall_s": wall_s}
    return {**json.loads(printed.splitlines()[-1]), "wall_s": wall_s}


def evaluate(problem: Path, candidate: Path, device: str, folder: Path, started: float) -> dict[str, Any]:
    """The verdict itself; runs in the fresh process."""
    watch = Stopwatch(device)
    import torch

    if device != "cpu":
        torch.cuda.set_device(device)
    watch.seconds["import"] = time.monotonic() - started
    with watch.phase("build"):
        given = load_module(problem, "reference", folder)
        torch.manual_seed(SEED)
        arguments = given.get_init_inputs()
        torch.manual_seed(SEED)
        reference = given.Model(*arguments).to(device)
        loaded = load_module(candidate, "candidate", folder)
        torch.manual_seed(SEED)
        contestant = make_contestant(loaded, arguments, reference, device)
    torch.manual_seed(SEED)
    seeds = [int(torch.randint(0, 2**31 - 1, (1,))) for _ in range(CORRECTNESS_TRIALS)]
    right = 0
    for seed in seeds:
        inputs = make_inputs(given, seed, device, watch)
        with watch.phase("correctness"), torch.no_grad():
            expected, got = reference(*inputs), contestant(*inputs)
            right += agrees(got, expected)
        del inputs, expected, got
    outcome: dict[str, Any] = {"status": "passed" if right == CORRECTNESS_TRIALS else "wrong"}
    if outcome["status"] == "passed":
        for name, function in (("time_ms", contestant), ("reference_ms", reference)):
            inputs = make_inputs(given, SEED, device, watch)
            with watch.phase("timing"):
                outcome[name] = round(time_calls(function, inputs, device), 3)
            del inputs
    outcome["phases_s"] = {name: round(value, 3) for name, value in watch.seconds.items()}
    return outcome


def load_module(source: Path, name: str, folder: Path) -> ModuleType:
    """The source written to a module of its own and imported: Triton reads its kernels back from the file."""
    path = folder / f"{name}.py"
    path.write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{source} is no Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def make_contestant(
    module: ModuleType, arguments: list[Any], reference: torch.nn.Module, device: str
) -> Callable[..., Any]:
    """`ModelNew`; or a plain forward(), which gets the reference's weights by name."""
    if hasattr(module, "ModelNew"):
        contestant: torch.nn.Module = module.ModelNew(*arguments).to(device)
        return contestant
    function: Callable[..., Any] = module.forward
    wanted = inspect.signature(function).parameters
    state = {name.replace(".", "_"): value for name, value in reference.state_dict().items()}
    known = {name: value for name, value in state.items() if name in wanted}
    return lambda *inputs: function(*inputs, **known)


def make_inputs(given: ModuleType, seed: int, device: str, watch: Stopwatch) -> list[Any]:
    """Made on the CPU, then moved: this is what most of the time goes into where inputs are large."""
    import torch

    with watch.phase("inputs"):
        torch.manual_seed(seed)
        return [x.to(device) if isinstance(x, torch.Tensor) else x for x in given.get_inputs()]


def agrees(got: Any, expected: Any) -> bool:
    """allclose at the fixed tolerance of the expected dtype, for one tensor or several."""
    import torch

    if isinstance(expected, (tuple, list)):
        same_count = isinstance(got, (tuple, list)) and len(got) == len(expected)
        return same_count and all(map(agrees, got, expected))
    if got.shape != expected.shape:
        return False
    tolerance = TOLERANCE[min(expected.element_size(), 4)]
    return torch.allclose(got, expected, atol=tolerance, rtol=tolerance)


def time_calls(function: Callable[..., Any], inputs: list[Any], device: str) -> float:
    """Mean milliseconds of a call on the same tensors; on a GPU by events, each after a fill of the L2."""
    import torch

    for _ in range(WARM_UPS):
        function(*inputs)
    synchronise(device)
    times_ms = []
    if device == "cpu":
        for _ in range(TIMED_TRIALS):
            start = time.perf_counter()
            function(*inputs)
            times_ms.append((time.perf_counter() - start) * 1e3)
        return sum(times_ms) / len(times_ms)
    flush = torch.empty(FLUSH_BYTES // 8, dtype=torch.int64, device=device)
    for _ in range(TIMED_TRIALS):
        flush.fill_(SEED)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        function(*inputs)
        end.record()
        torch.cuda.synchronize()
        times_ms.append(begin.elapsed_time(end))
    return sum(times_ms) / len(times_ms)


def synchronise(device: str) -> None:
    if device != "cpu":
        import torch

        torch.cuda.synchronize()


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("problem", type=Path)
    parser.add_argument("candidate", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", action="store_true", help="one JSON line instead of a table")
    parser.add_argument("--timeout", type=float, default=600.0, metavar="SECONDS")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--started", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.candidate.suffix != ".py":
        parser.error("a .py file is needed: write CUDA with load_inline, as cases/layernorm_inline.py does")
    if options.inside:
        paths = (options.problem, options.candidate, options.device, options.inside)
        print(json.dumps(evaluate(*paths, options.started)))
        return 0
    result = run_path(options.problem, options.candidate, options.device, options.timeout)
    if options.json:
        print(json.dumps(result))
    else:
        print(*(f"{name:16}{value}" for name, value in result.items()), sep="\n")
    return 0 if result["status"] == "passed" else 1


if __name__ == "__main__":
    sys.exit(main())
