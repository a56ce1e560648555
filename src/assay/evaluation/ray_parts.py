"""What runs on the nodes of a cluster. Arguments and results are JSON text."""

from __future__ import annotations

import functools
import json
import os
import platform
import tempfile
from pathlib import Path

from assay.candidates import candidate_from_source
from assay.evaluation.devices import describe_device
from assay.evaluation.process import WorkerProcess
from assay.judge import Builder, Policy
from assay.llm import Settings, Spoken, complete
from assay.llm.answers import KEYS
from assay.problems import Parcel
from assay.records import AssayError, UserError, from_plain, to_plain


class Judging:
    """An actor: a worker process of its node, started anew if it dies."""

    def __init__(self, settings: str) -> None:
        self._settings = json.loads(settings)
        self._folder = tempfile.TemporaryDirectory(prefix="assay-problems-")
        self._process: WorkerProcess | None = None
        self._places: dict[str, str] = {}

    def hello(self) -> str:
        """Starts the judge; says what to build for."""
        told = self._running().ask({"id": 0, "hello": True})
        if told is None:
            raise RuntimeError("the judge's process died as it started")
        return json.dumps(told)

    def judge(self, asked: str, built: str) -> str:
        """A worker's answer, and who gave it; an error if the judge's process dies."""
        request = json.loads(asked)
        request["path"] = self._place(from_plain(Parcel, request.pop("parcel"), "parcel"))
        request["built"] = json.loads(built)
        told = self._running().ask(request)
        if told is None:
            self._process = None
            raise RuntimeError("the judge's process died on it")
        return json.dumps({**told, "worker": f"{platform.node()}/{os.getpid()}"})

    def _running(self) -> WorkerProcess:
        if self._process is None:
            settings = self._settings
            self._process = WorkerProcess(settings["device"], settings["policy"], settings["threads"])
        return self._process

    def _place(self, parcel: Parcel) -> str:
        if parcel.digest not in self._places:
            self._places[parcel.digest] = str(parcel.unpack(Path(self._folder.name)))
        return self._places[parcel.digest]


def describe_remotely(device: str) -> str:
    """What judges on this node, or the error that says why it cannot."""
    try:
        return json.dumps(to_plain(describe_device(device)))
    except UserError as error:
        return json.dumps({"error": f"{platform.node()}: {error}"})


def build_remotely(asked: str) -> str:
    """A shipped build; null where the judge has to see to it itself."""
    request = json.loads(asked)
    candidate = candidate_from_source(request["source"], request["name"], request["suffix"])
    try:
        build = _builder(request["cuda_arch"], json.dumps(request["policy"])).build(candidate)
    except AssayError:  # no compiler here, say: the judge's own tells
        build = None
    return json.dumps(None if build is None else to_plain(build))


@functools.cache
def _builder(cuda_arch: str | None, policy: str) -> Builder:
    """For as long as Ray keeps this process."""
    return Builder(cuda_arch, from_plain(Policy, json.loads(policy), "policy"))


def complete_remotely(asked: str) -> str:
    """A model's answer, or the error that a person has to see to."""
    request = json.loads(asked)
    settings = from_plain(Settings, request["settings"], "settings")
    if request["key"]:
        os.environ[KEYS[settings.provider]] = request["key"]
    try:
        return json.dumps(to_plain(complete(settings, from_plain(Spoken, request["prompt"], "prompt"))))
    except UserError as error:
        return json.dumps({"error": str(error)})
