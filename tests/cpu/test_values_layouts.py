"""Values across the process edge, layouts in memory, and the shared arenas they lie in."""

from __future__ import annotations

import json
import math
import mmap
import os
import struct
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.problems.layouts import arrange, dense_strides, lay_out, nth_layout, own_strides, same_order, span
from assay.problems.problem import LAYOUTS
from assay.problems.values import MAX_DEPTH, NotCarried, dtype_name, dtype_named, flatten, unflatten
from assay.records.errors import UserError
from assay.worker.arena import HostArena, attach_arena, make_walk
from assay.worker.placement import ALIGNMENT_BYTES, Form, Placement, place, place_densely

CPU = torch.device("cpu")
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool)

# ---- values

leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=8),
    st.sampled_from([torch.float16, torch.int8, torch.device("cpu"), torch.device("cuda:1")]),
)
keys = st.one_of(st.text(max_size=4), st.integers(-9, 9), st.tuples(st.integers(0, 9), st.text(max_size=2)))
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(keys, inner, max_size=3),
    ),
    max_leaves=12,
)


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b) or (math.isnan(a) and math.isnan(b))
    if isinstance(a, complex):
        return same(a.real, b.real) and same(a.imag, b.imag)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return bool(a == b)


@settings(max_examples=150, deadline=None)
@given(values)
def test_values_survive_the_journey_through_json(value: Any) -> None:
    tree = json.loads(json.dumps(flatten(value, []), allow_nan=False))
    assert same(unflatten(tree, []), value)


def test_tensors_are_numbered_in_order_and_put_back() -> None:
    a, b, c = torch.ones(2), torch.zeros(3), torch.arange(4)
    found: list[torch.Tensor] = []
    tree = flatten({"x": [a, (b,)], 3: c, "again": a}, found)
    assert [id(t) for t in found] == [id(a), id(b), id(c), id(a)]
    back = unflatten(json.loads(json.dumps(tree)), found)
    assert back["x"][0] is a and back["x"][1][0] is b and back[3] is c and isinstance(back["x"][1], tuple)


def test_bool_subclasses_of_int_stay_bool() -> None:
    assert unflatten(flatten([True, 1, 1.0], []), []) == [True, 1, 1.0]
    assert [type(v) for v in unflatten(flatten([True, 1, 1.0], []), [])] == [bool, int, float]


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, b"bytes", lambda: 0, range(3), torch.nn.ReLU(), torch.Generator()]
)
def test_other_types_are_refused_by_name(value: Any) -> None:
    with pytest.raises(NotCarried, match=type(value).__name__):
        flatten([value], [])


def nested(depth: int) -> Any:
    tree: Any = 1
    for _ in range(depth):
        tree = {"list": [tree]}
    return tree


