"""A published run: whole or refused, whatever was done to it on the way."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from synthetic_runs import write_run

from assay.archive import Archive, read_bundle, write_bundle
from assay.records import UserError


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
