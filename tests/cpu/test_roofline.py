"""The physical limit: floors and lines under made-up ceilings, work counted on modules, ceilings of a CPU."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from specifications import Given

from assay.problems import Cost, Instance, load_problem
from assay.records import UserError, from_plain, to_plain
from assay.records.speed import Roofline
from assay.speed import ceilings as measuring
from assay.speed.ceilings import KINDS, Ceilings, load_ceilings, measure_ceilings
from assay.speed.cost import Work, arithmetic_kind, count_work, distinct_bytes
from assay.speed.gpu_state import count_others, read_gpu_state
from assay.speed.roofline import bandwidth_bytes_per_s, place_under_roof

CPU = torch.device("cpu")
EXAMPLES = Path(__file__).parents[2] / "examples"
TASKS = Path(__file__).parent / "data" / "kernelbot"
MILLION = 1_000_000

# One byte a microsecond is 1e6 bytes a second: limits read off in microseconds.
MADE_UP = Ceilings(
    device_name="made up",
    read_bytes_per_s=4e6,
    copy_bytes_per_s=3e6,
    write_bytes_per_s=2e6,
    flops_per_s={"float32": 1e6, "bfloat16": 10e6},
    empty_kernel_us=2.0,
    peak_bytes_per_s=5e6,
    peak_flops_per_s={"float32": 2e6, "bfloat16": 20e6},
    l2_bytes=100,
)


class Priced(Given):
    """An instance with a declared cost, or none."""

    def __init__(self, cost: Cost | None) -> None:
        super().__init__(lambda x: x, [])
        self._cost = cost

    def cost(self) -> Cost | None:
        return self._cost


def counted(
    module: torch.nn.Module, *inputs: Any, cost: Cost | None = None, allow_tf32: bool = False
) -> Work:
    instance: Any = Priced(cost)
    return count_work(instance, module, list(inputs), CPU, allow_tf32)


def declared(read: int, written: int = 0, **flops: int) -> Work:
    return Work(read, written, flops, "declared")


class Product(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b


def test_bandwidth_follows_the_mix_of_reads_and_writes() -> None:
    assert [bandwidth_bytes_per_s(share, MADE_UP) for share in (0, 0.25, 0.5, 0.75, 1)] == [
        2e6,
        2.5e6,
        3e6,
        3.5e6,
        4e6,
    ]


@pytest.mark.parametrize(
    ("work", "bound", "floor_us"),
    [
        (declared(400), "memory", 100.0),
        (declared(0, 400), "memory", 200.0),
        (declared(300, 300), "memory", 200.0),
        (declared(400, float32=300), "compute", 300.0),
        (declared(400, float32=60, bfloat16=1000), "compute", 160.0),
        (declared(4), "latency", 2.0),
        (declared(0), "latency", 2.0),
        (declared(4, made_up_kind=MILLION), "latency", 2.0),
    ],
)
def test_the_floor_is_the_tightest_limit(work: Work, bound: str, floor_us: float) -> None:
    placed = place_under_roof(work, MADE_UP, 2 * floor_us)
    assert (placed.bound, placed.floor_us, placed.percent) == (
        bound,
        pytest.approx(floor_us),
        pytest.approx(50),
    )
    assert placed.flops == sum(work.flops.values())


def test_a_placing_is_a_record_even_of_no_time() -> None:
    placed = place_under_roof(declared(400), MADE_UP, 0.0)
    assert placed.percent == float("inf")
    assert from_plain(Roofline, to_plain(placed)) == placed


@pytest.mark.parametrize(
    ("work", "line_us"),
    [
        (declared(500), 100.0),
        (declared(500, 100), 100.0),  # the writes fit into the cache
        (declared(500, 150), 110.0),
        (declared(0, bfloat16=2000), 100.0),
        (declared(500, bfloat16=4000), 200.0),
        (declared(0, made_up_kind=MILLION), 1.0),
        (declared(1), 1.0),  # half an empty kernel
        (Work(500, 100, {"bfloat16": 4000}, "counted"), 1.0),
        (Work(500, 600, {"bfloat16": 4000}, "counted"), 100.0),
    ],
)
def test_the_line_rests_on_what_is_certain(work: Work, line_us: float) -> None:
    assert place_under_roof(work, MADE_UP, 1.0).invalid_below_us == pytest.approx(line_us)


def test_the_line_lies_under_the_floor() -> None:
    for work in (declared(500, 700, float32=5), declared(1), declared(0, bfloat16=MILLION)):
        placed = place_under_roof(work, MADE_UP, 1.0)
        assert placed.invalid_below_us < placed.floor_us


def test_wide_products_put_together_from_narrow_ones_are_honest() -> None:
    """Three bfloat16 products at 20 beat one float32 product at 2."""
    assert place_under_roof(declared(0, float32=2000), MADE_UP, 1.0).invalid_below_us == pytest.approx(300)


def test_a_matmul_is_counted() -> None:
    work = counted(Product(), torch.randn(8, 16), torch.randn(16, 32))
    assert work == Work((8 * 16 + 16 * 32) * 4, 8 * 32 * 4, {"float32": 2 * 8 * 16 * 32}, "counted")


def test_flops_are_counted_by_the_dtype_they_run_in() -> None:
    class Mixed(torch.nn.Module):
        def forward(self, a: torch.Tensor) -> torch.Tensor:
            half = a.bfloat16()
            return (half @ half).float() + a @ a.double().float()

    assert counted(Mixed(), torch.randn(8, 8)).flops == {"bfloat16": 1024, "float32": 1024}


def test_tf32_counts_only_where_it_exists() -> None:
    a = torch.randn(4, 4)
    assert set(counted(Product(), a, a, allow_tf32=True).flops) == {"float32"}
    assert arithmetic_kind(torch.float32, tf32=True) == "tf32"
    assert arithmetic_kind(torch.float16, tf32=True) == "float16"
    assert arithmetic_kind(torch.float8_e5m2, tf32=False) in KINDS
    assert arithmetic_kind(torch.complex64, tf32=False) == "float32"


def test_parameters_and_buffers_are_read_and_left_alone() -> None:
    module = torch.nn.Sequential(torch.nn.LayerNorm(10), torch.nn.BatchNorm1d(10), torch.nn.Dropout())
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    x = torch.randn(6, 10)
    random_state = torch.get_rng_state()
    work = counted(module, x)
    assert work.bytes_read == (60 + 2 * 10 + 2 * 10 + 2 * 10) * 4 + 8
    assert work.bytes_written == 240 and work.flops == {}
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
    assert torch.equal(random_state, torch.get_rng_state())


def test_state_kept_as_an_attribute_is_left_alone() -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0
            self.seen = torch.zeros(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            self.seen += x
            return x + self.seen

    module = Counting()
    assert counted(module, torch.ones(3)).bytes_written == 12
    assert module.calls == 0 and not module.seen.any()


def test_modules_that_cannot_be_copied_are_run_as_they_are() -> None:
    class Uncopyable(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.source = json  # a Python module
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.get_buffer("total").add_(x) * 2

    module = Uncopyable()
    work = counted(module, torch.ones(3))
    assert (work.bytes_read, work.bytes_written) == (24, 12)
    assert not module.get_buffer("total").any()


def test_recurrent_layers_count_by_their_bytes() -> None:
    work = counted(torch.nn.LSTM(8, 16), torch.randn(5, 2, 8))
    assert work.bytes_read == (5 * 2 * 8 + 4 * 16 * (8 + 16 + 2)) * 4
    assert work.bytes_written == (5 * 2 * 16 + 2 * 2 * 16) * 4


def test_expanded_and_repeated_inputs_count_once() -> None:
    row = torch.randn(1, 64)
    work = counted(Product(), row.expand(16, 64), torch.randn(64, 4))
    assert work.bytes_read == (64 + 64 * 4) * 4
    square = torch.randn(8, 8)
    assert counted(Product(), square, square).bytes_read == 256
    assert distinct_bytes([square, square[:4], square.t(), torch.randn(2)]) == 256 + 8
    assert distinct_bytes([square[:4], square[4:6], torch.empty(0)]) == 6 * 32
    assert distinct_bytes([torch.arange(10).unfold(0, 4, 1)]) == 80


def test_outputs_that_are_views_of_given_memory_are_not_written() -> None:
    class Views(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("constant", torch.ones(5))
            self.weight = torch.nn.Parameter(torch.ones(5))
            self.plain = torch.ones(5)

        def forward(self, x: torch.Tensor) -> dict[str, Any]:
            made = x + 1
            return {
                "a": [x.t(), self.constant, self.weight, self.plain],
                "b": made,
                "c": made.view(-1),
                "d": 3.0,
            }

    assert counted(Views(), torch.ones(2, 3)).bytes_written == 24


def test_operations_the_counter_cannot_count_are_still_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.utils import flop_counter

    def refuse(*_args: Any, **_kwargs: Any) -> int:
        raise AssertionError("a formula that does not know these shapes")

    monkeypatch.setitem(flop_counter.flop_registry, torch.ops.aten.mm, refuse)
    work = counted(Product(), torch.ones(2, 3), torch.ones(3, 4))
    assert (work.bytes_written, work.flops) == (32, {})


def test_a_module_that_fails_is_not_covered_up() -> None:
    with pytest.raises(RuntimeError):
        counted(Product(), torch.ones(2, 3), torch.ones(2, 3))


def test_a_declared_cost_is_taken_and_split_by_the_real_outputs() -> None:
    problem = load_problem(EXAMPLES / "layernorm")
    for case, element_bytes, kind in (("nominal", 4, "float32"), ("float16", 2, "float16")):
        chosen = next((c for c in problem.declared_cases() if c.name == case), problem.nominal())
        instance: Instance = problem.bind(chosen)
        work = count_work(
            instance, instance.build_reference(0, CPU), instance.make_inputs(0, CPU), CPU, allow_tf32=False
        )
        output_bytes = 256 * 1000 * element_bytes
        assert work.bytes_written == output_bytes
        assert work.bytes_read == output_bytes + 2 * 1000 * element_bytes
        assert (work.flops, work.source) == ({kind: 8 * 256 * 1000}, "declared")


def test_a_declared_cost_below_its_outputs_reads_nothing() -> None:
    work = counted(Product(), torch.ones(4, 4), torch.ones(4, 4), cost=Cost(bytes=10, flops=7))
    assert work == Work(0, 10, {"float32": 7}, "declared")


def test_the_kind_of_a_declared_cost_is_that_of_most_inputs() -> None:
    class Embedding(torch.nn.Module):
        def forward(self, table: torch.Tensor, scale: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
            return table[rows].float() * scale

    table, scale = torch.randn(50, 4).half(), torch.randn(4)
    work = counted(Embedding(), table, scale, torch.arange(9), cost=Cost(bytes=1000, flops=3))
    assert work.flops == {"float16": 3}


def test_tasks_without_a_cost_are_counted() -> None:
    problem = load_problem(TASKS / "rowsum")
    instance = problem.bind(problem.nominal())
    inputs = instance.make_inputs(0, CPU)
    work = count_work(instance, instance.build_reference(0, CPU), inputs, CPU, allow_tf32=False)
    assert work.source == "counted" and work.bytes_read > work.bytes_written > 0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ceilings") / "not there yet"


@pytest.fixture(scope="module")
def here(folder: Path) -> Ceilings:
    return load_ceilings(CPU, folder)


def test_a_cpu_has_ceilings(here: Ceilings) -> None:
    bandwidths = (here.read_bytes_per_s, here.copy_bytes_per_s, here.write_bytes_per_s)
    assert min(bandwidths) > 0 and here.peak_bytes_per_s > max(bandwidths)
    assert {"float64", "float32"} <= set(here.flops_per_s) <= set(KINDS)
    assert all(here.peak_flops_per_s[kind] > rate > 0 for kind, rate in here.flops_per_s.items())
    assert here.device_name and here.empty_kernel_us > 0 and here.l2_bytes >= 0


def test_real_times_stand_above_the_line(here: Ceilings) -> None:
    work = counted(Product(), torch.ones(8, 8), torch.ones(8, 8))
    placed = place_under_roof(work, here, 1000.0)
    assert 0 < placed.invalid_below_us < 1000 and 0 < placed.percent < 100


def test_measuring_leaves_the_process_as_it_was(here: Ceilings) -> None:
    random_state, flag = torch.get_rng_state(), torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        assert measure_ceilings(CPU).device_name == here.device_name
        assert torch.backends.cuda.matmul.allow_tf32
    finally:
        torch.backends.cuda.matmul.allow_tf32 = flag
    assert torch.equal(random_state, torch.get_rng_state())


def test_ceilings_are_measured_once(here: Ceilings, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file,) = folder.iterdir()
    assert load_ceilings(CPU, folder) == here
    marked = dataclasses.replace(here, device_name="read from the file")
    file.write_text(json.dumps(to_plain(marked)))
    assert load_ceilings(CPU, folder) == marked
    # Another number of threads is another device.
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1000)
    monkeypatch.setattr(measuring, "measure_ceilings", lambda device: here)
    assert load_ceilings(CPU, folder) == here
    assert len(list(folder.iterdir())) == 2


@pytest.mark.parametrize(
    "broken", ["", "{", "[1]", "{}", "\xff", '{"read_bytes_per_s": 0.0}', '{"l2_bytes": "x"}']
)
def test_a_broken_file_is_measured_anew(
    here: Ceilings, tmp_path: Path, broken: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr(measuring, "measure_ceilings", lambda device: here)
    load_ceilings(CPU, tmp_path)
    (file,) = tmp_path.iterdir()
    whole = json.loads(file.read_text())
    if broken.startswith('{"'):
        broken = json.dumps({**whole, **json.loads(broken)})
    file.write_bytes(broken.encode("latin-1"))
    assert load_ceilings(CPU, tmp_path) == here
    assert json.loads(file.read_text()) == whole
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_that_cannot_be_written_is_said_so(here: Ceilings, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(measuring, "measure_ceilings", lambda device: here)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="writable"):
        load_ceilings(CPU, tmp_path / "file")


def test_a_cpu_has_no_gpu_state_and_no_strangers() -> None:
    assert read_gpu_state(CPU, frozenset()) is None
    # Hidden, not alive, and alive but without a GPU open: none of them is a stranger on the GPU.
    assert count_others([0, 1 << 30], frozenset()) == 0
