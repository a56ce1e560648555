"""Module problems: loading, sizes, seeds, dtypes, distributions, native extras, and every error line."""

from __future__ import annotations

import inspect
import random
import sys
import types
from pathlib import Path

import pytest
import torch

from assay.problems import Case, Cost, Precision, input_bytes, load_problem, load_problems
from assay.problems.devices import META, on_device
from assay.problems.distributions import redraw
from assay.problems.layouts import lay_out
from assay.problems.problem import DISTRIBUTIONS
from assay.records.errors import UserError

CPU = torch.device("cpu")
DATA = Path(__file__).parent / "data" / "kernelbench" / "level1"
LAYERNORM = Path(__file__).parents[2] / "examples" / "layernorm" / "problem.py"

PLAIN = """
import torch
rows = 4
cols = rows * 2
class Model(torch.nn.Module):
    def forward(self, x):
        return x * cols
def get_inputs():
    return [torch.rand(rows, cols)]
"""


def write(folder: Path, text: str, name: str = "p.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def refusal(path: Path | str) -> str:
    with pytest.raises(UserError) as caught:
        load_problem(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_kinds_names_and_arguments() -> None:
    softmax = load_problem(DATA / "2_RowSoftmax.py")
    assert (softmax.kind, softmax.entry, softmax.name) == ("kernelbench", "ModelNew", "level1_2_RowSoftmax")
    assert load_problem(DATA / "3_LabelLoss.py").argument_names == ("scores", "labels")
    layernorm = load_problem(LAYERNORM.parent)
    assert (layernorm.kind, layernorm.name, layernorm.support_files) == ("native", "layernorm", {})
    assert softmax.digest != layernorm.digest


def test_levels_are_sorted_by_number(tmp_path: Path) -> None:
    names = [problem.name for problem in load_problems(DATA)]
    assert names[0] == "level1_2_RowSoftmax" and names[-1] == "level1_10_GroupedConv"
    for level, file in (("level10", "1_b.py"), ("level2", "2_a.py"), ("level2", "10_c.py")):
        folder = tmp_path / "KernelBench" / level
        folder.mkdir(parents=True, exist_ok=True)
        write(folder, PLAIN, file)
    found = [problem.name for problem in load_problems(tmp_path)]
    assert found == ["level2_2_a", "level2_10_c", "level10_1_b"]


def test_loading_errors_are_one_line(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "absent.py")
    assert "no task.yml" in refusal(tmp_path)
    assert "p.py:2: syntax error" in refusal(write(tmp_path, "x = 1\ndef (:\n"))
    assert "no Model and no get_inputs" in refusal(write(tmp_path, "x = 1\n"))
    assert "no get_inputs" in refusal(write(tmp_path, "class Model: pass\n"))
    assert "is no problem" in refusal(write(tmp_path, "", "p.txt"))
    (tmp_path / "b.py").write_bytes(b"\xff\xfe\xfa")
    assert "UTF-8" in refusal(tmp_path / "b.py")
    for folder, words in ((tmp_path / "none", "no such folder"), (tmp_path / "empty", "holds no problems")):
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(UserError, match=words):
            load_problems(folder)


def test_a_broken_file_in_a_folder_is_not_skipped(tmp_path: Path) -> None:
    write(tmp_path, PLAIN, "good.py")
    write(tmp_path, "import torch\nMARKS = 3\n", "notes.py")
    assert [problem.name for problem in load_problems(tmp_path)] == ["good"]
    write(tmp_path, "class Model: pass\n", "half.py")
    with pytest.raises(UserError, match="no get_inputs"):
        load_problems(tmp_path)


def test_sizes_recompute_what_depends_on_them(tmp_path: Path) -> None:
    problem = load_problem(write(tmp_path, PLAIN))
    instance = problem.bind(Case("c", sizes={"rows": 3}))
    (x,) = instance.make_inputs(0, CPU)
    assert x.shape == (3, 6)
    assert torch.equal(instance.build_reference(0, CPU)(x), x * 6)
    (direct,) = problem.bind(Case("d", sizes={"cols": 5})).make_inputs(0, CPU)
    assert direct.shape == (4, 5)
    with pytest.raises(UserError, match="a case sets 'depth'.*use one of rows, cols"):
        problem.bind(Case("e", sizes={"depth": 5}))
    with pytest.raises(UserError, match="plain literal"):
        problem.bind(Case("f", sizes={"rows": torch.tensor(3)}))


@pytest.mark.parametrize("line", ["rows: int = 4", "rows = other = 4", "rows, other = 4, 5"])
def test_every_way_to_write_a_constant(tmp_path: Path, line: str) -> None:
    problem = load_problem(write(tmp_path, PLAIN.replace("rows = 4", line)))
    assert problem.bind(Case("c", sizes={"rows": 7})).make_inputs(0, CPU)[0].shape == (7, 14)


def test_executed_modules_can_be_inspected(tmp_path: Path) -> None:
    text = PLAIN.replace(
        "class Model",
        "from dataclasses import dataclass\n@dataclass\nclass Config:\n    a: 'int' = 1\nclass Model",
    )
    model = load_problem(write(tmp_path, text)).bind(Case("c", sizes={"rows": 2})).build_reference(0, CPU)
    assert "return x * cols" in inspect.getsource(type(model))


def test_inputs_follow_the_seed_and_leave_no_trace() -> None:
    instance = load_problem(DATA / "4_NamedInit.py").bind(Case("c", sizes={"shape": (4, 6)}))
    torch_state, python_state = torch.get_rng_state(), random.getstate()
    first, again, other = (instance.make_inputs(seed, CPU)[0] for seed in (5, 5, 6))
    assert torch.equal(first, again)
    # The file itself calls manual_seed(0) first: the judge's seed has to win.
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), torch_state) and random.getstate() == python_state
    assert torch.manual_seed.__module__ == "torch.random"


