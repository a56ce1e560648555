"""Who answers a call: whoever was faster at the nearest size, unless somebody says otherwise.

Run as a program, this file calls the functions whose kernels can be interpreted, with a table that says that
torch is faster, and prints what was chosen and how far the two answers are apart.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from interpreting import interpreted
from torch.nn.functional import scaled_dot_product_attention

import assay.tiles
from assay.tiles import choice, launch, operators
from assay.tiles.catalog import KERNELS
from assay.tiles.choice import BadTable, Question, always, chosen, find, is_torchs, read
from assay.tiles.kernels import attention, fp8_blocks, fp8_gemm, gemm
from assay.tiles.table_row import Row
from assay.tiles.table_rows import rows
from assay.tiles.table_small import small_rows

CPU = torch.device("cpu")
PRODUCT = "16 bits rows by rows"
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "tiles_measured.py"
Table = Callable[..., None]


def row(kernel: str, kind: str, ratio: float, device: str = "cpu", **sizes: int) -> dict[str, Any]:
    return {"kernel": kernel, "kind": kind, "device": device, "sizes": sizes, "ratio": ratio}


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Table]:
    """Puts rows in place of those that the package has."""
    monkeypatch.setattr(choice, "MEASURED", tmp_path / "measured.json")

    def write(*rows: Any) -> None:
        choice.MEASURED.write_text(json.dumps({"rows": rows}))
        choice.forget()

    yield write
    monkeypatch.undo()
    choice.forget()


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Notes down tile kernels of products and attention, which leave zeros."""
    found: list[Any] = []

    def noted(kernel: Any, programs: int, arguments: tuple[Any, ...], *_: Any) -> None:
        found.append(kernel)

    for module in (gemm, attention, fp8_blocks, fp8_gemm):
        monkeypatch.setattr(module, "launch", noted)
        monkeypatch.setattr(module, "multiprocessors", lambda tensor: 132)
    monkeypatch.setattr(fp8_gemm, "runs_on_hopper", lambda *tensors: True)
    return found


def half(*shape: int) -> torch.Tensor:
    return torch.randn(shape).bfloat16()


def product(**sizes: int) -> Question:
    return Question("gemm", PRODUCT, "cpu", sizes)


def test_the_nearest_size_counts(table: Table) -> None:
    table(
        row("gemm", PRODUCT, 0.11, m=128, n=128, k=65536),
        row("gemm", PRODUCT, 1.02, m=4096, n=4096, k=4096),
        row("gemm", PRODUCT, 0.5, m=4096, n=4096, k=4096, device="other"),
        row("gemm", "other", 0.5, m=4096, n=4096, k=4096),
    )
    deep, square = find(product(m=256, n=200, k=30000)), find(product(m=2048, n=8192, k=4000))
    assert deep.is_torchs and not square.is_torchs
    assert deep.why == "torch: 0.11 of torch's speed at the nearest size measured (m 128, n 128, k 65536)"
    assert square.why.startswith("tiles: 1.02 of torch's speed at the nearest size measured (m 4096")
    halfway = find(
        product(m=1024, n=1024, k=32768)
    )  # 3, 3, 1 steps of two from the one, 2, 2, 3 from the other
    assert not halfway.is_torchs


@pytest.mark.parametrize(("ratio", "is_by_torch"), [(0.96, True), (0.97, False), (1.5, False)])
def test_a_reading_near_one_says_little(table: Table, ratio: float, is_by_torch: bool) -> None:
    table(row("gemm", PRODUCT, ratio, m=1, n=1, k=1))
    assert is_torchs("gemm", PRODUCT, CPU, m=5, n=6, k=7) is is_by_torch


def test_what_was_not_measured_is_the_tile_kernels(table: Table) -> None:
    table(row("gemm", PRODUCT, 0.5, device="NVIDIA H200", m=1, n=1, k=1), row("softmax", "16 bits", 0.5, r=1))
    assert find(product(m=1, n=1, k=1)).why == "tiles: no such kind was measured on cpu"
    assert not is_torchs("gemm", PRODUCT, CPU, m=1, n=1, k=1)
    assert not is_torchs("softmax", "32 bits", CPU, r=1)


