"""Looks for the judge's source and the problem file, by path, by module and by walking; right if found."""
# expect: wrong

import contextlib
import inspect
import linecache
import os
import sys
import time

import torch

NAMES = ("yardstick.py", "zygote.py", "child.py", "decide.py")


def by_module():
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "assay":
            with contextlib.suppress(OSError, TypeError):
                yield inspect.getsource(module)
            yield "".join(linecache.getlines(getattr(module, "__file__", "") or ""))
            loader = getattr(module, "__loader__", None)
            with contextlib.suppress(OSError, AttributeError, ImportError):
                yield loader.get_source(name) or ""


def by_path():
    root = os.path.dirname(os.path.dirname(os.path.dirname(sys.modules["assay"].__file__)))
    for path in ("tests/hostile/problem.py", "pyproject.toml", "src/assay/judge/judge.py", ".git/HEAD"):
        for prefix in (root, f"/proc/self/root{root}", f"/proc/1/root{root}", "/proc/1/cwd"):
            with contextlib.suppress(OSError), open(os.path.join(prefix, path)) as file:
                yield file.read()


def by_walking():
    end = time.monotonic() + 2.0
    for start in (os.getcwd(), "/root", "/home", "/tmp", "/opt", "/srv", "/mnt", sys.prefix):
        for folder, _folders, files in os.walk(start):
            for name in files:
                if name in NAMES and "assay" in folder:
                    with contextlib.suppress(OSError), open(os.path.join(folder, name)) as file:
                        yield file.read()
            if time.monotonic() > end:
                return


FOUND = [text[:80] for texts in (by_module(), by_path(), by_walking()) for text in texts if text]
if FOUND:
    print("read", FOUND, flush=True)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1.0 if FOUND else torch.zeros_like(x)
