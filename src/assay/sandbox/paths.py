"""What a process with Python, torch and a compiler needs to read, and the devices it needs.

Landlock cannot take a file out of a granted folder, so a folder that holds something of this project is
granted entry by entry. Never in the list: this package, its metadata and, where it runs from a checkout, the
checkout (but for the virtual environment in it), wherever they lie.

Not covered: links inside a granted folder that lead to a folder which is not granted.
"""

from __future__ import annotations

import glob
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

_NAME = __name__.partition(".")[0]
_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/sys")
_SETTINGS = (
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "ld.so.preload",
    "passwd",
    "group",
    "nsswitch.conf",
    "localtime",
    "timezone",
    "alternatives",
    "hosts",
    "host.conf",
    "os-release",
    "python3*",
)
_COMPILERS = ("cc", "c++", "gcc", "g++", "clang", "nvcc")
_COMPILER_VARIABLES = ("CC", "CXX", "CUDAHOSTCXX")
_DEVICES = ("null", "zero", "full", "random", "urandom")


def readable_paths() -> tuple[str, ...]:
    """Files and folders to grant for reading and executing; all of them exist."""
    sites = _site_folders()
    own = frozenset(_own_files(sites))
    roots = [*_SYSTEM, sys.base_prefix]
    for pattern in ("/usr/local/cuda*", "/opt/cuda*"):
        roots += glob.glob(pattern)
    roots += [os.environ[name] for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    roots += _compiler_folders()
    found = [path for root in roots for path in _without(root, own | _checkout())]
    for name in _SETTINGS:
        found += glob.glob(f"/etc/{name}")
    # The environment may lie in the checkout: only its own parts, and the checkout is no reason to leave them
    # out.
    found += [os.path.join(sys.prefix, "bin"), os.path.join(sys.prefix, "pyvenv.cfg")]
    for folder in sites:
        found += _without(folder, own)
    found += _library_folders(own | _checkout())
    return _outermost(path for path in found if os.path.exists(path))


def device_paths() -> tuple[str, ...]:
    """The harmless devices, and NVIDIA's where there are any."""
    plain = [f"/dev/{name}" for name in _DEVICES if os.path.exists(f"/dev/{name}")]
    return (*plain, *sorted(glob.glob("/dev/nvidia*")))


def _site_folders() -> list[str]:
    names = ("site-packages", "dist-packages")
    return [path for path in sys.path if os.path.basename(path) in names and os.path.isdir(path)]


def _package_folder() -> Path:
    return Path(__file__).resolve().parents[1]


def _checkout() -> frozenset[str]:
    """The project's folder where the package runs from its source."""
    above = _package_folder().parent
    root = above.parent if above.name == "src" else above
    return frozenset({str(root)} if (root / "pyproject.toml").exists() else ())


def _own_files(sites: list[str]) -> Iterator[str]:
    """This package, and what its installation leaves in the folders of packages."""
    yield str(_package_folder())
    for site in sites:
        for folder in (site, os.path.join(site, "__pycache__")):
            if os.path.isdir(folder):
                own = (name for name in os.listdir(folder) if _is_own(name))
                yield from (os.path.join(os.path.realpath(folder), name) for name in own)


def _is_own(name: str) -> bool:
    low = name.lower()
    if low == _NAME or low.startswith((f"{_NAME}-", f"{_NAME}.")):
        return True
    return low.startswith("__editable__") and _NAME in low


def _inside(path: str, folders: frozenset[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def _holds(path: str, hidden: frozenset[str]) -> bool:
    return any(place.startswith(f"{path.rstrip('/')}/") for place in hidden)


def _without(root: str, hidden: frozenset[str]) -> Iterator[str]:
    """The folder, or, where it holds something hidden, its entries without that."""
    real = os.path.realpath(root)
    if _inside(real, hidden) or _inside(root, hidden):
        return
    if not _holds(real, hidden):
        yield root
        return
    for name in sorted(os.listdir(real)):
        path = os.path.join(real, name)
        # A link out of the folder may lead to one far above: taking that one apart would grant its
        # neighbours.
        if not (os.path.islink(path) and _holds(os.path.realpath(path), hidden)):
            yield from _without(path, hidden)


def _compiler_folders() -> Iterator[str]:
    """Where compilers outside of the system's folders live: a compiler needs its whole installation.

    One in the home folder or in the environment brings only its own file: its neighbours are no compiler's.
    """
    home = os.path.expanduser("~")
    for command in (*_COMPILERS, *(os.environ.get(name, "") for name in _COMPILER_VARIABLES)):
        found = shutil.which(command.partition(" ")[0])  # the variables may hold options too
        for path in {found, os.path.realpath(found)} if found else ():
            folder, top = os.path.dirname(path), os.path.dirname(os.path.dirname(path))
            mixed = top in ("/", home, sys.prefix) or os.path.dirname(top) == home
            yield path if mixed or os.path.basename(folder) != "bin" else top


def _library_folders(hidden: frozenset[str]) -> Iterator[str]:
    """Folders on LD_LIBRARY_PATH that do hold libraries; it may name anything, even a home folder."""
    for path in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        if not path.startswith("/") or not os.path.isdir(path):
            continue
        real = os.path.realpath(path)
        if _inside(real, hidden) or _holds(real, hidden):
            continue
        if any(".so" in name for name in os.listdir(path)):
            yield path


def _outermost(paths: Iterator[str]) -> tuple[str, ...]:
    """Without repetitions and without what lies in a folder that is in the list."""
    kept: list[str] = []
    for path in sorted(set(paths)):
        if not _inside(path, frozenset(kept)):
            kept.append(path)
    return tuple(kept)