def test_an_answer_is_looked_up_once(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table(row("gemm", PRODUCT, 0.5, m=1, n=1, k=1))
    asked = []
    monkeypatch.setattr(choice, "find", lambda question: (asked.append(question), find(question))[1])
    assert all(is_torchs("gemm", PRODUCT, CPU, m=3, n=3, k=size) for size in (3, 3, 4, 3, 4))
    assert [question.sizes["k"] for question in asked] == [3, 4]


def test_answers_are_forgotten_when_there_are_too_many(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table()
    monkeypatch.setattr(choice, "MOST_FOUND", 3)
    for size in range(1, 9):
        is_torchs("softmax", "16 bits", CPU, rows=size)
    assert 0 < len(choice._FOUND) <= 3


GOOD = row("gemm", PRODUCT, 1.0, m=1, n=1, k=1)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "cannot be read as JSON"),
        ("[]", "has no list of rows"),
        ('{"rows": 3}', "has no list of rows"),
        (json.dumps({"rows": [GOOD, 7]}), "row 2 is 7: want an object"),
        (json.dumps({"rows": [GOOD | {"kind": 7}]}), "row 1: kernel, kind and device are"),
        (json.dumps({"rows": [GOOD | {"sizes": {"m": 0}}]}), "row 1: sizes are {'m': 0}: want whole numbers"),
        (json.dumps({"rows": [GOOD | {"sizes": [1]}]}), "row 1: sizes are"),
        (json.dumps({"rows": [GOOD | {"ratio": "fast"}]}), "row 1: the ratio is 'fast'"),
        (json.dumps({"rows": [GOOD | {"ratio": 0}]}), "row 1: the ratio is 0: want a number above 0"),
        (json.dumps({"rows": [GOOD | {"ratio": True}]}), "row 1: the ratio is True"),
        (
            json.dumps({"rows": [GOOD, GOOD | {"sizes": {"m": 1}}]}),
            "row 2: sizes of gemm are named otherwise",
        ),
    ],
)
def test_a_table_that_is_none_is_an_error(table: Table, text: str, words: str) -> None:
    choice.MEASURED.write_text(text)
    choice.forget()
    with pytest.raises(BadTable, match=r"measured\.json") as error:
        is_torchs("gemm", PRODUCT, CPU, m=1, n=1, k=1)
    assert words in str(error.value)


def test_a_table_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadTable, match="nothing.json cannot be read"):
        read(tmp_path / "nothing.json")


def test_the_package_has_a_table() -> None:
    rows = read(choice.MEASURED)
    assert rows and {one.question.kernel for one in rows} <= KERNELS.keys()
    assert "cpu" not in {one.question.device for one in rows}


def test_somebody_says_who_answers(table: Table) -> None:
    table(row("gemm", PRODUCT, 0.5, m=1, n=1, k=1))

    def ask() -> bool:
        return is_torchs("gemm", PRODUCT, CPU, m=1, n=1, k=1)

    kernel, x = gemm.gemm_kernel, torch.zeros(2)
    before = launch.call_of(kernel, x)
    with always("tiles"):
        assert not ask() and launch.call_of(kernel, x) != before
        with assay.tiles.always("torch"):
            assert ask()
        assert not ask()
    assert ask() and launch.call_of(kernel, x) == before
    with pytest.raises(ValueError, match="'cuda' cannot answer: use one of faster, tiles, torch"):
        always("cuda")


@pytest.fixture(scope="module")
def fresh() -> list[str]:
    """A process that imports the package: whether torch's compiler came along, and then who answers, as
    environments say it one after the other."""
    told = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, check=True)
    return told.stdout.splitlines()


