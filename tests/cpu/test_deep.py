"""The deep level without a GPU: the program, its confinement, and a stand-in where the tool would be."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from daemon_process import TINY
from in_process import CPU, prepared_case

from assay.build import Toolchain, build_key, compile_candidate, find_toolchain, sanitizer_paths
from assay.candidates import Candidate, candidate_from_source
from assay.cli.doctor import _tool_items
from assay.cli.options import policy_fields
from assay.cli.render import _advice
from assay.daemon.bench import Bench, read_policy
from assay.judge import Judge, Policy
from assay.judge.deep import Subject, _contents, _laid, _stores_by_map, findings_of, require_deep
from assay.problems import Case, Precision, load_problem
from assay.problems.values import flatten
from assay.records import Finding, Layer, UserError, to_plain
from assay.worker import Child, Pool
from assay.worker.inline_builds import _key
from assay.worker.inspected import FAILED, InspectedCase, pack_task
from assay.worker.inspection import TOOLS, Inspection, decode_inspection, tool_command

EXAMPLE = Path(__file__).parents[2] / "examples" / "layernorm"
RIGHT = "import torch\ndef forward(x):\n    return torch.clamp(x, min=0) + 1.0\n"
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
START = "import sys; from assay.worker.inspected import main; main(sys.argv[1])"


def candidate(source: str, suffix: str = ".py") -> Candidate:
    return candidate_from_source(source, "c", suffix)


def told(one: Candidate, built_name: str = "") -> dict[str, Any]:
    """As `Workshop.to_load` tells whoever loads it."""
    return {
        "candidate": to_plain(one),
        "argument_names": ["x"],
        "support_files": {},
        "built_name": built_name,
    }


def case_of(
    x: torch.Tensor, state: dict[str, torch.Tensor] | None = None, layout: str = "given", **how: Any
) -> InspectedCase:
    tensors: list[torch.Tensor] = []
    construction = {"args": flatten([], []), "kwargs": flatten({}, []), "seed": 3, "dtype": None}
    placement, data = _laid(x, layout)
    return InspectedCase(
        construction={**construction, "mode": "constructed", "allow_tf32": False, **how},
        init=[],
        state=state or {},
        inputs=flatten([x], tensors),
        places=[placement.plain()],
        stored=[data],
    )


def run_program(task: bytes, folder: Path) -> subprocess.CompletedProcess[str]:
    path = folder / "task"
    path.write_bytes(task)
    return subprocess.run(
        [sys.executable, "-c", START, str(path)], capture_output=True, text=True, cwd=folder, check=False
    )


# --- the program -------------------------------------------------------------------------------------------


def test_the_program_calls_a_bare_kernel_twice_on_each_case(tmp_path: Path) -> None:
    source = """
// assay: out y = torch.empty_like(x)
// assay: call tell(x, y, x.numel())
// assay: return y
#include <cstdio>
extern "C" void tell(const float* x, float* y, long n) {
    std::printf("called on %ld, first %g, last %g\\n", n, x[0], x[n - 1]);
    for (long i = 0; i < n; i++) y[i] = x[i];
}
"""
    one = candidate(source, ".cpp")
    built = Path(compile_candidate(one, find_toolchain(None), tmp_path / "build").path).read_bytes()
    cases = [case_of(torch.tensor([4.0, 5.0])), case_of(torch.tensor([[7.0], [8.0], [9.0]]))]
    run = run_program(pack_task("cpu", told(one, "built.so"), built, cases), tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    assert sorted(run.stdout.split("\n")[:4]) == 2 * ["called on 2, first 4, last 5"] + 2 * [
        "called on 3, first 7, last 9"
    ]


def test_the_program_gives_a_module_its_arguments_weights_dtype_and_layout(tmp_path: Path) -> None:
    source = """
import torch
class ModelNew(torch.nn.Module):
    def __init__(self, scale, shift=0.0):
        super().__init__()
        self.scale, self.shift = scale, shift
        self.weight = torch.nn.Parameter(torch.zeros(2))
        self.other = torch.nn.Parameter(torch.ones(2))
    def forward(self, x):
        y = x * self.weight * self.scale + self.shift
        print(y.tolist(), y.dtype, x.stride(), self.other.tolist(), self.training, torch.is_grad_enabled())
        return y
