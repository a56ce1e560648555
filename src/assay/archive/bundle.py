"""A run as a file to publish: everything that is needed to judge it again, and a digest that binds it
together.

A zip of one JSON list and the sources it names. The root is a digest over every entry in order, so that one
line of text, published anywhere, pins the whole. Not covered: tasks of several files, of which a run keeps
the specification alone; whoever verifies them names the suite.
"""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.archive.archive import Archive, Judged, Listed, Planned
from assay.archive.writing import write_whole
from assay.records import About, UserError, digest, from_plain, to_plain

SCHEMA = 1
MANIFEST = "run.json"
MOST_BYTES = 1 << 30
"""Of all that is unpacked: a file from a stranger may say it is larger than any disk."""


@dataclass(frozen=True, slots=True)
class Bundle:
    """A published run."""

    label: str
    facts: Mapping[str, Any]
    problems: tuple[Listed, ...]
    judged: tuple[Judged, ...]
    root: str


def write_bundle(archive: Archive, path: Path) -> str:
    """Publish what is judged; returns the root."""
    problems, judged = archive.problems(), list(archive.judged())
    if not judged:
        raise UserError(f"{archive.path}: nothing is judged in this run yet")
    texts = {
        digest(text): text
        for text in (*(p.source for p in problems), *(one.candidate.source for one in judged))
    }
    entries = {"problems": [_problem(p) for p in problems], "judged": [_judged(one) for one in judged]}
    facts = archive.facts()
    root = _root(facts, entries)
    manifest = {"schema": SCHEMA, "root": root, "facts": facts, **entries}
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(MANIFEST, json.dumps(manifest, indent=1))
        for name, text in sorted(texts.items()):
            file.writestr(f"sources/{name}", text)
    write_whole(path, data.getvalue(), unlike=[archive.path])
    return root


def read_bundle(path: Path) -> Bundle:
    """A published run; anything that was changed since is found out."""
    try:
        with zipfile.ZipFile(path) as file:
            if sum(info.file_size for info in file.infolist()) > MOST_BYTES:
                raise UserError(f"{path}: would unpack to more than {MOST_BYTES >> 20} MiB")
            manifest = json.loads(file.read(MANIFEST))
            texts = {
                name.removeprefix("sources/"): file.read(name).decode()
                for name in file.namelist()
                if name != MANIFEST
            }
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (zipfile.BadZipFile, zlib.error, KeyError, ValueError, OSError, EOFError, RuntimeError) as error:
        raise UserError(f"{path}: is no published run, or was cut short ({error})") from error
    return _decoded(manifest, texts, path)


def _decoded(manifest: Any, texts: Mapping[str, str], path: Path) -> Bundle:
    schema = manifest.get("schema") if isinstance(manifest, dict) else None
    if schema != SCHEMA:
        raise UserError(f"{path}: is of schema {schema}, this Assay knows {SCHEMA}")
    for name, text in texts.items():
        if digest(text) != name:
            raise UserError(f"{path}: the source {name[:12]} was changed after it was published")
    try:
        facts = dict(manifest["facts"])
        entries = {"problems": list(manifest["problems"]), "judged": list(manifest["judged"])}
        if _root(facts, entries) != manifest["root"]:
            raise UserError(f"{path}: was changed after it was published: its entries do not give its root")
        problems = tuple(_read_problem(entry, texts) for entry in entries["problems"])
        judged = tuple(_read_judged(entry, texts) for entry in entries["judged"])
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path}: is not as it should be ({type(error).__name__}: {error})") from error
    return Bundle(str(facts.get("label", path.stem)), facts, problems, judged, manifest["root"])


def _root(facts: Mapping[str, Any], entries: Mapping[str, list[Any]]) -> str:
    parts = [facts, *entries["problems"], *entries["judged"]]
    return digest(*(json.dumps(part, sort_keys=True) for part in parts))


def _problem(problem: Listed) -> dict[str, Any]:
    return {**to_plain(problem), "source": digest(problem.source)}


def _read_problem(entry: Mapping[str, Any], texts: Mapping[str, str]) -> Listed:
    about = from_plain(About, entry["about"], "about")
    return Listed(
        entry["name"], entry["digest"], entry["path"], about, texts[entry["source"]], entry["trouble"]
    )


def _judged(one: Judged) -> dict[str, Any]:
    candidate = {**to_plain(one.candidate), "source": digest(one.candidate.source)}
    return {**to_plain(one), "candidate": candidate, "record": dict(one.record)}


def _read_judged(entry: Mapping[str, Any], texts: Mapping[str, str]) -> Judged:
    given = entry["candidate"]
    candidate = from_plain(Planned, {**given, "source": texts[given["source"]]}, "candidate")
    return Judged(
        candidate, entry["judged_at"], entry["worker"], entry["seconds"], entry["status"], entry["record"]
    ).checked()
