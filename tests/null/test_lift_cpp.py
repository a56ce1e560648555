"""Inductor's C++ read, made plain and changed: on text alone, nothing is compiled."""

from __future__ import annotations

import pytest

from assay.lift.cpp_actions import apply, available, usual
from assay.lift.cpp_constants import literal
from assay.lift.cpp_kernels import read_kernels, short_name
from assay.lift.cpp_library import library_source
from assay.lift.cpp_support import support_for
from assay.lift.cpp_tree import parse, write
from assay.lift.guards import is_contiguous
from assay.lift.record import CannotLift, Kernel, Launch, Lifted, Line

SOFTMAX = """
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(const float* in_ptr0,
                       float* out_ptr0,
                       float* out_ptr1,
                       const int64_t ks0,
                       const int64_t ks1)
{
    std::atomic<int> inductor_cpu_integer_div_error{0};
    #pragma omp parallel num_threads(2)
    {
        int tid = omp_get_thread_num();
        {
            #pragma omp for
            for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(ks0); x0+=1)
            {
                {
                    float tmp_acc0 = 0;
                    CascadeSumHelper<float, 4096> scalar_cascade_helper0(static_cast<int64_t>(ks1));
                    for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(ks1); x1+=1)
                    {
                        {
                            auto tmp0 = in_ptr0[static_cast<int64_t>(x1 + ks1*x0)];
                            auto tmp1 = std::exp(tmp0);
                            tmp_acc0 = cascade_sum_combine(tmp1, &scalar_cascade_helper0);
                        }
                    }
                    tmp_acc0 = cascade_sum_final(&scalar_cascade_helper0);
                    out_ptr0[static_cast<int64_t>(x0)] = tmp_acc0;
                }
                #pragma GCC ivdep
                for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(ks1); x1+=1)
                {
                    {
                        auto tmp0 = in_ptr0[static_cast<int64_t>(x1 + ks1*x0)];
                        auto tmp1 = out_ptr0[static_cast<int64_t>(x0)];
                        auto tmp2 = static_cast<float>(0.5);
                        auto tmp3 = float(tmp0 * tmp2);
                        auto tmp4 = tmp3 / tmp1;
                        out_ptr1[static_cast<int64_t>(x1 + ks1*x0)] = tmp4;
                    }
                }
            }
        }
    }
    inductor_cpu_throw_if_integer_div_error(inductor_cpu_integer_div_error);
}
"""
COLUMNS = """
extern "C" void columns(const float* in_ptr0, float* out_ptr0, const int64_t ks0, const int64_t ks1) {
    #pragma omp parallel
    {
        #pragma omp for
        for (int64_t x0 = 0; x0 < ks0; ++x0) {
            float tmp_acc0 = 0;
            for (int64_t x1 = 0; x1 < ks1; ++x1) {
                auto tmp0 = in_ptr0[x0 + ks0*x1];
                tmp_acc0 = tmp_acc0 + tmp0;
            }
            out_ptr0[x0] = tmp_acc0;
        }
    }
}
"""
TYPES = "['const float*', 'float*', 'float*', 'const int64_t', 'const int64_t']"


def wrapper(source: str, types: str = TYPES) -> str:
    return f"cpp_fused_softmax_0 = async_compile.cpp_pybinding({types}, r'''{source}''')\n"


def softmax() -> Kernel:
    return read_kernels(wrapper(SOFTMAX))["cpp_fused_softmax_0"]


def lifted(*kernels: Kernel, steps: tuple[Line | Launch, ...] = ()) -> Lifted:
    return Lifted("cpp", "base", ("x",), {}, (), kernels, steps, "buf1")


def whole() -> Lifted:
    """With the lines that allocate and call."""
    return lifted(
        softmax(),
        steps=(
            Line("s0 = x.size(0)"),
            Line("s1 = x.size(1)"),
            Line("buf0 = torch.empty_strided((s0, 1), (1, 1), dtype=torch.float32, device=x.device)"),
            Line("buf1 = torch.empty_like(x)"),
            Launch("softmax", ("x", "buf0", "buf1", "s0", "s1")),
        ),
    )


def columns() -> Lifted:
    kinds = tuple(one.type for one in parse(COLUMNS).parameters)
    return lifted(Kernel("columns", write(parse(COLUMNS)), kinds))


def only(one: Lifted) -> str:
    return one.kernels[0].text


def test_a_kernel_is_read_as_a_person_would_write_it() -> None:
    text = softmax().text
    for noise in ("static_cast", "inductor", "Helper", "cascade", "{\n        {", "tid", "num_threads", "0L"):
        assert noise not in text
    assert "for (int64_t x0 = 0; x0 < ks0; ++x0) {" in text
    assert "auto tmp0 = in_ptr0[x1 + ks1*x0];" in text
    assert "float(tmp0 * 0.5f)" in text
    assert "double tmp_acc0 = 0;" in text, "long sums are added up in double precision"


def test_only_sums_are_added_up_in_double_where_a_maximum_has_the_same_name() -> None:
    largest = """                {
                    float tmp_acc0 = -std::numeric_limits<float>::infinity();
                    for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(ks1); x1+=1)
                    {
                        {
                            auto tmp0 = in_ptr0[static_cast<int64_t>(x1 + ks1*x0)];
                            tmp_acc0 = max_propagate_nan(tmp_acc0, tmp0);
                        }
                    }
                    out_ptr0[static_cast<int64_t>(x0)] = tmp_acc0;
                }
"""
    start = SOFTMAX.index("        {\n            #pragma omp for")
    rows = SOFTMAX[start : SOFTMAX.index("                {\n                    float tmp_acc0")]
    both = f"{SOFTMAX[:start]}{rows}{largest}            }}\n        }}\n{SOFTMAX[start:]}"
    text = read_kernels(wrapper(both))["cpp_fused_softmax_0"].text
    assert "float tmp_acc0 = -std::numeric_limits<float>::infinity();" in text
    assert "double tmp_acc0 = 0;" in text