"""
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
    how = {"args": flatten([10], []), "kwargs": flatten({"shift": 0.5}, []), "mode": "eval"}
    case = case_of(x, {"weight": torch.tensor([1.0, 2.0])}, "transposed", dtype="float64", **how)
    run = run_program(pack_task("cpu", told(candidate(source)), b"", [case]), tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    said = "[[10.5, 40.5], [30.5, 80.5]] torch.float64 (1, 2) [1.0, 1.0] False False"
    assert run.stdout.splitlines() == [said] * 2


FAILING = {
    "while it is loaded": ("import no_such_module\ndef forward(x):\n    return x\n", "no_such_module"),
    "in a call": (
        "def forward(x):\n    raise ValueError('only here\\nsecond line')\n",
        "ValueError: only here",
    ),
    "by leaving": ("import sys\ndef forward(x):\n    sys.exit(0)\n", "SystemExit: 0"),
}
BUILT_BEFORE = """
from torch.utils.cpp_extension import load_inline
load_inline("never_compiled", cpp_sources=["no C++ at all"])
def forward(x):
    return x
"""
ONE_AFTER_THE_OTHER = """
import sys
from assay.worker.inspected import main
for task in sys.argv[1:]:
    try:
        main(task)
    except SystemExit as left:
        print(f"left with {left.code}\\n-----", flush=True)
"""


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    """The lines that each program in FAILING has said, and BUILT_BEFORE; one process does for all."""
    folder = tmp_path_factory.mktemp("failing")
    index = f'[["{built_before()}", 7]]'.encode()
    packed = len(index).to_bytes(8, "big") + index + b"no file"
    tasks = [(source, b"") for source, _ in FAILING.values()] + [(BUILT_BEFORE, packed)]
    for number, (source, built) in enumerate(tasks):
        path = folder / str(number) / "task"
        path.parent.mkdir()
        path.write_bytes(pack_task("cpu", told(candidate(source)), built, [case_of(torch.ones(2))]))
    command = [sys.executable, "-c", ONE_AFTER_THE_OTHER, *map(str, sorted(folder.glob("*/task")))]
    run = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert run.returncode == 0 and run.stdout.count("-----\n") == len(tasks), run.stdout + run.stderr
    return [said.splitlines() for said in run.stdout.split("-----\n")]


def built_before() -> str:
    return _key("load_inline", "never_compiled", (), {"cpp_sources": ["no C++ at all"]})


@pytest.mark.parametrize("when", FAILING)
def test_whatever_is_raised_ends_the_program_with_its_code_and_one_last_line(
    failures: list[list[str]], when: str
) -> None:
    *_, last, left = failures[list(FAILING).index(when)]
    assert left == f"left with {FAILED}" and FAILING[when][1] in last


def test_what_an_earlier_process_built_inline_is_not_built_again(failures: list[list[str]]) -> None:
    *said, left = failures[len(FAILING)]
    # The kept library is no library, which shows that it was taken.
    assert left == f"left with {FAILED}"
    assert any(f"{built_before()}.so" in line for line in said) and not any("ninja" in line for line in said)


# --- the confined child ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    cache = tmp_path_factory.mktemp("cache")
    with Judge("cpu", Policy(speed=False, derive_hidden=False, call_timeout_s=20), cache) as one:
        yield one


@pytest.fixture(scope="module")
def pool(judge: Judge) -> Pool:
    return judge._shop.pool


@contextlib.contextmanager
def inspector_of(pool: Pool) -> Iterator[Child]:
    child = pool.take_inspector()
    yield child
    child.close()


def inspect_in(child: Child, source: str, timeout_s: float = 60.0) -> Inspection:
    task = pack_task("cpu", told(candidate(source)), b"", [case_of(torch.ones(2))])
    head = {"sanitizer": "", "tool": "memcheck", "timeout_s": timeout_s}
    return decode_inspection(child.ask("inspect", head, payload=task, timeout_s=timeout_s + 60))


CURIOUS = """
import json, os, socket

def attempt(path, mode):
    try:
        open(path, mode).close()
    except OSError as error:
        return type(error).__name__
    return "opened"

def spoken():
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=5).close()
    try:
        socket.create_connection(("192.0.2.1", 80), timeout=5)
    except OSError as error:
        return error.strerror

