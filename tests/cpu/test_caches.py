"""What compilers left behind, carried from one process's scratch folder to another's."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from assay.worker import caches


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Two scratch folders with paths of one length, as the pool makes them."""
    pair = tmp_path / "aaaa", tmp_path / "bbbb"
    for folder in pair:
        for name in ("triton", "inductor", "work"):
            (folder / name).mkdir(parents=True)
    return pair


def test_what_was_compiled_arrives_where_it_is_looked_for(folders: tuple[Path, Path]) -> None:
    old, new = folders
    (old / "triton" / "ab").mkdir()
    (old / "triton" / "ab" / "kernel.cubin").write_bytes(bytes(range(256)))
    (old / "inductor" / "x.py").write_text("code = 1\n")
    caches.unpack(caches.pack(old), new)
    assert (new / "triton" / "ab" / "kernel.cubin").read_bytes() == bytes(range(256))
    assert (new / "inductor" / "x.py").read_text() == "code = 1\n"


def test_paths_in_text_and_binaries_name_the_new_folder(folders: tuple[Path, Path]) -> None:
    old, new = folders
    (old / "inductor" / "where").write_text(f"open('{old}/inductor/lib.so')\n")
    (old / "inductor" / "lib.so").write_bytes(b"\0\x7fELF" + str(old).encode() + b"/inductor\0rest")
    caches.unpack(caches.pack(old), new)
    assert (new / "inductor" / "where").read_text() == f"open('{new}/inductor/lib.so')\n"
    moved = (new / "inductor" / "lib.so").read_bytes()
    assert moved == b"\0\x7fELF" + str(new).encode() + b"/inductor\0rest"


def test_only_the_cache_folders_travel(folders: tuple[Path, Path]) -> None:
    old, new = folders
    (old / "work" / "candidate.py").write_text("secret = 1\n")
    (old / "triton" / "kernel").write_text("k")
    caches.unpack(caches.pack(old), new)
    assert (new / "triton" / "kernel").exists()
    assert list((new / "work").iterdir()) == []


def test_nothing_compiled_is_nothing_to_carry(folders: tuple[Path, Path]) -> None:
    old, new = folders
    assert caches.pack(old) == b""
    caches.unpack(b"", new)
    assert [path for path in new.rglob("*") if path.is_file()] == []


def test_too_much_is_left_behind(folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    old, _ = folders
    (old / "triton" / "kernel").write_bytes(bytes(100))
    monkeypatch.setattr(caches, "MOST_BYTES", 100)
    assert caches.pack(old) != b""
    monkeypatch.setattr(caches, "MOST_BYTES", 99)
    assert caches.pack(old) == b""


def test_a_path_of_another_length_is_not_patched_into_binaries(
    folders: tuple[Path, Path], tmp_path: Path
) -> None:
    old, _ = folders
    (old / "triton" / "kernel").write_text(str(old))
    longer = tmp_path / "ccccc"
    longer.mkdir()
    caches.unpack(caches.pack(old), longer)
    assert list(longer.iterdir()) == []


@pytest.mark.parametrize("payload", [b"\xff\xff", b"\x00\x05abc", b"\x00"])
def test_a_payload_cut_short_is_ignored(folders: tuple[Path, Path], payload: bytes) -> None:
    _, new = folders
    caches.unpack(payload, new)
    assert [path for path in new.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("name", ["../escaped", "triton/../../escaped"])
def test_an_archive_that_climbs_out_is_refused(folders: tuple[Path, Path], name: str) -> None:
    _, new = folders
    with pytest.raises(tarfile.FilterError):
        caches.unpack(archive_with(tarfile.TarInfo(name), new), new)
    assert not (new.parent / "escaped").exists()


def test_a_link_to_somewhere_else_is_refused(folders: tuple[Path, Path]) -> None:
    _, new = folders
    link = tarfile.TarInfo("triton/link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with pytest.raises(tarfile.FilterError):
        caches.unpack(archive_with(link, new), new)
    assert not (new / "triton" / "link").exists()


def archive_with(member: tarfile.TarInfo, scratch: Path) -> bytes:
    """As a hostile child could send it."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(member, io.BytesIO(b""))
    origin = str(scratch).encode()
    return len(origin).to_bytes(2, "big") + origin + buffer.getvalue()