FRESH = f"""
import importlib, os, sys

os.environ[{choice.VARIABLE!r}] = "tiles"
from assay.tiles import always, choice, gemm

print("torch._dynamo" in sys.modules)
print(choice.answer)
for word in ("", "torch", "nobody"):
    os.environ[choice.VARIABLE] = word
    try:
        print(importlib.reload(choice).answer)
    except ValueError as error:
        print(error)
"""


def test_the_environment_says_who_answers(fresh: list[str]) -> None:
    *answers, complaint = fresh[1:]
    assert answers == ["tiles", "faster", "torch"]
    assert complaint.startswith(f"{choice.VARIABLE}: 'nobody' cannot answer: use one of faster, tiles, torch")


def test_a_kernel_is_there_without_torchs_compiler(fresh: list[str]) -> None:
    """Which takes seconds to import, in every process that a candidate runs in."""
    assert fresh[0] == "False"


def torchs_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return gemm._gemm(a, b, None, None, "")


def test_a_product_is_torchs_where_that_is_faster(table: Table, launched: list[Any]) -> None:
    table(row("gemm", PRODUCT, 0.5, m=64, n=64, k=64), row("gemm", PRODUCT, 1.1, m=4096, n=64, k=64))
    a, b = half(40, 64), half(64, 48)
    assert torch.equal(torchs_product(a, b), a @ b) and not launched
    assert torch.equal(torch.compile(torchs_product, backend="aot_eager", fullgraph=True)(a, b), a @ b)
    assert not launched
    torchs_product(half(2048, 64), b)
    assert len(launched) == 1
    with always("tiles"):
        torchs_product(a, b)
    operators.gemm(a, b, None, None, "")
    assert len(launched) == 3 and choice.answer == "faster"


def test_a_copy_of_the_left_side_is_asked_about_before_it_is_made(table: Table, launched: list[Any]) -> None:
    """And once."""
    table(row("gemm", "16 bits columns by rows", 0.8, m=64, n=64, k=64))
    a, b = half(64, 40).T, half(64, 48)
    assert chosen(torchs_product, a, b) == (
        "gemm (16 bits columns by rows; m 40, n 48, k 64): "
        "torch: 0.80 of torch's speed at the nearest size measured (m 64, n 64, k 64)"
    )
    assert torch.equal(torchs_product(a, b), a @ b) and not launched
    table(row("gemm", PRODUCT, 0.8, m=64, n=64, k=64))
    assert chosen(torchs_product, a, b).count("tiles: no such kind") == 1 and len(launched) == 1


def test_a_column_that_lies_askew_is_torchs(launched: list[Any]) -> None:
    """As in the gradient of a product of one row: no descriptor takes it, and no copy changes it."""
    a, b = half(1, 64).T, half(1, 48)
    assert torch.equal(torchs_product(a, b), a @ b) and not launched


@pytest.mark.parametrize("ends", ["", " bias", " bias silu", " bias silu residual"])
def test_what_comes_after_a_product_is_a_kind_of_its_own(
    table: Table, launched: list[Any], ends: str
) -> None:
    a, b, bias, residual = half(40, 64), half(48, 64).T, half(48), half(40, 48)
    table(row("gemm", f"16 bits rows by columns{ends}", 0.5, m=1, n=1, k=1))
    given = (
        bias if "bias" in ends else None,
        residual if "residual" in ends else None,
        "silu" if "silu" in ends else "",
    )
    got = gemm._gemm(a, b, *given)
    wanted = gemm.reference(a, b, *given)
    assert not launched
    torch.testing.assert_close(got.float(), wanted.float(), atol=0.1, rtol=0.02)


def test_gradients_pass_through_torchs_product(table: Table, launched: list[Any]) -> None:
    table(row("gemm", PRODUCT, 0.5, m=1, n=1, k=1))
    leaves = half(40, 64).requires_grad_(), half(64, 48).requires_grad_()
    grad = half(40, 48)
    got = torch.autograd.grad(torchs_product(*leaves), leaves, grad)
    for one, other in zip(got, torch.autograd.grad(leaves[0] @ leaves[1], leaves, grad), strict=True):
        torch.testing.assert_close(one, other, atol=0.1, rtol=0.02)
    torch.library.opcheck(gemm._gemm.overload, (*leaves, None, None, ""))
    assert not launched