def forward(x):
    print("a" * 100000)
    said = {{"read": [attempt(path, "r") for path in {read}]}}
    said["written"] = [attempt(path, "w") for path in {written}]
    said["own"] = attempt("own", "w")
    if {has_network}:
        said["elsewhere"] = spoken()
    said["tool"] = os.environ["NV_COMPUTE_SANITIZER_LOCAL_CONNECTION_OVERRIDE"]
    print(json.dumps(said))
    print("\\x1b[31mred")
    return x
"""


@dataclass
class Told:
    """What a curious program has said of its confinement."""

    layers: dict[str, Layer]
    """Of the child that started it, by name."""
    outcome: Inspection
    new: Path
    """A file that it was not to make."""

    @property
    def plainly(self) -> dict[str, Any]:
        """Of its last call, before the line that ends it."""
        return json.loads(self.outcome.output.splitlines()[-2])


@pytest.fixture(scope="module")
def curious(pool: Pool, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """One program that tries whatever it should not, and says too much."""
    folder = tmp_path_factory.mktemp("elsewhere")
    new, secret = folder / "new", folder / "problem.py"
    secret.write_text("seed = 1\n")
    package = str(sys.modules["assay.judge.deep"].__file__)
    read = [package, str(EXAMPLE / "problem.py"), __file__, str(secret)]
    written = [str(new), package, "/dev/shm/own"]
    with inspector_of(pool) as inspector:
        layers = {layer.name: layer for layer in inspector.layers}
        has_network = layers["network_namespace"].active
        outcome = inspect_in(inspector, CURIOUS.format(read=read, written=written, has_network=has_network))
    assert outcome.status == 0, outcome.output
    return Told(layers, outcome, new)


def test_an_inspector_reads_the_package_and_nothing_else_of_the_project(curious: Told) -> None:
    if not curious.layers["landlock"].active:
        pytest.skip(curious.layers["landlock"].detail)
    assert "seccomp" not in curious.layers
    first, *others = curious.plainly["read"]
    assert first == "opened" and all(other.endswith("Error") for other in others)
    written = curious.plainly["written"]
    assert written[0] != "opened" and sum(one.endswith("Error") for one in written) >= 2
    assert curious.plainly["own"] == "opened"
    assert not curious.new.exists()


def test_an_inspector_s_processes_speak_to_each_other_and_to_nobody_else(curious: Told) -> None:
    if not curious.layers["network_namespace"].active:
        pytest.skip(curious.layers["network_namespace"].detail)
    assert curious.plainly["elsewhere"] == "Network is unreachable" and curious.plainly["tool"] == "tcp"


def test_long_output_and_control_characters_are_cut(curious: Told) -> None:
    output = curious.outcome.output
    assert output.endswith("?[31mred\n") and len(output) <= 4096
    assert curious.outcome.log == ""


def test_other_children_have_no_loopback(pool: Pool) -> None:
    child = pool.take_compiler()
    try:
        layers = {layer.name: layer for layer in child.layers}
        assert layers["seccomp"].active and "loopback" not in layers["network_namespace"].detail
    finally:
        child.close()


def test_a_program_that_takes_too_long_is_stopped(pool: Pool) -> None:
    source = "import time\ndef forward(x):\n    time.sleep(600)\n"
    with inspector_of(pool) as inspector:
        assert inspect_in(inspector, source, timeout_s=1.0).status is None
        assert inspector.alive


# --- what the tools' words are worth -----------------------------------------------------------------------


def error_in(kernel: str, count: int = 1) -> str:
    one = f"========= Invalid __global__ read of size 4 bytes\n=========     at {kernel}+0x10 in k.cu:7\n"
    return f"{one * count}========= ERROR SUMMARY: {count} errors\n"


def codes(findings: list[Finding]) -> list[tuple[str, bool]]:
    return [(finding.code, finding.fatal) for finding in findings]


def test_silence_of_a_tool_that_finished_is_no_finding() -> None:
    assert findings_of("memcheck", Inspection(0, CLEAN, ""), "") == []


def test_an_error_in_an_own_kernel_is_fatal_and_told_once() -> None:
    (finding,) = findings_of("memcheck", Inspection(0, error_in("mine(float *)", 3), ""), "")
    assert (finding.code, finding.fatal) == ("memcheck", True)
    for words in ("Invalid __global__ read of size 4 bytes", "mine(float *)", "k.cu:7", "3 errors"):
        assert words in finding.message
    assert finding.hint


def test_errors_that_were_not_printed_are_told_too() -> None:
    log = error_in("mine(float *)").replace("SUMMARY: 1", "SUMMARY: 51")
    (finding,) = findings_of("initcheck", Inspection(0, log, ""), "")
    assert "1 error in its own kernels, 50 more not shown" in finding.message


@pytest.mark.parametrize(("tool", "is_fatal"), [("initcheck", False), ("memcheck", True)])
def test_what_initcheck_says_of_stores_that_it_does_not_see_is_a_note(tool: str, is_fatal: bool) -> None:
    outcome = Inspection(0, error_in("mine(float *)"), "")
    (finding,) = findings_of(tool, outcome, "", stores_by_map=True)
    assert (finding.code, finding.fatal) == (tool, is_fatal)
    assert ("in doubt" in finding.message) != is_fatal


@pytest.mark.parametrize(
    ("part", "text", "is_one"),
    [
        ("caches", b"\tcp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%rd1, {%r1}], [%r2];", True),
        (
            "caches",
            b"\tcp.reduce.async.bulk.tensor.2d.global.shared::cta.add.bulk_group [%rd1], [%r2];",
            True,
        ),
        ("caches", b"\tcp.async.bulk.tensor.2d.shared::cluster.global.mbarrier [%r1], [%rd1];", False),
        ("caches", b"\tcp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r2], 64;", False),
        ("built", b"\0cp.async.bulk.tensor.1d.global.shared::cta.bulk_group", True),
        ("source", b"cuda::ptx::cp_async_bulk_tensor(space, shared, &map, at, stage);", True),
        ("source", b"y[i] = x[i];", False),
    ],
)
def test_stores_by_tensor_maps_are_found_in_what_is_compiled(part: str, text: bytes, is_one: bool) -> None:
    source = "def forward(x): ...\n" + (f"# {text.decode()}" if part == "source" else "")
    parts = {"built": b"", "caches": b""} | ({part: text} if part != "source" else {})
    subject = Subject(candidate_from_source(source, "c", ".py"), {}, by_seed=False, **parts)
    assert _stores_by_map(subject) == is_one


def test_an_error_in_a_library_kernel_is_a_note() -> None:
    log = error_in("void at::native::vectorized_elementwise_kernel<4, float>(int, float)")
    assert codes(findings_of("memcheck", Inspection(0, log, ""), "def forward(x): ...")) == [
        ("memcheck", False)
    ]


@pytest.mark.parametrize(
    ("kernel", "fatal"),
    [
        ("gemm_tiled(float *)", True),
        ("gemm_other(float *)", False),
        ("void cub::gemm_tiled<4>(float *)", False),
    ],
)
def test_a_kernel_that_the_source_names_is_its_own_whatever_it_is_called(kernel: str, fatal: bool) -> None:
    source = "@triton.jit\ndef gemm_tiled(x): ...\n"
    assert codes(findings_of("memcheck", Inspection(0, error_in(kernel), ""), source)) == [
        ("memcheck", fatal)
    ]


def test_warnings_are_notes() -> None:
    log = "========= Warning: Race reported between Write access at mine(float *)+0x10 in k.cu:7\n"
    log += "=========     and Read access at mine(float *)+0x20 in k.cu:8 [4 hazards]\n"
    log += "========= RACECHECK SUMMARY: 1 hazard displayed (0 errors, 1 warning)\n"
    (finding,) = findings_of("racecheck", Inspection(0, log, ""), "")
    assert (finding.code, finding.fatal) == ("racecheck", False) and "k.cu:7" in finding.message


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Inspection(None, "", ""), "time was up"),
        (Inspection(FAILED, CLEAN, "a trace\nValueError: only here\n"), "ValueError: only here"),
        (Inspection(0, "========= COMPUTE-SANITIZER\n", ""), "without a summary"),
        (Inspection(0, "", "it cannot start\n"), "it cannot start"),
        (
            Inspection(0, f"========= Error: No attachable process found.\n{CLEAN}", ""),
            "No attachable process",
        ),
        (Inspection(-9, "", ""), "-9"),
    ],
)
def test_a_tool_that_could_not_look_is_told(outcome: Inspection, words: str) -> None:
    (finding,) = findings_of("racecheck", outcome, "")
    assert (finding.code, finding.fatal) == ("not_inspected", False)
    assert finding.message.startswith("racecheck: ") and words in finding.message


def test_an_error_counts_though_the_program_failed_of_it() -> None:
    log = error_in("mine(float *)").replace("========= ERROR SUMMARY: 1 errors\n", "")
    outcome = Inspection(FAILED, log, "RuntimeError: CUDA error: unspecified launch failure\n")
    assert codes(findings_of("memcheck", outcome, "")) == [("memcheck", True)]


# --- which cases, and how they lie in memory ---------------------------------------------------------------


class Model(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x) + 1


def sized(name: str, rows: int, layout: str = "given") -> Any:
    def draw(generator: torch.Generator) -> list[Any]:
        return [torch.randn(rows, 8, generator=generator)]

    return prepared_case(Model, draw, Precision(), Case(name, layout=layout))


def test_the_smallest_cases_are_chosen_and_none_that_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(candidate(RIGHT), {}, b"", b"", by_seed=False)
    cases = [sized(str(rows), rows) for rows in (50, 40, 10, 30, 20)]
    chosen = _contents(subject, cases, Precision(), CPU)
    assert [len(case.stored[0]) for case in chosen] == [320, 640, 960]
    monkeypatch.setattr("assay.judge.deep.MOST_INPUT_BYTES", 640)
    assert [len(case.stored[0]) for case in _contents(subject, cases, Precision(), CPU)] == [320, 640]
    monkeypatch.setattr("assay.judge.deep.MOST_TASK_BYTES", 639)
    assert [len(case.stored[0]) for case in _contents(subject, cases, Precision(), CPU)] == [320]


def test_weights_go_along_unless_they_are_matched_by_seed() -> None:
    def draw(generator: torch.Generator) -> list[Any]:
        return [torch.randn(4, 8, generator=generator)]

    case = prepared_case(lambda: torch.nn.Linear(8, 2), draw, Precision(), Case("linear"))
    for by_seed in (False, True):
        subject = Subject(candidate(RIGHT), {}, b"", b"", by_seed=by_seed)
        (inspected,) = _contents(subject, [case], Precision(), CPU)
        assert set(inspected.state) == (set() if by_seed else {"weight", "bias"})


@pytest.mark.parametrize("layout", ["given", "strided", "offset", "transposed", "sliced"])
def test_an_input_ends_where_its_memory_does(layout: str) -> None:
    x = torch.randn(5, 3)
    placement, data = _laid(x, layout)
    view = placement.view(data)
    assert torch.equal(view, x)
    last = view[-1, -1].storage_offset() * 4 + view.element_size()
    assert last == data.numel()


def test_an_expanded_input_stays_expanded() -> None:
    placement, data = _laid(torch.tensor([2.0]).expand(6), "given")
    assert (data.numel(), placement.strides) == (4, (0,))
    assert placement.view(data).tolist() == [2.0] * 6


# --- the judge, with a stand-in for the tool ---------------------------------------------------------------

STAND_IN = """#!{python} -I
import pathlib, subprocess, sys, time
words = sys.argv[1:]
options = {{}}
while words[0].startswith("--"):
    options[words[0]], words = words[1], words[2:]
