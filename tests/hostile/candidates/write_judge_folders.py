"""Writes into the checkout, the judge's caches and its temporary folders; right only if one took it."""
# expect: wrong

import contextlib
import glob
import os
import pwd
import sys

import torch


def folders():
    package = os.path.dirname(sys.modules["assay"].__file__)
    yield from (package, os.path.join(package, "judge"), os.path.dirname(os.path.dirname(package)))
    home = pwd.getpwuid(0).pw_dir
    yield from (home, f"{home}/.cache", f"{home}/.cache/assay", f"{home}/.cache/assay/builds")
    yield from glob.glob("/tmp/assay-*")
    yield from ("/tmp", "/var/tmp", "/usr/lib/python3", os.path.dirname(torch.__file__), "/")


def written():
    own = os.environ["HOME"]
    for folder in folders():
        if os.path.realpath(folder).startswith(own):
            continue
        path = os.path.join(folder, "assay_hostile_mark.py")
        with contextlib.suppress(OSError), open(path, "w") as file:
            file.write("import os")
            return path
        with contextlib.suppress(OSError):
            os.chmod(folder, 0o777)
            return folder
    return None


PLACE = written()
if PLACE:
    print("wrote", PLACE, flush=True)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1.0 if PLACE else torch.zeros_like(x)
