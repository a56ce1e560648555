"""KernelBot (GPU MODE) tasks: a folder with task.yml, read unchanged from a user's checkout.

Case values stay typed: a boolean is a boolean here, where KernelBot's own runner turns it into a truthy word.
`spec_text` gives the text that runner would show.

Not covered: CUDA (`lang: cu`) and multi-GPU tasks, the task's own eval.py (Assay times and checks itself),
and its time limits beyond reading them. References may write into tensors of `data`, as these tasks allow.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from assay.problems.devices import CPU, on_device, seeded
from assay.problems.kernelbot_files import TaskFile, TaskModules
from assay.problems.nests import map_tensors, tensors_in
from assay.problems.problem import Case, Cost, Precision, Specification
from assay.problems.source import PROBLEM_CODE_ERRORS, explain, read_text
from assay.records.about import About
from assay.records.errors import UserError
from assay.records.rules import Rules

SUBMISSION = "@SUBMISSION@"
RANKINGS = ("last", "mean", "geom")
_REQUIRED = ("files", "lang", "tests", "benchmarks")
_TIMEOUTS = ("test_timeout", "benchmark_timeout", "ranked_timeout")
_OPTIONAL = ("description", "config", "templates", "ranking_by", "seed", "multi_gpu", "gpus", "libraries")
_KEYS = (*_REQUIRED, *_TIMEOUTS, *_OPTIONAL)
_DEFAULT_TIMEOUT_S = 180
# KernelBot draws its secret seed below this; the pairing below squares it, and torch takes 64 bits.
_SEED_LIMIT = 2**31


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """What task.yml says beside files and cases."""

    description: str
    ranking_by: str
    timeouts_s: Mapping[str, int]
    templates: Mapping[str, str]
    gpus: tuple[str, ...]


class KernelBotProblem:
    """One task folder."""

    kind = "kernelbot"
    entry = "custom_kernel"
    argument_names: tuple[str, ...] = ("data",)

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        self.path = str(folder)
        self.precision = Precision()
        self.rules = Rules()
        self.about = About()
        where = folder / "task.yml"
        text = read_text(where)
        task = _read_task(text, str(where))
        self.settings = _settings(task, str(where))
        main = _config_main(task.get("config"), str(where))
        files = dict(_read_files(task["files"], folder, str(where)))
        if "reference.py" not in files:
            raise UserError(f"{where}: lists no reference.py: add it, with generate_input and ref_kernel")
        self.digest = _digest(text, files)
        self.files: Mapping[str, str] = {
            str(where.resolve()): text,
            **{file.path: file.text for file in files.values()},
        }
        self.support_files: Mapping[str, str] = {
            name: file.text for name, file in files.items() if name not in (main, "reference.py")
        }
        self._reference_text = files["reference.py"].text
        self._modules = TaskModules({name: file for name, file in files.items() if name != main})
        self._tests = _cases(task["tests"], "test", str(where))
        self._benchmarks = _cases(task["benchmarks"], "benchmark", str(where))
        if not (self._tests or self._benchmarks):
            raise UserError(f"{where}: has no tests and no benchmarks: add at least one case")

    def nominal(self) -> Case:
        """The last benchmark; the last test where there is none."""
        return (*self._tests, *self._benchmarks)[-1]

    def declared_cases(self) -> tuple[Case, ...]:
        """The nominal case, then all tests, then the other benchmarks."""
        nominal = self.nominal()
        return (nominal, *(case for case in (*self._tests, *self._benchmarks) if case is not nominal))

    def ranked_cases(self) -> tuple[Case, ...]:
        """The benchmarks that count for the score: the last alone, or all for mean and geom."""
        return self._benchmarks[-1:] if self.settings.ranking_by == "last" else self._benchmarks

    def derived_cases(self, seed: int) -> tuple[Case, ...]:
        """None: only the task knows which arguments its generator accepts."""
        return ()

    def specification(self) -> Specification:
        """reference.py, with everything it may import beside it."""
        return Specification(self._reference_text, self.support_files)

    def bind(self, case: Case) -> KernelBotInstance:
        """A case whose dtype, distribution and mode the task would ignore is refused."""
        if case.dtype is not None or case.distribution != "nominal" or case.mode != "constructed":
            raise UserError(
                f"{self.path}: case '{case.name}' sets a dtype, distribution or mode: "
                "a KernelBot task makes its own inputs, use its arguments alone"
            )
        return KernelBotInstance(self._modules, case, self.path)


class KernelBotInstance:
    """A task bound to the arguments of one case."""

    def __init__(self, modules: TaskModules, case: Case, path: str) -> None:
        self.case = case
        self.init_args: list[Any] = []
        self.init_kwargs: dict[str, Any] = {}
        self._modules = modules
        self._path = path
        reference = modules.module("reference")
        for name in ("generate_input", "ref_kernel", "check_implementation"):
            if not callable(getattr(reference, name, None)):
                raise UserError(f"{path}: reference.py defines no {name}: add it")
        self._reference = reference

    def build_reference(self, seed: int, device: torch.device) -> torch.nn.Module:
        """A module whose forward(data) is the task's ref_kernel."""
        return _ReferenceKernel(self, seed, device)

    def make_inputs(self, seed: int, device: torch.device) -> list[Any]:
        """[data], made by generate_input with the case's seed and the judge's paired."""
        arguments = dict(self.case.sizes)
        drawn_from = seed
        if "seed" in arguments:
            drawn_from = arguments["seed"] = paired_seed(int(arguments["seed"]), seed)
        with seeded(drawn_from, device), self.running("generate_input", device, redirect=True):
            data = self._reference.generate_input(**arguments)
        return [map_tensors(data, lambda tensor: tensor.to(device))]

    def task_check(self) -> Callable[[list[Any], Any], str | None] | None:
        """The task's check_implementation; it may run ref_kernel itself, on the inputs' device."""

        def check(inputs: list[Any], outputs: Any) -> str | None:
            tensor = next(tensors_in(inputs), None)
            device = CPU if tensor is None else tensor.device
            with self.running("check_implementation", device, redirect=device.type != "cuda"):
                # The task may run its reference on them, which may write into them.
                data = map_tensors(inputs[0], torch.clone)
                return _complaint(self._reference.check_implementation(data, outputs), self._path)

        return check

    def cost(self) -> Cost | None:
        """Tasks do not state one."""
        return None

    def reference_output(self, data: Any, device: torch.device) -> Any:
        """ref_kernel(data)."""
        with self.running("ref_kernel", device, redirect=device.type != "cuda"):
            return self._reference.ref_kernel(data)

    @contextmanager
    def running(self, doing: str, device: torch.device, redirect: bool) -> Iterator[None]:
        """Task code sees its own modules and the wanted device; what it raises becomes one line."""
        try:
            with self._modules.visible(), on_device(device) if redirect else nullcontext():
                yield
        except torch.OutOfMemoryError:
            raise
        except PROBLEM_CODE_ERRORS as error:
            raise UserError(explain(self._path, doing, error)) from error


