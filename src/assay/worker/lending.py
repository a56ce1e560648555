"""What candidates may import of this package: the tile kernels, which hold nothing of the judge.

The rest of the package lies where candidates cannot read, so Python finds no folder to look into: this tells
it where the one part is.
"""

from __future__ import annotations

import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any

import assay

LENT = "assay.tiles"
LENT_FOLDER = Path(assay.__file__).resolve().parent / "tiles"


class _Lender(MetaPathFinder):
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname != LENT:
            return None
        start = LENT_FOLDER / "__init__.py"
        return spec_from_file_location(LENT, start, submodule_search_locations=[str(LENT_FOLDER)])


def lend() -> None:
    sys.meta_path.insert(0, _Lender())
    # A candidate that calls a kernel is judged by that kernel, not by torch in its place.
    os.environ.setdefault("ASSAY_TILES_ALWAYS", "tiles")
