"""KernelBot task folders: typed cases, paired seeds, clean imports, hard-coded CUDA, and every error line."""

from __future__ import annotations

import shutil
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.problems import Case, input_bytes, load_problem, load_problems, reduced_nominal
from assay.problems.kernelbot import KernelBotProblem, paired_seed, spec_text
from assay.records.errors import UserError

yaml = pytest.importorskip("yaml")
CPU = torch.device("cpu")
DATA = Path(__file__).parent / "data" / "kernelbot"


def rowsum() -> KernelBotProblem:
    found = load_problem(DATA / "rowsum")
    assert isinstance(found, KernelBotProblem)
    return found


def copy_of(tmp_path: Path) -> Path:
    shutil.copytree(DATA, tmp_path / "set")
    return tmp_path / "set" / "rowsum"


def refusal(folder: Path, **changes: Any) -> str:
    task = yaml.safe_load((DATA / "rowsum" / "task.yml").read_text())
    task.update(changes)
    (folder / "task.yml").write_text(yaml.safe_dump({k: v for k, v in task.items() if v != "gone"}))
    with pytest.raises(UserError) as caught:
        load_problem(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_a_task_says() -> None:
    problem = rowsum()
    assert (problem.kind, problem.entry, problem.name) == ("kernelbot", "custom_kernel", "rowsum")
    assert problem.argument_names == ("data",)
    assert set(problem.support_files) == {"task.py", "utils.py"}
    names = [case.name for case in problem.declared_cases()]
    assert names == ["benchmark-1", "test-0", "test-1", "benchmark-0"]
    assert problem.nominal().name == "benchmark-1" and problem.derived_cases(3) == ()
    assert [case.name for case in problem.ranked_cases()] == ["benchmark-0", "benchmark-1"]
    assert problem.settings.timeouts_s == {
        "test_timeout": 60,
        "benchmark_timeout": 180,
        "ranked_timeout": 240,
    }
    assert problem.settings.templates == {"Python": "template.py"}
    assert [found.name for found in load_problems(DATA)] == ["rowsum"]
    assert load_problem(DATA / "rowsum" / "task.yml").digest == problem.digest


def test_ranking_by_last_counts_one_benchmark(tmp_path: Path) -> None:
    folder = copy_of(tmp_path)
    text = (folder / "task.yml").read_text().replace('ranking_by: "geom"\n', "")
    (folder / "task.yml").write_text(text)
    problem = load_problem(folder)
    assert isinstance(problem, KernelBotProblem)
    assert [case.name for case in problem.ranked_cases()] == ["benchmark-1"]
    assert problem.digest != rowsum().digest


def test_booleans_are_booleans_and_the_text_is_kept() -> None:
    problem = rowsum()
    unmasked, masked = problem.declared_cases()[1:3]
    assert unmasked.sizes["masked"] is False
    assert spec_text(unmasked) == "rows: 4; cols: 33; masked: False; seed: 11"
    assert spec_text(problem.declared_cases()[3]).endswith("scales: [2, 3]")
    (plain,) = problem.bind(unmasked).make_inputs(0, CPU)
    (holes,) = problem.bind(masked).make_inputs(0, CPU)
    assert plain[1].all() and not holes[1].all()


def test_seeds_are_paired() -> None:
    assert paired_seed(3, 4) == 31
    assert 0 < paired_seed(12, 2**63 - 1) < 2**63  # torch takes no more
    instance = rowsum().bind(Case("c", sizes={"rows": 2, "cols": 3, "masked": False, "seed": 3}))
    state = torch.get_rng_state()
    ((x, _),) = instance.make_inputs(4, CPU)
    assert torch.equal(x, torch.randn(2, 3, generator=torch.Generator().manual_seed(31)))
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.equal(x, instance.make_inputs(5, CPU)[0][0])


def test_hard_coded_cuda_runs_on_the_cpu_and_everything_is_restored() -> None:
    mine = types.ModuleType("utils")
    sys.modules["utils"] = mine
    patched = (torch.Generator, torch.cuda.synchronize)
    path = list(sys.meta_path)
    try:
        problem = rowsum()
        for case in problem.declared_cases():
            instance = problem.bind(case)
            inputs = instance.make_inputs(1, CPU)
            expected = instance.build_reference(0, CPU)(*inputs)
            assert torch.allclose(expected, (inputs[0][0] * inputs[0][1]).sum(1), atol=1e-4)
            check = instance.task_check()
            assert check is not None and check(inputs, expected) is None
            assert check(inputs, expected + 1) == "values differ"
        assert sys.modules["utils"] is mine
    finally:
        del sys.modules["utils"]
    assert not {"reference", "task", "utils"} & set(sys.modules)
    assert (torch.Generator, torch.cuda.synchronize) == patched and sys.meta_path == path


@pytest.mark.parametrize(
    ("body", "answer"),
    [("''", None), ("'bad row'", "bad row"), ("(False, '')", "failed without"), ("(True, '')", None)],
)
def test_old_and_new_checks(tmp_path: Path, body: str, answer: str | None) -> None:
    folder = copy_of(tmp_path)
    with (folder / "reference.py").open("a") as file:
        file.write(f"\ndef check_implementation(data, output):\n    return {body}\n")
    problem = load_problem(folder)
    check = problem.bind(problem.nominal()).task_check()
    assert check is not None
    said = check([torch.ones(1)], torch.ones(1))
    assert said is None if answer is None else answer in str(said)


def test_sizes_without_making_inputs() -> None:
    problem = rowsum()
    assert input_bytes(problem, problem.nominal()) == 128 * 256 * 5
    smaller = reduced_nominal(problem, 20_000)
    assert smaller is not None and smaller.name == "benchmark-0"
    assert reduced_nominal(problem, 10) is None


def test_task_errors_are_one_line(tmp_path: Path) -> None:
    folder = copy_of(tmp_path)
    assert "unknown key 'gpu': use files" in refusal(folder, gpu="H100")
    assert "the key 'tests' is missing" in refusal(folder, tests="gone")
    assert "lang 'cu' is not supported yet" in refusal(folder, lang="cu")
    assert "multi_gpu tasks are not supported" in refusal(folder, multi_gpu=True)
    assert "ranking_by is 'best': use one of last" in refusal(folder, ranking_by="best")
    assert "test_timeout is -1" in refusal(folder, test_timeout=-1)
    assert "config of a py task" in refusal(folder, config={"sources": []})
    assert "files must be a list" in refusal(folder, files="task.py")
    assert "exactly a name and a source" in refusal(folder, files=[{"name": "task.py"}])
    assert "no such file" in refusal(folder, files=[{"name": "a.py", "source": "../nowhere.py"}])
    assert "lists no reference.py" in refusal(folder, files=[{"name": "task.py", "source": "task.py"}])
    assert "no tests and no benchmarks" in refusal(folder, tests=[], benchmarks=[])
    assert "test 0 must be a mapping" in refusal(folder, tests=["rows: 3"])
    for text, words in (("a: [", "no valid YAML"), ("- 3", "must be a mapping")):
        (folder / "task.yml").write_text(text)
        with pytest.raises(UserError, match=words):
            load_problem(folder)


def test_reference_errors_are_one_line(tmp_path: Path) -> None:
    folder = copy_of(tmp_path)
    original = (folder / "reference.py").read_text()
    for text, words in (
        ("def (", "syntax error"),
        ("import not_here_at_all", "needs the package 'not_here_at_all'"),
        ("x = 1", "defines no generate_input"),
    ):
        (folder / "reference.py").write_text(text)
        problem = load_problem(folder)
        with pytest.raises(UserError, match=words) as caught:
            problem.bind(problem.nominal())
        assert "\n" not in str(caught.value)
        assert "reference" not in sys.modules
    (folder / "reference.py").write_text(original + "\ndef check_implementation(d, o):\n    return 3\n")
    problem = load_problem(folder)
    check = problem.bind(problem.nominal()).task_check()
    assert check is not None
    with pytest.raises(UserError, match="must return"):
        check([1], 1)
    with pytest.raises(UserError, match="generate_input failed with TypeError"):
        problem.bind(Case("c", sizes={"depth": 3})).make_inputs(0, CPU)
    with pytest.raises(UserError, match="makes its own inputs"):
        problem.bind(Case("c", dtype="float16"))


def test_missing_yaml_names_the_install_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(UserError, match="python -m pip install pyyaml"):
        load_problem(DATA / "rowsum")
