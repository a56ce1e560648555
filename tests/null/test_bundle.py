"""A published run: whole or refused, whatever was done to it on the way."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from synthetic_runs import write_run

from assay.archive import Archive, read_bundle, write_bundle
from assay.cli.main import cli
from assay.records import UserError, digest


@pytest.fixture
def published(tmp_path: Path) -> Path:
    with Archive(write_run(tmp_path / "run.sqlite", 6, 2, 2)) as archive:
        write_bundle(archive, tmp_path / "run.zip")
    return tmp_path / "run.zip"


def changed(path: Path, change: Callable[[str, bytes], bytes]) -> Path:
    """The same file with some member rewritten."""
    with zipfile.ZipFile(path) as file:
        members = {name: change(name, file.read(name)) for name in file.namelist()}
    with zipfile.ZipFile(path, "w") as file:
        for name, data in members.items():
            file.writestr(name, data)
    return path


def in_manifest(edit: Callable[[dict[str, Any]], None]) -> Callable[[str, bytes], bytes]:
    def change(name: str, data: bytes) -> bytes:
        if name != "run.json":
            return data
        manifest = json.loads(data)
        edit(manifest)
        return json.dumps(manifest).encode()

    return change


def test_a_run_comes_back_as_it_was(published: Path, tmp_path: Path) -> None:
    bundle = read_bundle(published)
    with Archive(tmp_path / "run.sqlite") as archive:
        assert list(bundle.problems) == archive.problems() and list(bundle.judged) == list(archive.judged())
        assert bundle.facts == archive.facts() and bundle.label == "made up"
        assert write_bundle(archive, tmp_path / "again.zip") == bundle.root


def test_another_run_has_another_root(published: Path, tmp_path: Path) -> None:
    with Archive(write_run(tmp_path / "other.sqlite", 6, 2, 2, seed=9)) as archive:
        assert write_bundle(archive, tmp_path / "other.zip") != read_bundle(published).root


def better(manifest: dict[str, Any]) -> None:
    wrong = next(entry for entry in manifest["judged"] if entry["status"] != "passed")
    wrong["status"] = "passed"


@pytest.mark.parametrize(
    "change, why",
    [
        (in_manifest(better), "entries do not give its root"),
        (in_manifest(lambda m: m["judged"].pop()), "entries do not give its root"),
        (in_manifest(lambda m: m["facts"].update(label="mine")), "entries do not give its root"),
        (in_manifest(lambda m: m.update(schema=2)), "is of schema 2, this Assay knows 1"),
        (in_manifest(lambda m: m.pop("problems")), "is not as it should be"),
        (lambda name, data: data + b" " if name.startswith("sources/") else data, "was changed after"),
        (lambda name, data: b"{" if name == "run.json" else data, "is no published run"),
    ],
)
def test_what_was_changed_is_refused(
    published: Path, change: Callable[[str, bytes], bytes], why: str
) -> None:
    with pytest.raises(UserError, match=why):
        read_bundle(changed(published, change))


def test_cut_short_it_is_refused(published: Path) -> None:
    published.write_bytes(published.read_bytes()[:-200])
    with pytest.raises(UserError, match="cut short"):
        read_bundle(published)


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no zip")
    with pytest.raises(UserError, match="is no published run"):
        read_bundle(tmp_path / "text")
    with pytest.raises(UserError, match="no such file"):
        read_bundle(tmp_path / "nothing")


def test_nothing_judged_is_nothing_to_publish(tmp_path: Path) -> None:
    with (
        Archive(tmp_path / "run.sqlite", create=True) as archive,
        pytest.raises(UserError, match="nothing is judged"),
    ):
        write_bundle(archive, tmp_path / "run.zip")


def test_it_is_never_written_over_the_run(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run.sqlite", 2, 1)
    before = path.read_bytes()
    (tmp_path / "link").symlink_to(path)
    with Archive(path) as archive:
        for place in (path, tmp_path / "link"):
            with pytest.raises(UserError, match="is the run itself"):
                write_bundle(archive, place)
    assert path.read_bytes() == before


def test_a_status_that_its_record_denies_is_refused(published: Path) -> None:
    def edit(manifest: dict[str, Any]) -> None:
        wrong = next(one for one in manifest["judged"] if one["status"] == "wrong")
        wrong["status"] = "passed"
        parts = [manifest["facts"], *manifest["problems"], *manifest["judged"]]
        manifest["root"] = digest(*(json.dumps(part, sort_keys=True) for part in parts))

    with pytest.raises(UserError, match="its record says otherwise"):
        read_bundle(changed(published, in_manifest(edit)))


def test_a_damaged_member_is_one_line(published: Path) -> None:
    data = bytearray(published.read_bytes())
    for k in range(200, 240):
        data[k] ^= 0x5A
    published.write_bytes(data)
    with pytest.raises(UserError, match="is no published run, or was cut short"):
        read_bundle(published)


def verified(path: Path, *words: str) -> str:
    """What verify says of it; nothing is judged."""
    result = CliRunner().invoke(cli, ["verify", str(path), "--device", "cpu", *words])
    assert isinstance(result.exception, UserError), result.output
    return str(result.exception)


def test_problems_of_a_stranger_are_not_run_unasked(published: Path, tmp_path: Path) -> None:
    assert "--suite, or give --trust-problems" in verified(published)
    suite = tmp_path / "suite" / "level1"
    suite.mkdir(parents=True)
    (suite / "other.py").write_text("class Model: ...\ndef get_inputs(): ...\n")
    assert "is not in your suite" in verified(published, "--suite", str(suite.parent))


def test_problems_that_are_not_what_they_say_are_not_run(published: Path) -> None:
    assert "is not the problem that it says was judged" in verified(published, "--trust-problems")


def test_a_policy_nobody_knows_is_one_line(published: Path, tmp_path: Path) -> None:
    with Archive(tmp_path / "run.sqlite") as archive:
        archive.set_fact("policy", {"generosity": 3})
        write_bundle(archive, published)
    assert "does not know the policy" in verified(published, "--trust-problems")