class _ReferenceKernel(torch.nn.Module):
    def __init__(self, instance: KernelBotInstance, seed: int, device: torch.device) -> None:
        super().__init__()
        self._instance = instance
        self._seed = seed
        self._device = device

    def forward(self, data: Any) -> Any:
        """Seeded, since a task may draw inside its reference."""
        with seeded(self._seed, self._device):
            return self._instance.reference_output(data, self._device)


def paired_seed(case_seed: int, judge_seed: int) -> int:
    """KernelBot's pairing of a public case seed with a secret one."""
    total = case_seed + judge_seed % _SEED_LIMIT
    return case_seed + total * (total + 1) // 2


def spec_text(case: Case) -> str:
    """The case as KernelBot's runner writes it."""
    return "; ".join(
        f"{key}: {list(value) if isinstance(value, tuple) else value}" for key, value in case.sizes.items()
    )


def _complaint(result: Any, path: str) -> str | None:
    """What check_implementation says is wrong, or None."""
    if isinstance(result, str):
        return result or None
    if isinstance(result, tuple) and len(result) == 2:
        good, message = result
        return None if good else str(message) or "the task's check failed without saying why"
    kind = type(result).__name__
    raise UserError(f"{path}: check_implementation must return (bool, str) or a str, not {kind}")


