"""Candidates that compile themselves: `load_inline` and `load`, remembered across runs.

Building a torch extension takes a minute, and a Python candidate does it on import, every time. In the child
these two functions are wrapped: what they build is handed to the judge once the candidate is loaded, before
any input exists, and is given back the next time the same source runs. A library is used only for the very
same arguments, and only ever for the same candidate. It is given back as torch gives it: an imported module,
or the path of a library that is loaded.

Not covered: programs (`is_standalone`), and builds a candidate starts any other way.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.utils.cpp_extension as cpp_extension

from assay.records.codec import digest

SUFFIX = ".so"


class InlineBuilds:
    """Libraries by the digest of the call that built them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()

    def install(self) -> None:
        for name in ("load_inline", "load"):
            setattr(cpp_extension, name, self._wrapped(getattr(cpp_extension, name)))

    def unpack(self, payload: bytes) -> None:
        """Take what an earlier run of this candidate built."""
        if not payload:
            return
        length = int.from_bytes(payload[:8], "big")
        offset = 8 + length
        for key, size in json.loads(payload[8:offset]):
            (self._folder / (key + SUFFIX)).write_bytes(payload[offset : offset + size])
            offset += size

    def pack(self) -> bytes:
        """Everything built so far, as one run of bytes; empty if nothing was."""
        files = sorted(self._folder.glob("*" + SUFFIX))
        if not files:
            return b""
        index = json.dumps([[file.stem, file.stat().st_size] for file in files]).encode()
        return len(index).to_bytes(8, "big") + index + b"".join(file.read_bytes() for file in files)

    def _wrapped(self, original: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(original)

        @functools.wraps(original)
        def build(name: str, *args: Any, **kwargs: Any) -> Any:
            asked = signature.bind(name, *args, **kwargs).arguments
            is_module = asked.get("is_python_module", True)
            path = self._folder / (_key(original.__name__, name, args, kwargs) + SUFFIX)
            if path.exists():
                return _import_library(name, path) if is_module else _load_library(path)
            made = original(name, *args, **kwargs)
            built = getattr(made, "__file__", None) if is_module else made
            if built and not asked.get("is_standalone", False):
                path.write_bytes(Path(built).read_bytes())
            return made

        return build


def _key(*call: Any) -> str:
    return digest(*(repr(part) for part in call))


def _import_library(name: str, path: Path) -> Any:
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None:
        raise ImportError(f"{path.name} is no extension module")
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[name] = module
    return module


def _load_library(path: Path) -> str:
    torch.ops.load_library(path)
    return str(path)