def test_named_constructor_arguments_and_replay() -> None:
    instance = load_problem(DATA / "4_NamedInit.py").bind(Case("c", sizes={"shape": (4, 6)}))
    assert (instance.init_args, instance.init_kwargs) == ([6], {"scale": 0.5, "bias": False})
    model = instance.build_reference(3, CPU)
    torch.manual_seed(3)
    assert torch.equal(model.linear.weight, torch.nn.Linear(6, 8, bias=False).weight)


@pytest.mark.parametrize(
    ("given", "args", "kwargs"),
    [
        ("[[1, 2], {}]", [1, 2], {}),
        ("[1, {'b': 3}]", [1], {"b": 3}),
        ("[1, {'x': 3}]", [1, {"x": 3}], {}),
        ("{'a': 1}", [], {"a": 1}),
        ("[[1, 2, 3], 4]", [[1, 2, 3], 4], {}),
    ],
)
def test_forms_of_constructor_arguments(tmp_path: Path, given: str, args: list, kwargs: dict) -> None:
    text = PLAIN.replace(
        "    def forward", "    def __init__(self, a, b=2):\n        super().__init__()\n    def forward"
    )
    problem = load_problem(write(tmp_path, text + f"def get_init_inputs():\n    return {given}\n"))
    instance = problem.bind(problem.nominal())
    assert (instance.init_args, instance.init_kwargs) == (args, kwargs)


def test_dtype_never_touches_labels_and_mode_is_applied() -> None:
    problem = load_problem(DATA / "3_LabelLoss.py")
    sizes = {"batch_size": 8, "num_classes": 5}
    case = Case("c", sizes=sizes, dtype="float16", distribution="mixture", mode="eval")
    scores, labels = problem.bind(case).make_inputs(1, CPU)
    assert scores.dtype is torch.float16 and labels.dtype is torch.int64
    nominal_labels = problem.bind(Case("n", sizes=sizes)).make_inputs(1, CPU)[1]
    assert torch.equal(labels, nominal_labels)
    assert not problem.bind(case).build_reference(0, CPU).training
    layernorm = load_problem(LAYERNORM)
    model = layernorm.bind(Case("h", sizes={"rows": 2, "cols": 8}, dtype="float16")).build_reference(0, CPU)
    assert model.training and model.weight.dtype is torch.float16
    with pytest.raises(UserError, match="dtype 'int8' is no floating-point dtype"):
        problem.bind(Case("i", dtype="int8"))
    for bad in (Case("l", layout="curly"), Case("d", distribution="odd"), Case("m", mode="half")):
        with pytest.raises(UserError, match="use one of"):
            problem.bind(bad)


def test_hard_coded_devices_are_redirected() -> None:
    problem = load_problem(DATA / "10_GroupedConv.py")
    small = Case("s", sizes={"height": 6, "width": 5, "batch_size": 2})
    (x,) = problem.bind(small).make_inputs(0, CPU)
    assert x.device == CPU and x.shape == (2, 64, 6, 5)
    before = torch.Generator
    with on_device(CPU):
        moved = torch.ones(2).cuda().to("cuda:0").to(device="cuda", dtype=torch.float16).cpu()
        drawn = torch.rand(2, device="cuda", generator=torch.Generator(device="cuda"))
        torch.cuda.synchronize()
    assert moved.device == drawn.device == CPU and moved.dtype is torch.float16
    assert torch.Generator is before
    with on_device(META):
        assert torch.rand(2).cuda().device == META and torch.rand(1).item() == 1.0