def _read_task(text: str, where: str) -> dict[str, Any]:
    try:
        import yaml
    except ImportError:
        raise UserError("KernelBot tasks are YAML: install it with `python -m pip install pyyaml`") from None
    try:
        task = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UserError(f"{where}: is no valid YAML ({str(error).splitlines()[0]}): fix the file") from error
    if not isinstance(task, dict):
        raise UserError(f"{where}: must be a mapping with the keys {', '.join(_REQUIRED)}")
    for key in task:
        if key not in _KEYS:
            raise UserError(f"{where}: unknown key '{key}': use {', '.join(_KEYS)}")
    for key in _REQUIRED:
        if key not in task:
            raise UserError(f"{where}: the key '{key}' is missing: add it")
    if task["lang"] != "py":
        raise UserError(
            f"{where}: lang '{task['lang']}' is not supported yet (its eval program links the submission "
            "into the timer's own process): use a task with lang py"
        )
    if task.get("multi_gpu"):
        raise UserError(f"{where}: multi_gpu tasks are not supported: pick a task for one GPU")
    return task


def _settings(task: Mapping[str, Any], where: str) -> TaskSettings:
    ranking_by = task.get("ranking_by", "last")
    if ranking_by not in RANKINGS:
        raise UserError(f"{where}: ranking_by is '{ranking_by}': use one of {', '.join(RANKINGS)}")
    timeouts_s = {key: task.get(key, _DEFAULT_TIMEOUT_S) for key in _TIMEOUTS}
    for key, value in timeouts_s.items():
        if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
            raise UserError(f"{where}: {key} is {value!r}: give whole seconds above 0")
    return TaskSettings(
        description=str(task.get("description", "")),
        ranking_by=ranking_by,
        timeouts_s=timeouts_s,
        templates=dict(task.get("templates") or {}),
        gpus=tuple(task.get("gpus") or ()),
    )


def _config_main(config: Any, where: str) -> str:
    if config is None:
        return "eval.py"
    if not isinstance(config, dict) or set(config) - {"main"}:
        raise UserError(f"{where}: config of a py task takes the key main alone")
    return str(config.get("main", "eval.py"))


def _read_files(listed: Any, folder: Path, where: str) -> Iterator[tuple[str, TaskFile]]:
    """Every listed file but the submission; sources may climb out of the folder."""
    if not isinstance(listed, list):
        raise UserError(f"{where}: files must be a list of name and source")
    for entry in listed:
        if not isinstance(entry, dict) or set(entry) != {"name", "source"}:
            raise UserError(f"{where}: every entry of files needs exactly a name and a source")
        if entry["source"] != SUBMISSION:
            path = (folder / str(entry["source"])).resolve()
            yield str(entry["name"]), TaskFile(str(path), read_text(path))


def _cases(listed: Any, kind: str, where: str) -> tuple[Case, ...]:
    found: list[Case] = []
    for number, entry in enumerate(listed or []):
        if not isinstance(entry, dict):
            raise UserError(f"{where}: {kind} {number} must be a mapping of argument names to values")
        # KernelBot's parsers hand lists over as tuples.
        sizes = {str(key): tuple(v) if isinstance(v, list) else v for key, v in entry.items()}
        found.append(Case(name=f"{kind}-{number}", sizes=sizes))
    return tuple(found)


def _digest(text: str, files: Mapping[str, TaskFile]) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(files):
        digest.update(f"\0{name}\0{files[name].text}".encode())
    return digest.hexdigest()
