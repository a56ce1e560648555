"""Shared by the tests that need torch on the CPU."""

from __future__ import annotations

import ctypes
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from daemon_process import environment, write_files

from assay.cli.main import main


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """For tensors so small that more threads only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A few problems and candidates, and room for a daemon's socket."""
    # Short, since the path of a socket may have no more than 107 characters, and open to other users.
    place = Path(tempfile.mkdtemp(prefix="assay-test-", dir="/tmp"))
    place.chmod(0o755)
    write_files(place)
    yield place
    shutil.rmtree(place)


@pytest.fixture
def refused(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[object, str, str]]:
    """The command line in this process, for what it refuses: its exit code, output and complaint.

    Where nothing is judged, a process of its own would do little but import torch.
    """

    def run(*arguments: object, folder: Path) -> tuple[object, str, str]:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            patch.setattr(sys, "argv", ["assay", *map(str, arguments)])
            patch.setattr(signal, "signal", lambda *_: None)
            for name, value in environment(folder).items():
                patch.setenv(name, value)
            with pytest.raises(SystemExit) as left:
                main()
        return left.value.code, *capfd.readouterr()

    return run


@pytest.fixture
def undisturbed_memory() -> Iterator[None]:
    """For children without a process: this process's memory as it was afterwards."""
    yield
    ctypes.CDLL(None).mallopt(-6, 0)  # M_PERTURB: each call poisons what is allocated next
