"""Inductor's Triton, recorded for small modules, is read, changed by actions and printed as plain Triton."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from assay.lift.record import CannotLift, Kernel, Launch, Lifted, Line
from assay.lift.triton_actions import apply, available, usual
from assay.lift.triton_kernels import read_kernels, read_launch
from assay.lift.triton_launch import launch_line, print_triton

DATA = Path(__file__).parent / "data_lift"
READABLE = (
    *("softmax", "layer_norm", "group_norm", "residual_norm", "transposed_sum", "running_sum"),
    *("product", "tall_sum", "max_pool"),
)
SMALL = {"XBLOCK": 2, "YBLOCK": 2, "R0_BLOCK": 64, "num_warps": 4, "num_stages": 1}


def recorded(name: str) -> str:
    return (DATA / f"{name}.txt").read_text()


def lifted(name: str, config: dict[str, int] | None = None) -> Lifted:
    """What the reader of call() makes of a recording, as far as it matters here."""
    text = recorded(name)
    kernels = tuple(
        replace(kernel, knobs={knob: (config or {}).get(knob, value) for knob, value in kernel.knobs.items()})
        for kernel in read_kernels(text)
    )
    by_name = {kernel.facts["inductor"]: kernel for kernel in kernels}
    call = ast.parse(text[text.index("class Runner") :])
    steps: list[Line | Launch] = []
    for node in ast.walk(call):
        if isinstance(node, ast.Assign) and "empty_strided_cuda" in ast.unparse(node):
            text_of_line = ast.unparse(node).replace("empty_strided_cuda", "torch.empty_strided")
            steps.append(Line(text_of_line.replace(", torch.float", ", dtype=torch.float")))
        elif isinstance(node, ast.Expr) and ast.unparse(node).startswith("triton_"):
            name_called = ast.unparse(node).partition(".run(")[0]
            steps.append(read_launch(by_name[name_called], ast.unparse(node)))
    returned = next(node.value for node in ast.walk(call) if isinstance(node, ast.Return))
    assert isinstance(returned, ast.Tuple)
    arguments = next(node for node in ast.walk(call) if isinstance(node, ast.Assign)).targets[0]
    names = tuple(node.id for node in ast.walk(arguments) if isinstance(node, ast.Name))
    returns = ast.unparse(returned.elts[0]) if len(returned.elts) == 1 else ast.unparse(returned)
    return Lifted("triton", "base", names, {}, (), kernels, tuple(steps), returns)


def the_kernel(problem: Lifted) -> Kernel:
    (kernel,) = problem.kernels
    return kernel


@pytest.mark.parametrize("name", READABLE)
def test_kernels_become_plain_triton(name: str) -> None:
    problem = lifted(name)
    module, lines = print_triton(problem)
    ast.parse(module)
    assert not re.search(r"inductor|triton_helpers|tl_math|rindex|roffset|RBLOCK\b(?<!0_BLOCK)", module)
    assert all("tl.debug_barrier" not in kernel.text for kernel in problem.kernels)
    assert len(lines) == sum(isinstance(step, Launch) for step in problem.steps)
    for line in lines:
        ast.parse(line)


def test_a_launch_says_everything_it_needs() -> None:
    problem = lifted("softmax", SMALL)
    _, (line,) = print_triton(problem)
    name = the_kernel(problem).name
    assert line == f"{name}[(4,)](x, buf2, XBLOCK=2, R0_BLOCK=64, num_warps=4, num_stages=1)"


def test_sizes_that_the_kernel_holds_are_no_arguments() -> None:
    kernel = the_kernel(lifted("softmax"))
    assert kernel.parameters == ("in_ptr0", "out_ptr2")
    assert "r0_numel = 200" in kernel.text
    with pytest.raises(CannotLift, match="is launched with 2 arguments"):
        read_launch(kernel, "triton_red.run(x, buf2, stream=stream0)")


def test_functions_of_one_kernel_get_names_of_their_own() -> None:
    kernel = the_kernel(lifted("running_sum"))
    functions = [node.name for node in ast.parse(kernel.text).body if isinstance(node, ast.FunctionDef)]
    assert functions == [f"{kernel.name}_add0", kernel.name]
    assert f"{kernel.name}_add0)" in kernel.text


def test_what_has_no_plain_form_is_refused_by_name() -> None:
    with pytest.raises(CannotLift, match="sort_with_index"):
        read_kernels(recorded("sorted"))
    with pytest.raises(CannotLift, match="multi_kernel"):
        read_kernels("m = async_compile.multi_kernel('m', [a, b])")
    cooperative = recorded("softmax").replace("'Grid1D'", "'CooperativeReductionGrid'")
    with pytest.raises(CannotLift, match="CooperativeReductionGrid"):
        read_kernels(cooperative)


@pytest.mark.parametrize("name", READABLE)
def test_every_action_that_is_offered_gives_another_program_that_prints(name: str) -> None:
    problem = lifted(name)
    before = print_triton(problem)
    actions = available(problem)
    assert len(set(actions)) == len(actions) > 5
    for action in actions:
        module, lines = print_triton(apply(problem, action))
        assert (module, lines) != before, action
        ast.parse(module)


def test_knobs_land_in_the_launch() -> None:
    problem = lifted("softmax", SMALL)
    name = the_kernel(problem).name
    for action, said in (
        ("XBLOCK=4", "(2,)](x, buf2, XBLOCK=4,"),
        ("R0_BLOCK=128", "R0_BLOCK=128"),
        ("num_warps=8", "num_warps=8"),
        ("maxnreg=96", "maxnreg=96"),
    ):
        assert said in print_triton(apply(problem, f"{name}:{action}"))[1][0]
    unlimited = apply(apply(problem, f"{name}:maxnreg=96"), f"{name}:maxnreg=0")
    assert unlimited == problem


@pytest.mark.parametrize(
    "action",
    [
        *("XBLOCK=3", "XBLOCK=16", "YBLOCK=2", "R0_BLOCK=131072", "num_warps=64", "maxnreg=17", "nothing"),
        *(
            "evict[2]=evict_first",
            "evict[0]=sometimes",
            "pipeline[5]=2",
            "flatten[0]=1",
            "swap_grid",
            "group=8",
        ),
        *("programs=100", "unmask=R0_BLOCK", "fuse_next", "num_warps=-1"),
    ],
)
def test_what_would_not_mean_the_same_is_refused(action: str) -> None:
    problem = lifted("softmax", SMALL)
    with pytest.raises(CannotLift):
        apply(problem, f"{the_kernel(problem).name}:{action}")


def test_an_action_needs_a_kernel() -> None:
    for action in ("XBLOCK=2", "nobody:XBLOCK=2", ""):
        with pytest.raises(CannotLift):
            apply(lifted("softmax"), action)


def test_policies_are_set_on_one_load_and_exclude_each_other() -> None:
    problem = lifted("softmax")
    name = the_kernel(problem).name
    first = apply(problem, f"{name}:evict[0]=evict_first")
    loads = [line for line in the_kernel(first).text.splitlines() if "tl.load" in line]
    assert "evict_first" in loads[0]
    assert loads[1:] == [line for line in the_kernel(problem).text.splitlines() if "tl.load" in line][1:]
    cached = the_kernel(apply(first, f"{name}:cache[*]=.cg")).text
    assert cached.count("cache_modifier='.cg'") == 2 and "eviction_policy" not in cached
    stored = the_kernel(apply(problem, f"{name}:store_cache[0]=.cs")).text
    assert re.search(r"tl\.store\(.*cache_modifier='\.cs'\)", stored)


def test_rows_that_are_held_are_read_once() -> None:
    problem = lifted("layer_norm")
    held = apply(problem, f"{the_kernel(problem).name}:persistent")
    text = the_kernel(held).text
    assert text.count("tl.load(in_ptr0") == 1
    assert "tl.range" not in text and "welford" not in text
    assert "R0_BLOCK: tl.constexpr = 256" in text
    assert "R0_BLOCK" not in the_kernel(held).knobs
    with pytest.raises(CannotLift):
        apply(held, f"{the_kernel(held).name}:persistent")


def test_what_a_kernel_stored_is_taken_from_where_it_came() -> None:
    problem = lifted("residual_norm")
    kernel = the_kernel(problem)
    stored = re.findall(r"tl\.store\((\w+)", kernel.text)[0]
    assert f"tl.load({stored}" in kernel.text
    held = the_kernel(apply(problem, f"{kernel.name}:persistent")).text
    assert f"tl.load({stored}" not in held
    assert ".to(tl.float16)" in held


def test_loads_that_run_ahead_of_stores_are_refused() -> None:
    problem = lifted("residual_norm")
    name = the_kernel(problem).name
    apply(problem, f"{name}:pipeline[0]=3")
    with pytest.raises(CannotLift, match="in turn"):
        apply(problem, f"{name}:pipeline[1]=3")


def test_memory_in_common_keeps_loads_apart() -> None:
    problem = lifted("layer_norm")
    name = the_kernel(problem).name
    launch = next(step for step in problem.steps if isinstance(step, Launch))
    in_place = Launch(name, (launch.arguments[-1], *launch.arguments[1:]))
    aliased = Lifted(
        "triton", "base", problem.inputs, {}, (), problem.kernels, (problem.steps[0], in_place), "buf3"
    )
    apply(problem, f"{name}:pipeline[0]=2")
    with pytest.raises(CannotLift, match="in turn"):
        apply(aliased, f"{name}:pipeline[0]=2")


def test_masks_go_only_where_the_block_divides_and_keep_it_dividing() -> None:
    problem = lifted("residual_norm", SMALL)
    name = the_kernel(problem).name
    bare = apply(problem, f"{name}:unmask=R0_BLOCK")
    assert "r0_mask" not in the_kernel(bare).text
    apply(bare, f"{name}:R0_BLOCK=128")
    odd = lifted("softmax", SMALL)
    with pytest.raises(CannotLift, match="does not divide 200"):
        apply(odd, f"{the_kernel(odd).name}:unmask=R0_BLOCK")
    rows = lifted("max_pool", {"XBLOCK": 2, "num_warps": 1, "num_stages": 1})
    bare_rows = apply(rows, f"{the_kernel(rows).name}:unmask=XBLOCK")
    with pytest.raises(CannotLift):
        apply(bare_rows, f"{the_kernel(rows).name}:XBLOCK=64")


def test_two_kernels_over_the_same_elements_become_one() -> None:
    problem = lifted("group_norm", SMALL)
    first, second = problem.kernels
    fused = apply(problem, f"{first.name}:fuse_next")
    assert [kernel.name for kernel in fused.kernels] == [first.name]
    assert [step for step in fused.steps if isinstance(step, Line)] == [
        line for line in problem.steps if isinstance(line, Line) and "(4, 6, 5, 3)" in line.text
    ]
    held = the_kernel(apply(fused, f"{first.name}:persistent")).text
    assert held.count("tl.load(in_ptr0") == 1 and held.count("tl.store(") == 1
    with pytest.raises(CannotLift):
        apply(problem, f"{second.name}:fuse_next")


def test_rows_shorter_than_their_block_stay_masked_when_more_is_fused() -> None:
    problem = lifted("group_norm", SMALL)
    name = problem.kernels[0].name
    held = apply(problem, f"{name}:persistent")
    fused = the_kernel(apply(held, f"{name}:fuse_next"))
    stores = [line for line in fused.text.splitlines() if "tl.store(" in line]
    assert stores and all("r0_mask" in line for line in stores)


def test_results_that_somebody_else_reads_are_still_stored_after_fusing() -> None:
    problem = lifted("group_norm", SMALL)
    first = problem.kernels[0]
    assert "buf0" in next(step for step in problem.steps if isinstance(step, Launch)).arguments
    wanted = Lifted("triton", "base", problem.inputs, {}, (), problem.kernels, problem.steps, "(buf3, buf0)")
    fused = apply(wanted, f"{first.name}:fuse_next")
    assert the_kernel(fused).text.count("tl.store(") == 2


def test_programs_that_take_several_tiles() -> None:
    problem = lifted("softmax", SMALL)
    name = the_kernel(problem).name
    walking = apply(problem, f"{name}:programs=2")
    module, (line,) = print_triton(walking)
    assert line.startswith(f"{name}[(2,)](x, buf2, XBLOCK=2,") and "PROGRAMS" not in line
    assert "for tile in tl.range(tl.program_id(0), tl.cdiv(xnumel, XBLOCK), tl.num_programs(0)):" in module
    assert "(3,)]" in print_triton(apply(walking, f"{name}:programs=3"))[1][0]
    assert "flatten=True" in the_kernel(apply(walking, f"{name}:flatten[0]=1")).text


def test_grids_of_two_axes_are_swapped_and_grouped() -> None:
    problem = lifted("transposed_sum", {"XBLOCK": 16, "YBLOCK": 32, "num_warps": 4, "num_stages": 1})
    name = the_kernel(problem).name
    sizes = launch_line(the_kernel(problem), problem.steps[-1]).partition("[(")[2].partition(")")[0]
    swapped = apply(problem, f"{name}:swap_grid")
    x, y = sizes.rstrip(",").split(", ")
    assert f"[({y}, {x},)]" in print_triton(swapped)[1][0]
    assert apply(swapped, f"{name}:swap_grid") == problem
    grouped = apply(problem, f"{name}:group=4")
    assert the_kernel(grouped).text.count("tl.program_id") == 2
    with pytest.raises(CannotLift):
        apply(grouped, f"{name}:swap_grid")


def test_a_grid_too_tall_for_its_axis_is_layered_and_stays_masked() -> None:
    problem = lifted("tall_sum", {"XBLOCK": 8, "YBLOCK": 1, "num_warps": 1, "num_stages": 1})
    name = the_kernel(problem).name
    assert "[(1, 60000, 6,)]" in print_triton(problem)[1][0]
    with pytest.raises(CannotLift, match="more programs"):
        apply(problem, f"{name}:unmask=YBLOCK")
    swapped = apply(problem, f"{name}:swap_grid")
    assert "[(360000, 1,)]" in print_triton(swapped)[1][0]
    assert "tl.program_id(2)" not in the_kernel(swapped).text


def test_products_of_matrices_have_sides_and_stages() -> None:
    problem = lifted("product")
    name = the_kernel(problem).name
    assert "num_stages=4" in print_triton(apply(problem, f"{name}:num_stages=4"))[1][0]
    with pytest.raises(CannotLift):
        apply(problem, f"{name}:XBLOCK=8")


def test_usual_actions_can_be_carried_out_in_their_order() -> None:
    problem = lifted("layer_norm")
    (actions,) = usual(problem)
    assert actions[0].endswith(":persistent")
    for action in actions:
        problem = apply(problem, action)
    assert "tl.range" not in the_kernel(problem).text


def test_a_running_softmax_is_held_or_folded() -> None:
    held, walked = usual(lifted("softmax"))
    assert held[0].endswith(":persistent") and walked[-1].endswith(":fold=4")


def test_a_running_softmax_takes_several_values_at_once() -> None:
    problem = lifted("softmax", {**SMALL, "XBLOCK": 1, "R0_BLOCK": 128, "num_warps": 1})
    name = the_kernel(problem).name
    folded = the_kernel(apply(problem, f"{name}:fold=2"))
    assert "softmax_step" not in folded.text and folded.knobs["R0_BLOCK"] == 256
    again = the_kernel(apply(apply(problem, f"{name}:fold=2"), f"{name}:fold=4"))
    assert again == the_kernel(apply(problem, f"{name}:fold=4"))
    assert f"{name}:fold=8" not in available(apply(problem, f"{name}:fold=8"))
    with pytest.raises(CannotLift, match="one of"):
        apply(problem, f"{name}:fold=3")
    held = apply(apply(problem, f"{name}:fold=2"), f"{name}:persistent")
    assert not any("fold" in action for action in available(held))
    with pytest.raises(CannotLift, match="no running softmax"):
        apply(lifted("layer_norm"), f"{the_kernel(lifted('layer_norm')).name}:fold=2")


def test_other_ways_to_write_operators_compute_the_same() -> None:
    torch = pytest.importorskip("torch")
    from assay.lift import triton_decompositions as ways

    torch.manual_seed(0)
    for rank, stride, padding, dilation in (
        (1, [2], [3], [2]),
        (2, [1, 1], [1, 1], [1, 1]),
        (2, [2, 3], [2, 0], [1, 2]),
    ):
        x, w, b = torch.randn(2, 3, *[11] * rank), torch.randn(3, 1, *[3] * rank), torch.randn(3)
        given = (x, w, b, stride, padding, dilation, False, [0] * rank, 3)
        assert torch.allclose(ways.depthwise_as_taps(*given), torch.convolution(*given), rtol=1e-4, atol=1e-5)
    whole = (torch.randn(1, 4, 5), torch.randn(4, 4, 3), None, [1], [0], [1], False, [0], 1)
    assert ways.depthwise_as_taps(*whole) is NotImplemented
    left, right = torch.randn(5, 2, 16), torch.randn(5, 16, 30)
    assert torch.allclose(ways.thin_product_as_sums(left, right), left @ right, rtol=1e-4, atol=1e-5)
    assert ways.thin_product_as_sums(torch.randn(9, 4), torch.randn(4, 9)) is NotImplemented
    x, w = torch.randn(4, 32), torch.randn(32)
    expected = torch.nn.functional.rms_norm(x, (32,), w, 1e-5)
    assert torch.allclose(ways.rms_norm_as_steps(x, [32], w, 1e-5), expected, rtol=1e-5, atol=1e-6)
    assert set(ways.table_for("depthwise_as_taps")) > set(ways.table_for(""))
    with pytest.raises(CannotLift, match="magic"):
        ways.table_for("magic")


def test_inductors_choices_follow_the_options() -> None:
    pytest.importorskip("torch")
    from torch._inductor.runtime.hints import ReductionHint

    from assay.lift.triton_choices import choices_for, inductors_own

    options = {"assay.persistent_threshold": 4096, "split_reductions": False}
    assert inductors_own(options) == {"split_reductions": False}
    assert choices_for({"split_reductions": False}) is None
    handler = choices_for(options)
    assert handler is not None
    for hint, length, is_held in ((ReductionHint.INNER, 4096, True), (ReductionHint.OUTER, 4096, False)):
        features = SimpleNamespace(reduction_numel=Length(length), get_reduction_hint=lambda hint=hint: hint)
        assert handler.should_use_persistent_reduction(features, False) is is_held
    with pytest.raises(CannotLift, match="assay.colour"):
        choices_for({"assay.colour": "red"})


class Length(int):
    """A size as inductor has it."""

    is_number = True


CHECKS = """
import torch, softmax, walked, layer_norm
torch.manual_seed(0)
x, w, b = torch.randn(8, 200), torch.randn(200), torch.randn(200)
uneven = torch.where(x > 1, x, float("-inf"))
for one in softmax, walked:
    assert torch.allclose(one.forward(x), torch.softmax(x, -1), rtol=1e-5, atol=1e-6)
    assert torch.allclose(one.forward(uneven), torch.softmax(uneven, -1), rtol=1e-5, atol=1e-6)
    assert torch.isnan(one.forward(torch.full((8, 200), float("-inf")))).all()