log = {logs!r}.get(options["--tool"])
if log == "never ends":
    time.sleep(600)
status = subprocess.run(words).returncode if options["--tool"] == "memcheck" else 0
if log is not None:
    pathlib.Path(options["--log-file"]).write_text(log)
sys.exit(status)
"""


@pytest.fixture
def equipped(judge: Judge, tmp_path: Path) -> Iterator[Callable[[dict[str, str]], Judge]]:
    """The judge as it is on a GPU with compute-sanitizer, which says what a test has it say.

    Only as memcheck does it run the program: under another name that would be the same once more.
    """
    before = judge._shop

    def equip(logs: dict[str, str]) -> Judge:
        folder = tmp_path / "compute-sanitizer"
        folder.mkdir()
        script = folder / "compute-sanitizer"
        script.write_text(STAND_IN.format(python=sys.executable, logs=logs))
        script.chmod(0o755)
        policy = replace(before.policy, deep=True, deep_timeout_s=60.0)
        judge._shop = replace(
            before, policy=policy, toolchain=replace(before.toolchain, sanitizer=str(script))
        )
        return judge

    yield equip
    judge._shop = before


@pytest.fixture
def problem(tmp_path: Path) -> Any:
    path = tmp_path / "problem.py"
    path.write_text(TINY)
    return load_problem(path)


def test_every_tool_is_asked_and_its_words_are_in_the_verdict(
    equipped: Callable[[dict[str, str]], Judge], problem: Any
) -> None:
    library = "void at::native::some_kernel<4>(int)"
    logs = {"memcheck": error_in("mine(float *)"), "racecheck": error_in(library), "synccheck": CLEAN}
    verdict = equipped(logs).evaluate(problem, candidate(RIGHT))
    found = [(f.code, f.fatal) for f in verdict.findings if f.code.endswith(("check", "inspected"))]
    assert found == [("memcheck", True), ("racecheck", False), ("not_inspected", False)]
    assert verdict.status == "rejected" and verdict.seconds["deep"] > 0
    assert any(f.message.startswith("initcheck: ") for f in verdict.findings)
    assert {layer.name for layer in verdict.sandbox} >= {"seccomp", "landlock"}
    assert any("Mask loads and stores" in advice for advice in _advice(verdict))


def test_an_honest_candidate_passes_the_deep_level(
    equipped: Callable[[dict[str, str]], Judge], problem: Any
) -> None:
    tools = ("memcheck", "racecheck", "initcheck", "synccheck")
    verdict = equipped(dict.fromkeys(tools, CLEAN)).evaluate(problem, candidate(RIGHT))
    assert verdict.status == "passed", verdict.findings
    assert not {f.code for f in verdict.findings} & {*tools, "not_inspected"}
    assert verdict.policy["deep"] is True and verdict.seconds["deep"] > 0


def test_what_no_case_tells_from_wrong_answers_is_inspected_as_well(
    equipped: Callable[[dict[str, str]], Judge], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its memory accesses may be wrong whatever its answers are."""
    path = tmp_path / "problem.py"
    path.write_text(TINY.replace("torch.relu(x) + 1.0", "0 * x"))
    judge = equipped({"memcheck": error_in("mine(float *)")})
    monkeypatch.setattr(judge, "policy", replace(judge.policy, allow_flawed=True))
    verdict = judge.evaluate(load_problem(path), candidate(RIGHT.replace("+ 1.0", "* 0.0")))
    assert verdict.problem.flaws and verdict.status == "rejected"
    assert [f.code for f in verdict.findings if f.fatal] == ["memcheck"]


