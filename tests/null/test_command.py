"""The command as it starts."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

INTERRUPTED_WHILE_IMPORTED = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "assay.cli.search":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
from assay.__main__ import main
main()
"""


TELLING = """
import os, sys

class Telling:
    def find_spec(self, name, path=None, target=None):
        if name == "assay.cli.main":
            print(os.environ["OMP_WAIT_POLICY"])

sys.meta_path.insert(0, Telling())
sys.argv = ["assay", "--version"]
from assay.__main__ import main
main()
"""


def test_an_interrupt_during_the_imports_ends_in_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_WHILE_IMPORTED], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "assay: interrupted\n")


def test_the_package_is_a_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "assay", "--version"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and done.stdout.startswith("assay, version")


@pytest.mark.parametrize("asked", ["", "ACTIVE"])
def test_waiting_threads_sleep_unless_somebody_asks_for_more(asked: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment |= {"OMP_WAIT_POLICY": asked} if asked else {}
    done = subprocess.run(
        [sys.executable, "-c", TELLING], capture_output=True, text=True, timeout=60, env=environment
    )
    assert done.stdout.startswith((asked or "PASSIVE") + "\nassay, version")