expected = torch.nn.functional.layer_norm(x, (200,), w, b)
assert torch.allclose(layer_norm.forward(w, b, x), expected, rtol=1e-4, atol=1e-5)
"""


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs triton")
def test_changed_kernels_compute_the_same(tmp_path: Path) -> None:
    """In Triton's interpreter."""
    changes = {
        "softmax": ("softmax", "persistent", "fast_exp", "reciprocal", "programs=1"),
        "walked": ("softmax", "fold=2", "fast_exp"),
        "layer_norm": ("layer_norm", "pipeline[0]=2"),
    }
    for name, (record, *actions) in changes.items():
        problem = lifted(record, SMALL)
        for action in actions:
            problem = apply(problem, f"{the_kernel(problem).name}:{action}")
        (tmp_path / f"{name}.py").write_text(candidate(problem))
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(tmp_path)}
    words = [sys.executable, "-c", CHECKS]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def candidate(problem: Lifted) -> str:
    module, launches = print_triton(problem)
    waiting = iter(launches)
    lines = [step.text if isinstance(step, Line) else next(waiting) for step in problem.steps]
    body = "".join(f"    {line}\n" for line in (*lines, f"return {problem.returns}"))
    return f"import torch\n{module}\n\ndef forward({', '.join(problem.inputs)}):\n{body}"