def test_printed_text_reads_back_as_the_same_tree() -> None:
    assert write(parse(softmax().text)) == softmax().text


@pytest.mark.parametrize(
    ("source", "named"),
    [
        (SOFTMAX.replace("std::exp", "at::vec::exp"), "vector types"),
        (SOFTMAX.replace("std::exp", "strange_function"), "strange_function"),
        (SOFTMAX.replace("x1+=1", "x1*=2"), "loop of another kind"),
    ],
)
def test_what_is_not_known_is_refused_by_name(source: str, named: str) -> None:
    with pytest.raises(CannotLift, match=named):
        read_kernels(wrapper(source))


def test_names_tell_what_a_kernel_does_and_stay_apart() -> None:
    assert short_name("cpp_fused__to_copy_exp_mul_0", set()) == "exp_mul"
    assert short_name("cpp_fused_exp_mul_1", {"exp_mul"}) == "exp_mul_1"
    assert short_name("cpp_fused_exp_0", set()) == "kernel_exp", "not the name of a function of C"


def test_scratch_of_one_iteration_becomes_a_variable() -> None:
    kept = apply(whole(), "keep_row")
    assert "out_ptr0[" not in only(kept) and "float out_ptr0_here = tmp_acc0;" in only(kept)
    launch = kept.steps[-1]
    assert isinstance(launch, Launch) and launch.arguments == ("x", "buf1", "s0", "s1")
    assert not any("buf0" in step.text for step in kept.steps if isinstance(step, Line))
    assert kept.kernels[0].parameters == ("const float*", "float*", "const int64_t", "const int64_t")


def test_what_is_the_same_in_every_iteration_is_computed_once() -> None:
    text = only(apply(apply(whole(), "keep_row"), "hoist"))
    last = text[text.rindex("for (int64_t x1") :]
    assert "out_ptr0_here" not in last and "held" in last


def test_sums_get_lanes_and_an_accumulator_is_never_hoisted() -> None:
    text = only(apply(apply(whole(), "hoist"), "simd_reductions=16"))
    assert "float tmp_acc0_part_lanes[16];" in text and "#pragma omp simd" in text
    assert text.index("x1_chunk += 4096") < text.index("float tmp_acc0_part = 0;")


def test_columns_are_summed_in_strips() -> None:
    text = only(apply(columns(), "strip=64"))
    assert "float tmp_acc0[64];" in text
    rows = text.index("for (int64_t x1 = 0")
    assert rows < text.index("tmp_acc0[column] = tmp_acc0[column] + tmp0;")
    with pytest.raises(CannotLift, match="changes nothing"):
        apply(whole(), "strip=64")


def test_functions_are_replaced_where_there_is_a_quick_one() -> None:
    changed = apply(whole(), "vector_math")
    assert "quick_exp(tmp0)" in only(changed) and "std::exp" not in only(changed)
    support = support_for([only(changed)])
    assert "inline float quick_exp(float x)" in support and "quick_tanh" not in support


def test_threads_and_pointers() -> None:
    assert "omp" not in only(apply(whole(), "threads=1"))
    assert "if ((ks0)*(ks1) >= 32768)" in only(apply(columns(), "parallel_above=32768"))
    marked = apply(whole(), "restrict").kernels[0]
    assert marked.parameters[0] == "const float* __restrict"
    assert "schedule(dynamic,1)" in only(apply(whole(), "schedule=dynamic,1"))
    assert "firstprivate(in_ptr0, out_ptr0, out_ptr1, ks0, ks1)" in only(apply(whole(), "private"))


def test_actions_are_carried_out_once_and_the_usual_ones_apply_in_order() -> None:
    start = whole()
    assert "reciprocal" not in available(start), "nothing to divide by before it is hoisted"
    (actions,) = usual(start)
    for action in actions:
        start = apply(start, action)
        assert action.partition("=")[0] not in {one.partition("=")[0] for one in available(start)}
    assert "reciprocal" in available(start)
    with pytest.raises(CannotLift, match="carried out before"):
        apply(start, "simd_reductions=8")
    with pytest.raises(CannotLift, match="no action"):
        apply(start, "go_faster")


def test_compiler_options_are_among_the_actions() -> None:
    text = library_source(apply(whole(), "unroll"), "level1/softmax rows")
    assert '"-funroll-loops"' in text and 'name="level1_softmax_rows_' in text
    assert "fast-math" not in text


@pytest.mark.parametrize(
    ("kind", "given", "made"), [("float", "0.9", "0.9f"), ("float", "1", "1.0f"), ("double", "3", "3.0")]
)
def test_numbers_keep_their_type_and_value(kind: str, given: str, made: str) -> None:
    assert literal(kind, given) == made


def test_a_number_that_two_roundings_would_change_is_written_in_full() -> None:
    # Halfway between two floats but for a bit that a double does not hold.
    assert literal("float", "1.00000005960464477540").startswith("0x1.0")


def test_dense_layouts_are_recognised_whatever_the_sizes() -> None:
    assert is_contiguous(("s0", "s1"), ("s1", "1"))
    assert is_contiguous(("s0", "1", "s1"), ("s1", "77", "1"))
    assert not is_contiguous(("s0", "s1"), ("1", "s0"))
