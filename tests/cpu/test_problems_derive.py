"""Derived cases: bounded, repeatable, legal for the reference, and never as large as the nominal input."""

from __future__ import annotations

import resource
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from assay.problems import Case, Problem, input_bytes, load_problem, reduced_nominal
from assay.problems.derive import BEYOND, looks_structured
from assay.problems.layouts import lay_out

CPU = torch.device("cpu")
DATA = Path(__file__).parent / "data" / "kernelbench" / "level1"
FILES = sorted(path.stem for path in DATA.glob("[0-9]*.py"))


def small_cases(subject: Problem, seed: int) -> tuple[Case, ...]:
    """All but the one that is larger than the nominal size: nobody makes that here."""
    return tuple(case for case in subject.derived_cases(seed) if case.name != f"derived-{BEYOND}")


def problem(stem: str) -> Problem:
    return load_problem(DATA / f"{stem}.py")


def labels(cases: tuple[Case, ...]) -> set[str]:
    return {case.name.split("-")[1] for case in cases}


@pytest.mark.parametrize("stem", FILES)
@pytest.mark.parametrize("seed", [0, 1])
def test_derived_cases_are_legal_and_few(stem: str, seed: int) -> None:
    subject = problem(stem)
    cases = small_cases(subject, seed)
    assert 4 <= len(cases) <= 8
    assert len({case.name for case in cases}) == len(cases)
    assert {"ragged", "off_by_one", "one"} <= labels(cases)
    for case in cases:
        assert case.hidden and case.derived
        assert input_bytes(subject, case) <= 8 << 20
        instance = subject.bind(case)
        inputs = [lay_out(value, case.layout) for value in instance.make_inputs(0, CPU)]
        assert instance.build_reference(0, CPU)(*inputs).isfinite().all(), case.name


@pytest.mark.parametrize("stem", FILES)
def test_derivation_is_repeatable_and_follows_the_seed(stem: str) -> None:
    first = small_cases(problem(stem), 7)
    assert small_cases(problem(stem), 7) == first
    assert any(small_cases(problem(stem), seed) != first for seed in range(8, 12))


def test_a_six_gib_problem_is_derived_without_making_it() -> None:
    subject = problem("2_RowSoftmax")
    small_cases(subject, 0)  # the first call in a process imports torch's meta kernels
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cases = small_cases(subject, 1)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 256 << 10
    assert "empty" in labels(cases)
    assert {"row_scaled", "mixture"} <= {case.distribution for case in cases}
    assert {"strided", "offset", "transposed"} & {case.layout for case in cases}
    sizes = [case.sizes for case in cases if "off_by_one" in case.name]
    assert all(value % 32 in (1, 31) for size in sizes for value in size.values())
    assert any(1 in case.sizes.values() for case in cases)


def test_groups_stay_divisible() -> None:
    for case in small_cases(problem("10_GroupedConv"), 2):
        assert case.sizes.get("out_channels", 128) % case.sizes.get("groups", 4) == 0


def test_illegal_distributions_and_empties_are_dropped() -> None:
    for seed in range(3):
        cases = small_cases(problem("7_Probability"), seed)
        assert {case.distribution for case in cases} == {"nominal"}
        assert "empty" not in labels(cases)  # the mean of nothing is NaN
        assert any(case.layout != "given" for case in cases)


def test_layouts_the_reference_refuses_are_dropped(tmp_path: Path) -> None:
    path = tmp_path / "p.py"
    path.write_text(
        "import torch\nrows = 4096\ncols = 4096\n"
        "class Model(torch.nn.Module):\n    def forward(self, x):\n        return x.view(-1) * 2\n"
        "def get_inputs():\n    return [torch.rand(rows, cols)]\n"
    )
    layouts = {case.layout for seed in range(6) for case in small_cases(load_problem(path), seed)}
    assert layouts == {"given", "offset", "mixed"}  # the only input's own layout is then "offset"


def test_structure_of_inputs_is_respected() -> None:
    cases = small_cases(problem("6_UpperTriangular"), 0)
    assert {case.kept for case in cases if case.distribution != "nominal"} == {(0,)}
    assert all(case.sizes["M"] == case.sizes["K"] for case in cases)
    x = torch.rand(20, 20)
    structured = (torch.triu(x), x + x.T, x.round(), x.softmax(1), x.sort(1).values, torch.ones(20, 20))
    assert all(looks_structured(tensor) for tensor in structured)
    assert looks_structured(torch.nn.functional.normalize(x, dim=0))
    assert not looks_structured(x) and not looks_structured(torch.randn(3, 7, 5).half())


