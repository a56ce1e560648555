"""Records and their JSON form: strict both ways, standard library alone."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.records import (
    VERDICTS,
    CandidateFailure,
    CaseResult,
    Crashed,
    Finding,
    FlawedProblem,
    JudgeFault,
    Layer,
    Mismatch,
    UserError,
    Verdict,
    digest,
    from_plain,
    to_json,
    to_plain,
)


@dataclass(frozen=True)
class Inner:
    x: float
    name: str = "n"


@dataclass(frozen=True)
class Outer:
    status: ClassVar[str] = "outer"
    inner: Inner
    many: tuple[Inner, ...]
    table: Mapping[str, float]
    maybe: int | None
    flag: bool
    kind: Literal["a", "b"]
    either: int | str = 0
    anything: Any = None
    listed: list[int] = field(default_factory=list)


OUTER = Outer(
    Inner(1.5), (Inner(2.0, "m"), Inner(math.inf)), {"k": -math.inf}, None, True, "b", "s", [1], [3]
)


def plain() -> dict[str, Any]:
    return json.loads(to_json(OUTER))


@pytest.mark.parametrize("module", ["assay.records", "assay.records.codec", "assay.records.verdict"])
def test_records_import_the_standard_library_alone(module: str) -> None:
    code = (
        f"import sys, {module}\n"
        "found = [n for n in ('torch', 'numpy', 'triton', 'click', 'rich') if n in sys.modules]\n"
        "sys.exit(', '.join(found) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_round_trip_with_nests_defaults_and_the_status() -> None:
    assert plain()["status"] == "outer" and next(iter(plain())) == "status"
    assert from_plain(Outer, plain()) == OUTER
    short = plain()
    for name in ("either", "anything", "listed"):
        del short[name]
    assert from_plain(Outer, short).either == 0 and from_plain(Outer, short).listed == []


@given(st.floats())
def test_every_float_survives(value: float) -> None:
    back = from_plain(Inner, json.loads(to_json(Inner(value)))).x
    assert back == value or (math.isnan(back) and math.isnan(value))
    assert math.copysign(1, back) == math.copysign(1, value) or math.isnan(value)


def test_special_floats_are_words_not_tokens() -> None:
    text = to_json(Inner(math.nan))
    assert json.loads(text, parse_constant=lambda name: pytest.fail(name))["x"] == "NaN"
    assert to_plain({"a": (math.inf, -math.inf)}) == {"a": ["Infinity", "-Infinity"]}


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"extra": 1}, "unknown field 'extra'"),
        ({"status": "inner"}, "status is not 'outer'"),
        ({"inner": 3}, "record.inner: expected an object"),
        ({"inner": {"x": 1.0, "y": 2}}, "record.inner: unknown field 'y'"),
        ({"inner": {}}, "record.inner: missing field 'x'"),
        ({"inner": {"x": "1.5"}}, "record.inner.x: expected float"),
        ({"inner": {"x": "nan"}}, "record.inner.x: expected float"),
        ({"inner": {"x": True}}, "record.inner.x: expected float"),
        ({"inner": {"x": None}}, "record.inner.x: expected float"),
        ({"inner": {"x": 10**400}}, "record.inner.x"),
        ({"inner": {"x": 1.0, "name": 5}}, "record.inner.name: expected str"),
        ({"many": {"0": {}}}, "record.many: expected a list"),
        ({"many": "text"}, "record.many: expected a list"),
        ({"many": [{"x": 1.0}, {"x": "?"}]}, r"record.many\[1\].x"),
        ({"table": []}, "record.table: expected an object"),
        ({"table": {"k": "v"}}, "record.table.k"),
        ({"maybe": 1.5}, "record.maybe"),
        ({"maybe": True}, "record.maybe"),
        ({"flag": 1}, "record.flag: expected bool"),
        ({"kind": "c"}, "record.kind: 'c' is not one of 'a', 'b'"),
        ({"kind": ["a"]}, "record.kind"),
        ({"either": 1.5}, "record.either"),
        ({"listed": [1, "2"]}, r"record.listed\[1\]"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_path(change: dict[str, Any], path: str) -> None:
    with pytest.raises(UserError, match=path):
        from_plain(Outer, {**plain(), **change})


@pytest.mark.parametrize("name", ["inner", "many", "table", "maybe", "flag", "kind", "status"])
def test_missing_fields_are_refused(name: str) -> None:
    given = plain()
    del given[name]
    with pytest.raises(UserError, match=name):
        from_plain(Outer, given)


@pytest.mark.parametrize("wrong", [None, [], "text", 3])
def test_only_objects_are_records(wrong: Any) -> None:
    with pytest.raises(UserError, match="expected an object"):
        from_plain(Inner, wrong)


@pytest.mark.parametrize("foreign", [object(), {1, 2}, b"bytes", 1j, Inner])
def test_foreign_values_do_not_enter_a_record(foreign: Any) -> None:
    with pytest.raises(TypeError):
        to_plain({"a": [foreign]})


def test_text_is_kept_as_it_is() -> None:
    assert (
        "ö✓" in to_json(Inner(0.0, "ö✓"))
        and from_plain(Inner, json.loads(to_json(Inner(0.0, "\x00\n")))).name == "\x00\n"
    )


def test_digests_do_not_run_parts_together() -> None:
    prints = {
        digest(),
        digest(""),
        digest("ab"),
        digest("a", "b"),
        digest("", "ab"),
        digest("ab", ""),
        digest("b", "a"),
    }
    assert len(prints) == 7 and all(len(p) == 64 for p in prints)
    assert digest("ö") == digest("ö".encode())


# ---- the records of a verdict


def test_small_records_round_trip() -> None:
    case = CaseResult(
        "nominal", "wrong", True, False, {"rows": 4, "names": ["a"]}, "given", "normal", None, 2, math.inf,
        3, 9, "m", (Mismatch(0, (1, 2), math.nan, -math.inf, 1e-9),),
    )  # fmt: skip
    back = from_plain(CaseResult, json.loads(to_json(case)))
    assert to_json(back) == to_json(case) and back.mismatches[0].index == (1, 2)
    for record in (Finding("c", "m", True, None, "h"), Finding("c", "m", False), Layer("network", True, "d")):
        assert from_plain(type(record), json.loads(to_json(record))) == record


def test_only_passed_has_a_margin_and_a_speed() -> None:
    names = {cls.status: {f.name for f in fields(cls)} for cls in VERDICTS}
    assert set(names) == {"passed", "wrong", "rejected", "build_failed", "crashed", "timed_out"}
    common = {f.name for f in fields(Verdict)}
    own = {status: found - common for status, found in names.items()}
    assert own == {
        "passed": {"margin", "speed", "speed_absent"},
        "wrong": set(),
        "rejected": set(),
        "build_failed": {"diagnosis"},
        "crashed": {"death"},
        "timed_out": {"phase", "limit_s"},
    }
    assert not {"speed", "speedup", "time_us", "margin"} & common


def test_records_are_frozen() -> None:
    with pytest.raises(AttributeError):
        Finding("c", "m", True).fatal = False  # type: ignore[misc]
    assert Crashed.status == "crashed"


def test_error_families_do_not_mix() -> None:
    assert issubclass(FlawedProblem, UserError)
    assert not issubclass(CandidateFailure, UserError) and not issubclass(
        JudgeFault, (UserError, CandidateFailure)
    )
    failure = CandidateFailure("crashed", "signal", "died", "frames")
    assert (failure.status, failure.code, str(failure), failure.detail) == (
        "crashed",
        "signal",
        "died",
        "frames",
    )