def test_an_interrupt_does_not_wait_for_the_tools(
    equipped: Callable[[dict[str, str]], Judge], problem: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor for one whose child comes after it."""
    judge = equipped(dict.fromkeys(TOOLS, "never ends"))
    take, taken, answers = judge._shop.pool.take_inspector, [], []

    def take_later(*given: Any) -> Child:
        taken.append(take(*given))
        if len(taken) == len(TOOLS) - 1:
            os.kill(os.getpid(), signal.SIGINT)
        return taken[-1]

    monkeypatch.setattr(judge._shop.pool, "take_inspector", take_later)
    monkeypatch.setattr("assay.judge.deep.decode_inspection", answers.append)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored by what a shell runs aside
    try:
        with pytest.raises(KeyboardInterrupt):
            judge.evaluate(problem, candidate(RIGHT))
    finally:
        signal.signal(signal.SIGINT, before)
    # One that is started while the interrupt comes is not waited for.
    while any(child.alive for child in taken):
        time.sleep(0.05)
    assert taken and not answers


def test_what_fails_gate_1_is_not_inspected(
    equipped: Callable[[dict[str, str]], Judge], problem: Any
) -> None:
    verdict = equipped({}).evaluate(problem, candidate(RIGHT.replace("1.0", "1.01")))
    assert verdict.status == "wrong" and "deep" not in verdict.seconds


# --- before anything runs ----------------------------------------------------------------------------------


def test_the_command_line_says_in_one_line_that_a_gpu_is_needed(
    refused: Callable[..., tuple[object, str, str]], tmp_path: Path
) -> None:
    where = (EXAMPLE / "problem.py", EXAMPLE / "kernel.cpp")
    code, out, complaint = refused("check", *where, "--deep", "--device", "cpu", folder=tmp_path)
    assert (code, out) == (2, "")
    assert len(complaint.strip().splitlines()) == 1 and "--deep needs a GPU" in complaint


@pytest.mark.parametrize(
    ("policy", "sanitizer", "words"),
    [
        (Policy(deep=True), None, "--deep needs compute-sanitizer: install"),
        (Policy(deep=True, require_full_sandbox=True), "/cs", "leave out --require-sandbox full"),
    ],
)
def test_what_the_deep_level_lacks_is_said_at_once(policy: Policy, sanitizer: str | None, words: str) -> None:
    with pytest.raises(UserError, match=words):
        require_deep(policy, torch.device("cuda"), sanitizer)


def test_nothing_is_needed_where_nothing_is_asked_for() -> None:
    require_deep(Policy(), CPU, None)
    require_deep(Policy(deep=True), torch.device("cuda"), "/cs")


def test_the_policy_goes_through_the_daemon_and_is_refused_there_too(tmp_path: Path) -> None:
    plain = {"allow_flawed": False, "allow_tf32": False, "rungs": (), "force_busy": False}
    fields = policy_fields(**plain, deep=True)
    assert fields == {"deep": True} and read_policy(fields) == Policy(deep=True)
    path = tmp_path / "problem.py"
    path.write_text(TINY)
    bench = Bench(CPU)
    try:
        with pytest.raises(UserError, match="--deep needs a GPU"):
            bench.open_problem(str(path), Policy(deep=True))
        assert bench.counts()[0] == 1
    finally:
        bench.close()


# --- finding the tool --------------------------------------------------------------------------------------


@pytest.fixture
def cuda_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "toolkit"
    for name in ("include/cuda_runtime.h", "bin/compute-sanitizer"):
        (home / name).parent.mkdir(parents=True)
        (home / name).touch(mode=0o755)
    monkeypatch.setenv("CUDA_HOME", str(home))
    return home


def test_the_tool_is_found_in_the_toolkit(cuda_home: Path) -> None:
    script, program = cuda_home / "bin" / "compute-sanitizer", cuda_home / "compute-sanitizer"
    assert find_toolchain(None).sanitizer == str(script)
    program.mkdir()
    assert set(sanitizer_paths(str(script))) == {str(script), str(program)}
    (program / "compute-sanitizer").touch(mode=0o755)
    assert find_toolchain(None).sanitizer == str(program / "compute-sanitizer")
    assert sanitizer_paths(str(program / "compute-sanitizer")) == (str(program),)


def test_of_several_the_newest_is_taken(
    cuda_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "packages" / "nvidia" / "cu13" / "compute-sanitizer"
    package.mkdir(parents=True)
    toolkit = cuda_home / "bin" / "compute-sanitizer"
    monkeypatch.syspath_prepend(tmp_path / "packages")
    for other, newest in (("2026.3.1", package / "compute-sanitizer"), ("2025.2.0", toolkit)):
        for place, version in ((toolkit, "2025.3.1"), (package / "compute-sanitizer", other)):
            place.write_text(f"#!/bin/sh\necho Copyright 2015-2026\necho Version {version}.0 '(build 1)'\n")
            place.chmod(0o755)
        assert find_toolchain(None).sanitizer == str(newest)


def test_no_build_depends_on_the_tool() -> None:
    tools: Toolchain = find_toolchain("9.0")
    for suffix, source in ((".py", RIGHT), (".cpp", (EXAMPLE / "kernel.cpp").read_text())):
        one = candidate(source, suffix)
        keys = {build_key(one, replace(tools, sanitizer=path)) for path in (None, "/a", "/b")}
        assert len(keys) == 1


def test_the_doctor_names_the_tool_and_the_fix(tmp_path: Path) -> None:
    tools = find_toolchain(None)
    item = next(i for i in _tool_items(replace(tools, sanitizer=None)) if i.name == "compute-sanitizer")
    assert not item.works and "CUDA toolkit" in item.fix and "--deep" in item.fix
    script = tmp_path / "compute-sanitizer"
    script.write_text("#!/bin/sh\necho Version 2025.3.1\n")
    script.chmod(0o755)
    item = next(
        i for i in _tool_items(replace(tools, sanitizer=str(script))) if i.name == "compute-sanitizer"
    )
    assert item.works and "2025.3.1" in item.detail


def test_options_come_before_the_program_and_only_memcheck_gets_its_own() -> None:
    for tool in ("memcheck", "racecheck"):
        command = tool_command("/cs", tool, "/scratch/log")
        assert command[0] == "/cs" and command[command.index("--tool") + 1] == tool
        assert command[command.index("--log-file") + 1] == "/scratch/log"
        assert ("--padding" in command) == ("--report-api-errors" in command) == (tool == "memcheck")
