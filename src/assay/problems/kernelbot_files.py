"""The Python files of a KernelBot task, importable by each other while they run and invisible afterwards.

Task files import one another by bare names (`from task import input_t`, `from utils import ...`). Those names
are common, so they are visible only inside `visible()`. Problem code is trusted.

Not covered: packages (files in subfolders), and imports that outlive the block in a thread of the task.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from assay.problems.devices import CPU, seeded
from assay.problems.source import PROBLEM_CODE_ERRORS, explain
from assay.records.errors import UserError


@dataclass(frozen=True, slots=True)
class TaskFile:
    """One file of a task: where it came from and what it says."""

    path: str
    text: str


class TaskModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the task's own files, and keeps their modules between calls."""

    def __init__(self, files: Mapping[str, TaskFile]) -> None:
        self._files = {name.removesuffix(".py"): file for name, file in files.items() if name.endswith(".py")}
        self._loaded: dict[str, types.ModuleType] = {}

    def module(self, name: str) -> types.ModuleType:
        """The executed module, or a UserError about the file that failed."""
        with self.visible(), seeded(0, CPU), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return importlib.import_module(name)
            except SyntaxError as error:
                line = f"{error.filename}:{error.lineno}: syntax error ({error.msg})"
                raise UserError(f"{line}: fix the task file") from error
            except PROBLEM_CODE_ERRORS as error:
                raise UserError(explain(self._files[name].path, "importing the task", error)) from error

    @contextmanager
    def visible(self) -> Iterator[None]:
        """The task's modules answer to their bare names inside the block, whatever had those names before."""
        hidden = {name: sys.modules.pop(name) for name in self._files if name in sys.modules}
        sys.modules.update(self._loaded)
        sys.meta_path.insert(0, self)
        try:
            yield
        finally:
            sys.meta_path.remove(self)
            for name in self._files:
                module = sys.modules.pop(name, None)
                if module is not None:
                    self._loaded[name] = module
            sys.modules.update(hidden)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Answer for the task's own names only."""
        if fullname not in self._files:
            return None
        origin = self._files[fullname].path
        return importlib.util.spec_from_file_location(fullname, origin, loader=self)

    def exec_module(self, module: types.ModuleType) -> None:
        """Run the text that was read at load time, not what lies on disk by now."""
        file = self._files[module.__name__]
        exec(compile(file.text, file.path, "exec"), module.__dict__)
