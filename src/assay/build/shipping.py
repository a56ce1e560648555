"""A finished build on its way to another machine. Equal keys mean equal sources, compilers, flags and
architecture, so that whoever computes the same key may take it.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass

from assay.build.cache import BuildCache


@dataclass(frozen=True, slots=True)
class ShippedBuild:
    """An entry of a build cache as text."""

    key: str
    kind: str | None
    artefact: str
    """base64."""
    log: str
    failure: tuple[str, str, str] | None


def ship_build(builds: BuildCache, key: str) -> ShippedBuild | None:
    """None if there is none, or one that another try could change."""
    found = builds.get(key)
    if found is None:
        return None
    artefact = base64.b64encode(found.artefact or b"").decode()
    return ShippedBuild(key, found.kind, artefact, found.log, found.failure)


def keep_build(builds: BuildCache, build: ShippedBuild) -> None:
    """Unless it is there already."""
    with builds.locked(build.key):
        if builds.get(build.key) is not None:
            return
        if build.failure is not None:
            builds.put_failure(build.key, *build.failure)
        elif build.kind is not None:
            builds.put_success(build.key, build.kind, base64.b64decode(build.artefact), build.log, 0.0)