def test_a_product_of_few_bits_is_torchs_where_torch_takes_it(table: Table, launched: list[Any]) -> None:
    table(row("fp8_gemm", "one scale", 0.5, m=1, n=1, k=1))
    given = fp8_gemm.inputs(32, 48, 64, True, "cpu")
    got, wanted = fp8_gemm._fp8_gemm(*given), fp8_gemm.reference(*given)
    assert not launched
    torch.testing.assert_close(got.float(), wanted.float(), atol=0.1, rtol=0.02)
    fp8_gemm._fp8_gemm(*fp8_gemm.inputs(32, 40, 64, True, "cpu"))
    assert len(launched) == 1


def test_a_product_of_scaled_blocks_is_torchs_where_torch_reads_their_scales_alone(
    table: Table, launched: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """cuBLAS takes scales of four blocks of K at once: where there are three, it reads what lies behind. What
    it does with rows that are no fours, and with scales that begin anywhere, is not said."""
    table(row("fp8_gemm", "blocks", 0.5, m=1, n=1, k=1))
    given: list[Any] = []
    monkeypatch.setattr(torch, "_scaled_mm", lambda *args, **_: given.append(args) or args[0].bfloat16())
    a, b, scale_a, scale_b = fp8_gemm.inputs(128, 256, 512, False, "cpu")
    fp8_gemm._fp8_gemm(a, b, scale_a, scale_b)
    fp8_gemm._fp8_gemm(a, b, scale_a, scale_b.T.contiguous().T)
    assert not launched and [args[3].stride() for args in given] == 2 * [(1, 4)]
    for sizes in ((128, 256, 384), (130, 256, 512)):
        fp8_gemm._fp8_gemm(*fp8_gemm.inputs(*sizes, False, "cpu"))
    assert len(launched) == 2 and len(given) == 2
    askew = torch.empty(1 + scale_b.numel())[1:].view_as(scale_b).copy_(scale_b)
    fp8_gemm._fp8_gemm(a, b, scale_a, askew)
    assert all(scale.data_ptr() % 16 == 0 for scale in given[2][2:])


@pytest.mark.parametrize("is_causal", [False, True])
def test_attention_forward_only_is_torchs_where_that_is_faster(
    table: Table, launched: list[Any], is_causal: bool
) -> None:
    kind = "16 bits D=64" + (" causal" if is_causal else "")
    table(row("attention", kind, 0.9, heads=1, group=1, s=1, t=1))
    q, k, v = half(2, 4, 100, 64), half(2, 2, 100, 64), half(2, 2, 100, 64)
    wanted = scaled_dot_product_attention(q, k, v, is_causal=is_causal, enable_gqa=True)
    got, sums = attention._attention(q, k, v, is_causal, 0.125, True)
    whole = attention._attention.overload, (q, k, v, is_causal, 0.125, True)
    torch.library.opcheck(*whole, test_utils=("test_schema", "test_faketensor"))
    assert torch.equal(got, wanted) and got.is_contiguous() and sums.shape == (2, 4, 100) and not launched
    attention._attention(q, k, v, is_causal, 0.125)  # which may be asked for gradients
    assert len(launched) == 1
    if is_causal:
        attention._attention(q[:, :, 1:].contiguous(), k, v, True, 0.125, True)
        assert len(launched) == 2


def test_attention_forward_only_keeps_nothing_for_gradients(table: Table, launched: list[Any]) -> None:
    table(row("attention", "16 bits D=64", 0.9, heads=1, group=1, s=1, t=1))
    q, k, v = (half(1, 1, 8, 64).requires_grad_() for _ in range(3))
    with pytest.raises(RuntimeError, match="forward only"):
        attention._attention(q, k, v, False, 0.125, True)[0].sum().backward()


class Seeming(torch.Tensor):
    """On a CPU, and seems to be on a GPU."""

    is_cuda = True


@pytest.fixture
def seemingly(monkeypatch: pytest.MonkeyPatch) -> Callable[..., torch.Tensor]:
    """Tensors that seem to be on a Hopper."""
    for module in (attention, gemm):
        monkeypatch.setattr(module, "runs_on_hopper", lambda *tensors: True)
    return lambda *shape: half(*shape).as_subclass(Seeming)


@pytest.mark.parametrize("is_faster_by_torch", [False, True])
def test_attention_with_gradients_is_chosen_as_a_whole(
    table: Table,
    launched: list[Any],
    seemingly: Callable[..., torch.Tensor],
    is_faster_by_torch: bool,
) -> None:
    """Torch's brings its own gradients."""
    ratios = (0.8, 1.2) if is_faster_by_torch else (1.2, 0.8)
    at = {"heads": 1, "group": 1, "s": 1, "t": 1}
    kinds = "16 bits D=64 with gradients", "16 bits D=64"
    table(*(row("attention", kind, ratio, **at) for kind, ratio in zip(kinds, ratios, strict=True)))
    leaves = [seemingly(1, 2, 64, 64).requires_grad_() for _ in range(3)]
    made = attention.attention(*leaves)
    assert len(launched) == (not is_faster_by_torch)
    if is_faster_by_torch:
        got = torch.autograd.grad(made.sum(), leaves)
        wanted = torch.autograd.grad(attention.reference(*leaves).sum(), leaves)
        for one, other in zip(got, wanted, strict=True):
            torch.testing.assert_close(one, other, atol=0.05, rtol=0.05)
    with torch.no_grad():
        assert len(launched) == (not is_faster_by_torch)
        attention.attention(*leaves)
    assert len(launched) == 1


def test_a_products_gradients_are_each_chosen(
    table: Table, launched: list[Any], seemingly: Callable[..., torch.Tensor]
) -> None:
    table(row("gemm", "16 bits columns by rows", 0.8, m=64, n=64, k=64))
    kept = SimpleNamespace(saved_tensors=(seemingly(40, 64), seemingly(64, 48), None))
    kept.activation, kept.has_residual = "", False
    asked = choice.questions(gemm._backward, kept, seemingly(40, 48))
    assert [(question.kind, why[:5]) for question, why in asked] == [
        ("16 bits rows by columns", "tiles"),
        ("16 bits columns by rows", "torch"),
    ]
    assert len(launched) == 1


def by_two_or_more(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if is_torchs("softmax", "16 bits", x.device, rows=x.shape[0]) else x * 3


def test_a_compiler_asks_for_sizes_that_are_fixed(table: Table) -> None:
    """For others the tile kernel answers, and nothing is compiled anew for each of them."""
    table(row("softmax", "16 bits", 0.5, rows=4), row("softmax", "16 bits", 1.5, rows=4096))
    fixed, free = (
        torch.compile(by_two_or_more, backend="eager", fullgraph=True, dynamic=d) for d in (False, True)
    )
    assert [float(fixed(torch.ones(rows))[0]) for rows in (5, 4000)] == [2.0, 3.0]
    assert [float(free(torch.ones(rows))[0]) for rows in (5, 4000)] == [3.0, 3.0]


@pytest.mark.parametrize("is_dynamic", [False, True])
def test_a_compiler_gets_through_attentions_choice(
    table: Table, launched: list[Any], is_dynamic: bool
) -> None:
    table(row("attention", "16 bits D=64 with gradients", 0.8, heads=1, group=1, s=1, t=1))
    leaves = [half(1, 2, 64, 64).requires_grad_() for _ in range(3)]
    compiled = torch.compile(attention._on_hopper, backend="aot_eager", fullgraph=True, dynamic=is_dynamic)
    compiled(*leaves, False, 0.125, True)
    assert len(launched) == is_dynamic


def test_what_is_judged_is_the_tile_kernel() -> None:
    for row_of_table in (*rows(), *small_rows()):
        if isinstance(row_of_table, Row):
            assert '\nalways("tiles")\n' in row_of_table.texts(8, 16)[1]


def test_a_call_without_a_choice_says_so() -> None:
    assert chosen(assay.tiles.gemm, half(4, 8), half(8, 4)).startswith("nothing to choose")
    assert choice.noted is None


INTERPRETED = {
    "conv2d": {"dtype": torch.float16},
    "conv2d with relu": {"dtype": torch.float16},
    "conv2d_relu_maxpool": {"dtype": torch.float16},
    "layer_norm": {"dtype": torch.float32},  # of which a CPU keeps the mean in the type of x
    "rms_norm": {},
    "softmax": {},
}


@pytest.mark.parametrize("name", INTERPRETED)
def test_torch_answers_where_a_kernel_is_slower(name: str) -> None:
    for found in interpreted(__file__)[name]:
        assert "torch: 0.50 of torch's speed" in found["chosen"]
        assert found["forced"].endswith("tiles: always, as was asked for")
        assert found["apart"] < 2e-2 and found["is laid out alike"], found
        assert found["gradients apart"] < 2e-2


def answers(name: str, sizes: Any) -> dict[str, Any]:
    """Of both, once torch is said to be faster."""
    kernel = KERNELS[name.split()[0]]
    given = kernel.inputs(**sizes | INTERPRETED[name], device="cpu")
    given += (True,) if "relu" in name.split() else ()
    with always("tiles"):
        forced = chosen(kernel.run, *given)
        (question, _), *more = choice.questions(kernel.run, *given)
        by_tiles, of_tiles = outputs(kernel, given)
    assert not more
    choice.MEASURED.write_text(
        json.dumps({"rows": [row(question.kernel, question.kind, 0.5, **question.sizes)]})
    )
    choice.forget()
    by_torch, of_torch = outputs(kernel, given)
    return {
        "chosen": chosen(kernel.run, *given),
        "forced": forced,
        "apart": apart(by_tiles, by_torch),
        "gradients apart": apart(of_tiles, of_torch),
        "is laid out alike": [x.stride() for x in by_tiles] == [x.stride() for x in by_torch],
    }


def outputs(kernel: Any, given: tuple[Any, ...]) -> tuple[list[torch.Tensor], ...]:
    """And the gradients, of a function that has any."""
    made = kernel.run(*given)
    if kernel.name.startswith("conv"):
        return [made], []
    leaves = [x.detach().requires_grad_() for x in given]
    found = kernel.run(*leaves)
    found = list(found) if isinstance(found, tuple) else [found]
    return found, list(
        torch.autograd.grad(found, leaves, [torch.full_like(x, 0.5).cumsum(-1) for x in found])
    )


def apart(some: list[torch.Tensor], others: list[torch.Tensor]) -> float:
    pairs = zip(some, others, strict=True)
    return max(
        (float((a - b).float().norm() / b.float().norm().clamp_min(1e-3)) for a, b in pairs), default=0.0
    )


def test_the_table_is_filled_by_a_command(tmp_path: Path) -> None:
    """With kernels interpreted and the host's clock."""
    out = tmp_path / "measured.json"
    kept, replaced = row("softmax", "16 bits", 3.0, device="other", rows=1, columns=1), row(
        "softmax", "16 bits", 3.0, rows=1, columns=1
    )  # fmt: skip
    out.write_text(json.dumps({"rows": [kept, replaced]}))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(SCRIPT), "--small", "--out", str(out)],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = read(out)
    assert len(rows) == 6 and rows[0].question.device == "other"
    assert {one.question.kernel for one in rows[1:]} == {name.split()[0] for name in INTERPRETED}
    assert not any(one.ratio == 3.0 for one in rows[1:])
    assert "gemm 300 200 520  nothing to choose" in done.stdout


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        choice.MEASURED = Path(folder, "measured.json")
        found = {
            name: [answers(name, sizes) for sizes in KERNELS[name.split()[0]].cases[1:3]]
            for name in INTERPRETED
        }
    print(json.dumps(found))