def test_one_structured_input_leaves_the_others_free(tmp_path: Path) -> None:
    path = tmp_path / "p.py"
    path.write_text(
        "import torch\nrows = 512\ncols = 256\nclass Model(torch.nn.Module):\n"
        "    def forward(self, mask, x):\n        return x.softmax(-1) * mask\n"
        "def get_inputs():\n    return [(torch.rand(rows, cols) > 0.5).float(), torch.randn(rows, cols)]\n"
    )
    masked = load_problem(path)
    redrawn = [case for case in small_cases(masked, 0) if case.distribution != "nominal"]
    assert redrawn and all(case.kept == (0,) for case in redrawn)
    mask, x = masked.bind(replace(redrawn[0], distribution="shifted")).make_inputs(1, torch.device("cpu"))
    assert set(mask.unique().tolist()) <= {0.0, 1.0} and float(x.abs().max()) > 50


def test_inputs_keep_their_sign_where_no_other_is_legal(tmp_path: Path) -> None:
    """A logarithm, a pace of decay: contents vary as they do elsewhere, and other inputs are free."""
    path = tmp_path / "p.py"
    path.write_text(
        "import torch\nrows = 512\ncols = 256\nclass Model(torch.nn.Module):\n"
        "    def forward(self, x, step, pace):\n"
        "        return x * torch.log10(step + 1e-10) + torch.sqrt(-pace)\n"
        "def get_inputs():\n"
        "    return [torch.randn(rows, cols), torch.rand(rows, cols), -1 - 15 * torch.rand(cols)]\n"
    )
    problem = load_problem(path)
    redrawn = [case for case in small_cases(problem, 0) if case.distribution != "nominal"]
    assert {"mixture", "row_scaled"} <= {case.distribution for case in redrawn}
    for case in redrawn:
        x, step, pace = problem.bind(case).make_inputs(1, torch.device("cpu"))
        assert float(x.min()) < 0 and float(step.min()) >= 0 and float(pace.max()) <= 0
    wide = problem.bind(replace(redrawn[0], distribution="shifted")).make_inputs(1, torch.device("cpu"))
    assert min(float(tensor.abs().max()) for tensor in wide) > 50


def test_a_sign_is_kept_nowhere_else(tmp_path: Path) -> None:
    path = tmp_path / "p.py"
    path.write_text(
        "import torch\nrows = 512\ncols = 256\n"
        "class Model(torch.nn.Module):\n    def forward(self, x):\n        return torch.log10(x * x + 1)\n"
        "def get_inputs():\n    return [torch.rand(rows, cols)]\n"
    )
    assert not any(case.one_signed for case in small_cases(load_problem(path), 0))


def test_sizes_hidden_in_the_code_still_get_layouts(tmp_path: Path) -> None:
    text = (
        "import torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n        return x * 2\n"
        "def get_inputs():\n    return [torch.rand({rows}, 64)]\n"
    )
    small, large = tmp_path / "small.py", tmp_path / "large.py"
    small.write_text(text.format(rows=32))
    large.write_text(text.format(rows=100_000_000))
    cases = small_cases(load_problem(small), 0)
    assert cases and all(not case.sizes for case in cases)
    assert all(case.layout != "given" or case.distribution != "nominal" for case in cases)
    assert small_cases(load_problem(large), 0) == ()


def test_a_reference_that_is_never_finite_has_no_derived_cases(tmp_path: Path) -> None:
    path = tmp_path / "p.py"
    path.write_text(
        "import torch\nrows = 99\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        return x / 0\ndef get_inputs():\n    return [torch.rand(rows)]\n"
    )
    assert small_cases(load_problem(path), 0) == ()


def test_reduced_nominal() -> None:
    softmax = problem("2_RowSoftmax")
    reduced = reduced_nominal(softmax, 2 << 30)
    assert reduced is not None and not reduced.derived and reduced.sizes == {"batch_size": 1024}
    assert reduced_nominal(softmax, 8 << 30) == softmax.nominal()
    assert reduced_nominal(softmax, 2) is None
    square = reduced_nominal(problem("6_UpperTriangular"), 8 << 20)
    assert square is not None and square.sizes["M"] == square.sizes["K"] >= 512
    dependent = problem("8_DataDependent")
    fitting = reduced_nominal(dependent, 1 << 20)
    assert fitting is not None and input_bytes(dependent, fitting) <= 1 << 20