def test_input_bytes_makes_nothing() -> None:
    softmax = load_problem(DATA / "2_RowSoftmax.py")
    assert input_bytes(softmax, softmax.nominal()) == 4096 * 393216 * 4
    half = Case("h", dtype="float16")
    assert input_bytes(softmax, half) == 4096 * 393216 * 2


def test_code_that_raises_becomes_one_line(tmp_path: Path) -> None:
    cases = {
        "import no_such_package_here": "needs the package 'no_such_package_here'",
        "raise ValueError('bad')": "failed with ValueError (bad)",
        "def get_init_inputs():\n    return 1 / 0": "get_init_inputs() failed with ZeroDivisionError",
    }
    for number, (line, words) in enumerate(cases.items()):
        problem = load_problem(write(tmp_path, PLAIN + line + "\n", f"q{number}.py"))
        with pytest.raises(UserError) as caught:
            problem.bind(problem.nominal())
        assert words in str(caught.value) and "\n" not in str(caught.value)


def test_weights_are_never_downloaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    transformers = types.ModuleType("transformers")

    def from_pretrained(name: str) -> None:
        import os

        raise OSError(f"{name} is not cached, offline={os.environ['HF_HUB_OFFLINE']}")

    transformers.from_pretrained = from_pretrained
    monkeypatch.setitem(sys.modules, "transformers", transformers)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    text = "import transformers\n" + PLAIN.replace(
        "    def forward",
        "    def __init__(self):\n        transformers.from_pretrained('m')\n    def forward",
    )
    problem = load_problem(write(tmp_path, text))
    with pytest.raises(UserError, match="m is not cached, offline=1.*nothing is downloaded"):
        problem.bind(problem.nominal()).build_reference(0, CPU)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError, match="needs the package 'transformers'"):
        (problem := load_problem(tmp_path / "p.py")).bind(problem.nominal())


def test_the_bundled_example() -> None:
    problem = load_problem(LAYERNORM)
    names = [case.name for case in problem.declared_cases()]
    assert names[0] == "nominal" == problem.nominal().name
    assert {"aligned", "ragged", "strided", "float16", "bfloat16"} <= set(names)
    assert problem.precision == Precision(allow_tf32=False)
    full, half = (problem.bind(Case("c", sizes={"rows": 10}, dtype=dtype)) for dtype in (None, "float16"))
    assert full.cost() == Cost(bytes=(2 * 10 * 1000 + 2000) * 4, flops=80000)
    assert half.cost() == Cost(bytes=(2 * 10 * 1000 + 2000) * 2, flops=80000)
    for case in problem.declared_cases():
        instance = problem.bind(case)
        (x,) = instance.make_inputs(0, CPU)
        out = instance.build_reference(0, CPU)(lay_out(x, case.layout))
        assert out.shape == x.shape and out.isfinite().all(), case.name
    assert [case.name for case in problem.declared_cases() if case.hidden] == ["one_row"]


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("PRECISION = {'tf32': True}", "PRECISION has the unknown key 'tf32': use allow_tf32, slack"),
        ("PRECISION = 3", "PRECISION must be a dict"),
        ("def cases(): return [{'name': 'a', 'size': 1}]", "unknown key 'size': use name, sizes, dtype"),
        ("def cases(): return [{'sizes': {}}]", "must be a dict with a 'name'"),
        ("def cases(): return [{'name': 'a'}, {'name': 'a'}]", "two cases named 'a'"),
        ("def cases(): return [{'name': 'a', 'sizes': {'q': 1}}]", "a case sets 'q'"),
        ("def cases(): return [{'name': 'a', 'layout': 'z'}]", "has layout 'z': use one of given"),
        ("def cases(): return [{'name': 'a', 'dtype': 'z'}]", "dtype 'z' is no floating-point dtype"),
        ("def cases(): return undefined_name", "cases() failed with NameError"),
    ],
)
def test_native_errors(tmp_path: Path, extra: str, words: str) -> None:
    assert words in refusal(write(tmp_path, PLAIN + extra + "\n"))


def test_cost_errors_and_missing_dtype(tmp_path: Path) -> None:
    wrong = load_problem(write(tmp_path, PLAIN + "def cost(): return {'bytes': 1}\n", "a.py"))
    with pytest.raises(UserError, match="keys bytes and flops"):
        wrong.bind(wrong.nominal()).cost()
    fixed = load_problem(write(tmp_path, PLAIN + "def cost(): return dict(bytes=rows, flops=cols)\n", "b.py"))
    assert fixed.bind(Case("c", sizes={"rows": 5})).cost() == Cost(5, 10)
    # Bytes counted for float32 would be an impossible floor for a float16 case.
    assert fixed.bind(Case("h", dtype="float16")).cost() is None
    plain = load_problem(write(tmp_path, PLAIN, "c.py"))
    assert plain.bind(plain.nominal()).cost() is None and plain.bind(plain.nominal()).task_check() is None


