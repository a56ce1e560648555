"""The baseline ladder as ordinary candidates: the specification with a few lines around it.

Each rung is source text that defines what candidates define, so it runs in the same child, through the same
entry, on the same bytes. State has the specification's own names, since ModelNew derives from Model.

    eager                        as written, cuDNN free to choose its algorithm
    compile                      torch.compile, default mode
    max-autotune-no-cudagraphs   torch.compile, templates and tuning
    max-autotune                 the same replayed from CUDA graphs
    aot-inductor                 exported and compiled ahead of time

Not covered: other compilers, and hand-written libraries a problem might name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assay.candidates import Candidate, candidate_from_source
from assay.problems import Problem

COMPILE_MODES: Mapping[str, str] = {
    "compile": "default",
    "max-autotune-no-cudagraphs": "max-autotune-no-cudagraphs",
    "max-autotune": "max-autotune",
}
NAMES = ("eager", *COMPILE_MODES, "aot-inductor")
QUICK_NAMES = ("eager", "compile")
"""For CPUs, where the other rungs compile for minutes and tune next to nothing."""

# Inductor settled on a folder for precompiled headers when it was imported, as another user.
_OWN_FOLDERS = """
import torch._inductor.config
for _owner in (torch._inductor.config, torch._inductor.config.aot_inductor):
    for _name in ("precompile_headers", "cpp_cache_precompile_headers"):
        if hasattr(_owner, _name):
            setattr(_owner, _name, False)
"""
_EAGER_MODEL = """
torch.backends.cudnn.benchmark = True

class ModelNew(Model):
    pass
"""
_COMPILED_MODEL = """
class ModelNew(Model):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.forward = torch.compile(super().forward, mode={mode!r}, dynamic=False)
"""
_AOT_MODEL = '''
import os

_LIBRARY = os.path.join(os.environ["TORCHINDUCTOR_CACHE_DIR"], "rung")

class _Functional(torch.nn.Module):
    """Weights as inputs, so that one compiled library serves every state."""

    def __init__(self, call):
        super().__init__()
        self.call = call

    def forward(self, state, inputs):
        return self.call(state, inputs)

class ModelNew(Model):
    """Compiled at the first call; later processes find the library."""

    def forward(self, *inputs):
        state = {**dict(self.named_parameters()), **dict(self.named_buffers())}
        compiled = self.__dict__.get("_compiled")
        if compiled is None:
            compiled = self.__dict__["_compiled"] = self._open(state, inputs)
        return compiled(state, inputs)

    def _open(self, state, inputs):
        if not os.path.exists(_LIBRARY):
            self.forward = super().forward
            try:
                call = lambda state, inputs: torch.func.functional_call(self, state, inputs)
                program = torch.export.export(_Functional(call), (state, inputs))
            finally:
                del self.forward
            options = {"aot_inductor.compile_wrapper_opt_level": "O0"}
            path = torch._inductor.aot_compile(program.module(), (state, inputs), options=options)
            with open(_LIBRARY, "w") as file:
                file.write(path)
        with open(_LIBRARY) as file:
            return torch._export.aot_load(file.read(), inputs[0].device.type)
'''
_EAGER_TASK = """
torch.backends.cudnn.benchmark = True
custom_kernel = ref_kernel
"""
_COMPILED_TASK = """
custom_kernel = torch.compile(ref_kernel, mode={mode!r}, dynamic=False)
"""


@dataclass(frozen=True, slots=True)
class Opponent:
    """One rung as a candidate, with what has to be said about it."""

    name: str
    candidate: Candidate | None
    """None where the rung does not exist for this kind of problem."""
    absent: str
    settings: Mapping[str, Any]
    support_files: Mapping[str, str]


def make_opponent(problem: Problem, name: str) -> Opponent:
    """The named rung for a problem."""
    settings: dict[str, Any] = {"dynamic": False}
    if name == "eager":
        settings = {"cudnn.benchmark": True}
    elif name in COMPILE_MODES:
        settings["mode"] = COMPILE_MODES[name]
    is_task = problem.entry == "custom_kernel"
    if is_task and name == "aot-inductor":
        return Opponent(
            name, None, "a task's reference is a function, not an exportable module", settings, {}
        )
    if name == "eager":
        tail = _EAGER_TASK if is_task else _EAGER_MODEL
    elif name in COMPILE_MODES:
        tail = (_COMPILED_TASK if is_task else _COMPILED_MODEL).format(mode=COMPILE_MODES[name])
    else:
        tail = _AOT_MODEL
    specification = problem.specification()
    folders = "" if name == "eager" else _OWN_FOLDERS
    source = f"{specification.source}\n\nimport torch\n{folders}{tail}"
    candidate = candidate_from_source(source, name=name, suffix=".py")
    return Opponent(name, candidate, "", settings, specification.support_files)