def test_weights_are_scaled_down_where_that_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "p.py"
    path.write_text(
        "import torch\nrows = 128\ninner = 1024\nouter = 4096\n"
        "class Model(torch.nn.Module):\n    def __init__(self, inner, outer):\n        super().__init__()\n"
        "        self.layer = torch.nn.Linear(inner, outer)\n"
        "    def forward(self, x):\n        return self.layer(x)\n"
        "def get_inputs():\n    return [torch.rand(rows, inner)]\n"
        "def get_init_inputs():\n    return [inner, outer]\n"
    )
    linear = load_problem(path)
    assert reduced_nominal(linear, 1 << 19) == linear.nominal()
    small = reduced_nominal(linear, 1 << 19, with_weights=True)
    assert small is not None
    sizes = {"rows": 128, "inner": 1024, "outer": 4096, **small.sizes}
    assert 4 * (sizes["rows"] * sizes["inner"] + (sizes["inner"] + 1) * sizes["outer"]) <= 1 << 19
    assert reduced_nominal(linear, 1 << 30, with_weights=True) == linear.nominal()


def test_tuples_follow_the_constants_they_name(tmp_path: Path) -> None:
    path = tmp_path / "p.py"
    path.write_text(
        "import torch\nbatch = 512\nshape = (batch, 3, 2000)\n"
        "class Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        return x * torch.ones(batch, 1, 1)\n"
        "def get_inputs():\n    return [torch.rand(shape)]\n"
    )
    subject = load_problem(path)
    cases = small_cases(subject, 0)
    assert {"ragged", "off_by_one"} <= labels(cases)
    for case in cases:
        (x,) = subject.bind(case).make_inputs(0, CPU)
        assert x.shape[0] == case.sizes.get("batch", 512) and x.shape[2] < 2000


def test_costly_references_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "p.py"
    path.write_text(
        "import torch\nrows = 4096\nclass Model(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.weight = torch.nn.Parameter(torch.empty(1, 1))\n"
        "    def forward(self, x):\n        w = self.weight.expand(1 << 20, 1 << 15)\n"
        "        return x @ w\n"
        "def get_inputs():\n    return [torch.rand(rows, 1 << 20)]\n"
    )
    # One call is 10^11 operations however few the rows: nothing is run, nothing is derived.
    assert small_cases(load_problem(path), 0) == ()


def test_constants_the_model_reads_are_never_changed(tmp_path: Path) -> None:
    """A candidate has its own copy of them: another value would be wrong by no fault of its own."""
    path = tmp_path / "reads.py"
    path.write_text(
        "import torch\nbatch_size = 64\nwidth = 96\nbound = 3\n"
        "class Model(torch.nn.Module):\n"
        "    def forward(self, x):\n        return x.clamp(max=bound) + torch.zeros(batch_size, 1)\n"
        "def get_inputs():\n    return [torch.randn(batch_size, width)]\n"
        "def get_init_inputs():\n    return []\n"
    )
    sizes = [case.sizes for case in small_cases(load_problem(path), 1)]
    assert any("width" in changed for changed in sizes)
    assert not any("batch_size" in changed or "bound" in changed for changed in sizes)


def test_items_of_list_constants_are_sizes(tmp_path: Path) -> None:
    path = tmp_path / "layers.py"
    path.write_text(
        "import torch\nwidth = 64\nlayers = [512, 768]\n"
        "class Model(torch.nn.Module):\n"
        "    def __init__(self, width, layers):\n        super().__init__()\n"
        "        ends = [width, *layers]\n"
        "        parts = [torch.nn.Linear(a, b) for a, b in zip(ends, ends[1:])]\n"
        "        self.net = torch.nn.Sequential(*parts)\n"
        "    def forward(self, x):\n        return self.net(x)\n"
        "def get_inputs():\n    return [torch.randn(8, width)]\n"
        "def get_init_inputs():\n    return [width, layers]\n"
    )
    changed = [case.sizes["layers"] for case in small_cases(load_problem(path), 1) if "layers" in case.sizes]
    assert changed
    assert all(isinstance(value, list) and max(value) < 512 for value in changed)


def test_one_case_is_larger_than_the_nominal_size_in_every_dimension() -> None:
    subject = problem("10_GroupedConv")
    beyond = [case for case in subject.derived_cases(0) if case.name == f"derived-{BEYOND}"]
    assert len(beyond) == 1
    assert input_bytes(subject, beyond[0]) > input_bytes(subject, subject.nominal())
    assert beyond[0].layout == "given" and beyond[0].distribution == "nominal"