HOSTILE: dict[str, Any] = {
    "deep": nested(MAX_DEPTH + 1),
    "very_deep": nested(20_000),
    "bare_list": [1, 2],
    "two_keys": {"list": [], "tuple": []},
    "no_key": {},
    "unknown_kind": {"module": "os"},
    "tensor_too_high": {"tensor": 2},
    "tensor_negative": {"tensor": -1},
    "tensor_is_text": {"tensor": "0"},
    "tensor_is_float": {"tensor": 0.0},
    "tensor_is_none": {"tensor": None},
    "list_of_no_list": {"list": 3},
    "list_is_text": {"list": "abc"},
    "tuple_is_dict": {"tuple": {"0": 1}},
    "dict_is_dict": {"dict": {"a": 1}},
    "dict_of_singles": {"dict": [[1]]},
    "dict_of_triples": {"dict": [[1, 2, 3]]},
    "dict_of_text": {"dict": ["ab"]},
    "unhashable_key": {"dict": [[{"list": []}, 1]]},
    "unhashable_key_inside": {"dict": [[{"tuple": [{"dict": []}]}, 1]]},
    "float_text": {"float": "1e999"},
    "float_list": {"float": ["nan"]},
    "complex_single": {"complex": ["1"]},
    "complex_text": {"complex": ["1", "x"]},
    "complex_none": {"complex": ["1", None]},
    "dtype_number": {"dtype": 3},
    "dtype_unknown": {"dtype": "float99"},
    "dtype_is_function": {"dtype": "load"},
    "dtype_hidden": {"dtype": "__name__"},
    "device_unknown": {"device": "mps"},
    "device_number": {"device": 0},
    "device_malformed": {"device": "cuda:x"},
    "device_malformed_index": {"device": "cuda:99999999999999999999"},
    "integer_of_65_bits": 1 << 64,
}
OVERSIZED_NUMBERS: dict[str, Any] = {
    "complex_huge": {"complex": [10**400, "1"]},
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("inside", [False, True])
def test_hostile_trees_are_refused(name: str, inside: bool) -> None:
    tree = {"list": [1, HOSTILE[name]]} if inside else HOSTILE[name]
    with pytest.raises(NotCarried):
        unflatten(tree, [torch.ones(1), torch.ones(1)])


@pytest.mark.parametrize("name", OVERSIZED_NUMBERS)
def test_malformed_leaves_are_refused(name: str) -> None:
    with pytest.raises(NotCarried):
        unflatten(OVERSIZED_NUMBERS[name], [])


def test_nesting_up_to_the_limit_is_carried() -> None:
    assert unflatten(nested(MAX_DEPTH), []) is not None
    value: Any = 1
    for _ in range(MAX_DEPTH + 1):
        value = [value]
    with pytest.raises(NotCarried):
        flatten(value, [])


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtype_names_go_both_ways(dtype: torch.dtype) -> None:
    assert dtype_named(dtype_name(dtype)) is dtype


# ---- layouts

shapes = st.lists(st.integers(0, 5), min_size=0, max_size=4).map(tuple)


def numbered(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.arange(math.prod(shape)).reshape(shape).to(dtype)


@settings(max_examples=150, deadline=None)
@given(shape=shapes, layout=st.sampled_from(LAYOUTS), dtype=st.sampled_from(DTYPES))
def test_layouts_hold_equal_values(shape: tuple[int, ...], layout: str, dtype: torch.dtype) -> None:
    tensor = numbered(shape, dtype)
    out = lay_out(tensor, layout)
    assert out.shape == tensor.shape and out.dtype == dtype and torch.equal(out, tensor)
    assert out.stride() == arrange(tensor, layout).strides
    addresses = {
        sum(i * s for i, s in zip(index, out.stride(), strict=True))
        for index in torch.cartesian_prod(*[torch.arange(n) for n in shape]).reshape(-1, len(shape)).tolist()
    } if shape and tensor.numel() else set()  # fmt: skip
    assert len(addresses) == tensor.numel() or not shape
    assert max(addresses, default=-1) + 1 == (span(shape, out.stride()) if shape else 0)


def test_strided_rows_do_not_merge_into_one() -> None:
    for shape in ((4, 6), (3, 4, 5), (2, 1), (1, 7), (5,)):
        out = lay_out(numbered(shape), "strided")
        assert out.stride(-1) == 2 and not out.is_contiguous()
        if len(shape) > 1:
            assert out.stride(-2) != 2 * shape[-1]
            with pytest.raises(RuntimeError):
                lay_out(numbered((4, 6)), "strided").view(-1)


def test_offset_loses_alignment_but_stays_dense() -> None:
    for dtype in (torch.float32, torch.float16, torch.float64):
        out = lay_out(numbered((4, 6), dtype), "offset")
        assert out.is_contiguous() and out.storage_offset() == 1
        assert (out.data_ptr() - out.untyped_storage().data_ptr()) % 16 == dtype.itemsize


def test_transposed_swaps_the_last_two() -> None:
    out = lay_out(numbered((3, 4, 5)), "transposed")
    assert out.stride() == (20, 1, 4) and out.mT.is_contiguous()
    assert lay_out(numbered((5,)), "transposed").stride() == (1,)


def test_given_keeps_the_problems_own_strides_and_unknown_layouts_are_refused() -> None:
    tensor = numbered((4, 6)).T
    assert lay_out(tensor, "given") is tensor and arrange(tensor, "given").strides == (1, 6)
    with pytest.raises(UserError, match="sideways"):
        arrange(tensor, "sideways")
    assert dense_strides((2, 0, 3)) == numbered((2, 0, 3)).stride()


# ---- placement


@settings(max_examples=60, deadline=None)
@given(
    forms=st.lists(st.tuples(shapes, st.sampled_from(DTYPES)), min_size=1, max_size=4),
    layout=st.sampled_from(LAYOUTS),
    start=st.sampled_from([0, 512, 4096]),
)
def test_views_inside_an_arena_hold_what_is_written_and_do_not_overlap(
    forms: list[tuple[tuple[int, ...], torch.dtype]], layout: str, start: int
) -> None:
    tensors = [numbered(shape, dtype) for shape, dtype in forms]
    places, end = place(tensors, layout, start)
    arena = torch.zeros(end, dtype=torch.uint8)
    for tensor, spot in zip(tensors, places, strict=True):
        spot.view(arena).copy_(tensor)
    for k, (tensor, spot) in enumerate(zip(tensors, places, strict=True)):
        again = Placement.from_plain(json.loads(json.dumps(spot.plain())))
        assert again == spot
        view = again.view(arena)
        assert torch.equal(view, tensor) and view.dtype == tensor.dtype
        if tensor.numel():
            assert view.untyped_storage().data_ptr() == arena.data_ptr()
        lead = tensor.dtype.itemsize if nth_layout(layout, k) == "offset" and tensor.dim() else 0
        assert (spot.offset_bytes - lead) % ALIGNMENT_BYTES == 0
    assert not arena[:start].any() and end % ALIGNMENT_BYTES == 0


def test_consecutive_places_leave_a_byte_between_them() -> None:
    """A write one past the end lands on nobody's bytes, where the judge looks for it."""
    places, end = place([torch.zeros(128), torch.zeros(128)], "given")
    assert places[0].offset_bytes + 512 < places[1].offset_bytes and places[1].offset_bytes + 512 < end


def test_answers_lie_densely() -> None:
    forms = [
        Form((3, 4), torch.float32, (1, 3)),
        Form((), torch.int64, ()),
        Form((0, 2), torch.float16, (2, 1)),
    ]
    places, _ = place_densely(forms)
    assert [p.strides for p in places] == [(1, 3), (), (2, 1)] and places[1].dtype == "int64"


@pytest.mark.parametrize(
    ("tensor", "strides"),
    [
        (torch.empty(3, 4), (4, 1)),
        (torch.empty(3, 4).T, (1, 4)),
        (torch.empty(2, 3, 4, 5).permute(2, 0, 3, 1), (5, 60, 1, 20)),
        (torch.empty(3, 8)[:, :4], (4, 1)),
        (torch.empty(3, 8)[:, ::2], (4, 1)),
        (torch.empty(4).expand(3, 4), (4, 1)),
        (torch.empty(()), ()),
        (torch.empty(4, 1, 5).transpose(0, 2), (1, 5, 5)),
        (torch.empty(0, 3).T, (1, 3)),
    ],
)
def test_strides_are_a_tensors_own_where_it_fills_its_memory(
    tensor: torch.Tensor, strides: tuple[int, ...]
) -> None:
    assert same_order(tensor.shape, own_strides(tensor), strides)


@pytest.mark.parametrize(
    "place_",
    [
        Placement(1020, (2,), (1,), "float32"),
        Placement(0, (300,), (1,), "float32"),
        Placement(0, (2, 2), (1000, 1), "float32"),
        Placement(5000, (1,), (1,), "float32"),
        Placement(0, (1 << 40,), (1,), "uint8"),
    ],
)
def test_a_place_outside_its_arena_is_refused(place_: Placement) -> None:
    with pytest.raises(NotCarried):
        place_.view(torch.zeros(1024, dtype=torch.uint8))


# ---- arenas


def test_host_arenas_are_shared_by_descriptor() -> None:
    arena = HostArena(10_000)
    twin = attach_arena(arena.describe(), (os.dup(arena.fds()[0]),), CPU)
    twin.bytes[9_999] = 77
    assert arena.bytes[9_999] == 77 and arena.size_bytes >= 10_000 and arena.bytes.numel() == arena.size_bytes
    twin.close()
    view = arena.bytes[:8]
    arena.close()
    arena.close()
    assert view.sum().item() == 0  # the mapping outlives its descriptor


def test_nobody_changes_for_others_what_all_walk_over() -> None:
    arena = make_walk(10_000, CPU)
    twins = [attach_arena(arena.describe(), (os.dup(arena.fds()[0]),), CPU) for _ in range(2)]
    fd = twins[0].fds()[0]
    twins[0].bytes.fill_(1)
    with pytest.raises(PermissionError):
        os.pwrite(fd, b"x", 0)
    with pytest.raises(PermissionError):
        mmap.mmap(fd, 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    assert arena.bytes.sum().item() == 0 and twins[1].bytes.sum().item() == 0
    assert os.fstat(fd).st_blocks * 512 >= 10_000  # there is something to walk over
    for one in (arena, *twins):
        one.close()


def test_host_arenas_cannot_be_resized_by_the_other_side() -> None:
    arena = HostArena(10_000)
    fd = arena.fds()[0]
    size = os.fstat(fd).st_size
    for wrong in (0, 1, size - 1, size + 4096, 1 << 30):
        with pytest.raises(PermissionError):
            os.ftruncate(fd, wrong)
    with pytest.raises(PermissionError):
        os.pwrite(fd, b"x", size)
    assert os.fstat(fd).st_size == size
    arena.bytes[-1] = 1  # a shrunken arena would be a bus error here
    arena.close()


def test_seals_cannot_be_taken_back_or_added_to() -> None:
    import fcntl

    arena = HostArena(4096)
    with pytest.raises(PermissionError):
        fcntl.fcntl(arena.fds()[0], 1033, 0x8)  # F_ADD_SEALS, F_SEAL_WRITE: would freeze the mailbox
    arena.close()