def test_a_case_named_nominal_is_the_nominal_one(tmp_path: Path) -> None:
    extra = "def cases(): return [{'name': 'a'}, {'name': 'nominal', 'dtype': 'bfloat16'}]\n"
    problem = load_problem(write(tmp_path, PLAIN + extra))
    assert problem.nominal().dtype == "bfloat16"
    assert [case.name for case in problem.declared_cases()] == ["nominal", "a"]


def drawn(distribution: str, *shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    tensor = torch.zeros(shape, dtype=dtype)
    redraw(tensor, distribution, torch.Generator().manual_seed(seed))
    return tensor


@pytest.mark.parametrize("distribution", [d for d in DISTRIBUTIONS if d not in ("nominal", "special")])
def test_distributions_fill_everything_repeatably(distribution: str) -> None:
    x = drawn(distribution, 300, 1000)
    assert torch.equal(x, drawn(distribution, 300, 1000))
    assert not torch.equal(x, drawn(distribution, 300, 1000, seed=1))
    assert (x != 0).any(dim=1).all() and x.isfinite().all()
    assert drawn(distribution, 40, 64, dtype=torch.float16).isfinite().all()
    for shape in ((0, 5), (5, 0), (0,), (1,), (130,), (3, 0, 2), ()):
        assert drawn(distribution, *shape).shape == shape


def test_special_values_lie_among_what_was_there() -> None:
    x = drawn("special", 30, 1000)
    assert torch.equal(x.isnan(), drawn("special", 30, 1000).isnan())
    shares = [x.isnan(), x == torch.inf, x == -torch.inf, torch.signbit(x) & (x == 0)]
    assert all(0 < share.float().mean() < 0.01 for share in shares)
    assert (x == 0).float().mean() > 0.98
    for shape in ((0, 5), (1,), (130,), ()):
        assert drawn("special", *shape).shape == shape


def test_distributions_are_what_they_say() -> None:
    normal = drawn("normal", 1100, 1000)
    assert normal.mean().abs() < 0.01 and (normal.std() - 1).abs() < 0.01
    assert (drawn("sparse", 100, 1000) == 0).float().mean() == pytest.approx(0.9, abs=0.01)
    spread = drawn("row_scaled", 400, 500).std(dim=1).log2().round()
    assert spread.min() == -8 and spread.max() == 8
    means = drawn("shifted", 400, 500).mean(dim=1)
    assert means.min() < -80 and means.max() > 80 and means.abs().max() < 101
    rows = drawn("mixture", 400, 500)
    assert ((rows > 0).all(dim=1).float().mean() - 0.4).abs() < 0.1  # uniform and lognormal
    assert (((rows == 0).float().mean(dim=1) > 0.5).float().mean() - 0.2).abs() < 0.1  # sparse
    assert (rows.abs().amax(dim=1) > 20).any()  # heavy tails
    with pytest.raises(UserError, match="unknown distribution"):
        drawn("odd", 2, 2)


def test_redrawing_spares_tensors_the_module_keeps(tmp_path: Path) -> None:
    text = PLAIN + "TABLE = torch.ones(20, 20)\ndef get_inputs():\n    return [TABLE, TABLE[:, ::2]]\n"
    instance = load_problem(write(tmp_path, text)).bind(Case("c", distribution="normal"))
    for _ in range(2):
        whole, view = instance.make_inputs(0, CPU)
        assert whole.std() > 0.5 and view.std() > 0.5
    plain = load_problem(write(tmp_path, text)).bind(Case("n"))
    assert (plain.make_inputs(0, CPU)[0] == 1).all()


def test_layouts_keep_values() -> None:
    x = torch.rand(3, 4)
    strided, offset, transposed = (lay_out(x, name) for name in ("strided", "offset", "transposed"))
    assert all(torch.equal(x, y) for y in (strided, offset, transposed, lay_out(x, "given")))
    assert strided.stride() == (11, 2) and offset.storage_offset() == 1 and transposed.stride() == (1, 3)
    gap = torch.as_strided(strided, (1,), (1,), 1)
    assert gap.isnan().all()
    with pytest.raises(UserError, match="unknown layout"):
        lay_out(x, "curly")


def test_a_model_that_is_no_module_is_one_line(tmp_path: Path) -> None:
    path = write(tmp_path, "class Model: ...\n\ndef get_inputs(): ...\n")
    with pytest.raises(UserError, match=r"Model has no forward\(\)"):
        load_problem(path)
