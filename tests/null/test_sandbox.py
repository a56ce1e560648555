"""What a confined process cannot and can do.

A layer that this machine lacks is skipped with its own reason, not passed.
"""

from __future__ import annotations

import errno
import importlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confined import (
    LIMITS,
    MIB,
    SOURCE,
    alive_under,
    code_of,
    confined,
    make_plan,
    refuse,
    root_only,
    start_daemon,
)

from assay.sandbox import (
    LAYERS,
    Plan,
    missing,
    seccomp,
    syscalls,
)

# What a confined process finds depends on the threads of the one it was forked from: a worker has more.
pytestmark = pytest.mark.alone


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return make_plan(tmp_path)


# --- what it cannot do -------------------------------------------------------------------------------------


def test_cannot_read_the_project_or_secrets(plan: Plan) -> None:
    def action() -> list[str]:
        places = (str(SOURCE), str(SOURCE.parent / "sandbox" / "plan.py"), "/etc/shadow")
        listed = code_of(lambda: os.listdir(SOURCE.parents[1]))
        return [code_of(lambda place=place: os.open(place, os.O_RDONLY)) for place in places] + [listed]

    with confined(plan, action) as child:
        child.need("landlock")
        assert child.result == ["EACCES"] * 4


def test_cannot_write_outside_scratch(plan: Plan) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        target = os.path.join(folder, "stray")

        def action() -> list[str]:
            flags = os.O_CREAT | os.O_WRONLY
            return [code_of(lambda: os.open(target, flags)), code_of(lambda: os.mkdir(target))]

        with confined(plan, action) as child:
            child.need("landlock")
            assert child.result == ["EACCES", "EACCES"]


def test_cannot_use_tcp_even_with_an_inherited_socket(plan: Plan) -> None:
    with socket.socket() as listener, socket.socket() as plug, socket.socket() as other:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        where = listener.getsockname()

        def action() -> list[str]:
            return [code_of(lambda: plug.connect(where)), code_of(lambda: other.bind(("127.0.0.1", 0)))]

        with confined(plan, action) as child:
            child.need("landlock")
            assert child.result == ["EACCES", "EACCES"]


def test_cannot_open_sockets(plan: Plan) -> None:
    families = (socket.AF_INET, socket.AF_INET6, socket.AF_PACKET, socket.AF_NETLINK, socket.AF_UNIX, 40)

    def action() -> list[str]:
        made = [
            code_of(lambda family=family: socket.socket(family, socket.SOCK_DGRAM)) for family in families
        ]
        return [*made, code_of(lambda: socket.socketpair(socket.AF_UNIX))]

    with confined(plan, action) as child:
        child.need("seccomp")
        assert child.result == ["EPERM"] * len(families) + [""]


def test_cannot_reach_into_the_kernel_or_processes(plan: Plan) -> None:
    numbers = syscalls.NUMBERS
    assert numbers is not None

    def action() -> dict[str, str]:
        found = {}
        for name, columns in seccomp.DENIED.items():
            number = columns[numbers.column]
            if number is not None:
                found[name] = code_of(lambda number=number: syscalls.syscall(number, 0, 0, 0, 0, 0))
        namespaces = 0x10000000 | signal.SIGCHLD
        clone = 56 if numbers.column == 0 else 220
        found["clone"] = code_of(lambda: syscalls.syscall(clone, namespaces, 0, 0, 0, 0))
        return found

    with confined(plan, action) as child:
        child.need("seccomp")
        assert {name for name, code in child.result.items() if code != "EPERM"} == set()


def test_cannot_signal_the_judge_or_see_others(plan: Plan) -> None:
    judge = os.getpid()

    def action() -> list[Any]:
        signalled = [code_of(lambda pid=pid: os.kill(pid, 0)) for pid in (judge, os.getppid() or judge)]
        return [signalled, os.getpid(), sorted(name for name in os.listdir("/proc") if name.isdigit())]

    with confined(plan, action) as child:
        child.need("pid_namespace", "user")
        signalled, pid, seen = child.result
        assert pid == 1
        assert seen == ["1"]
        assert all(signalled)


@root_only
def test_has_no_privileges_left(plan: Plan) -> None:
    def action() -> dict[str, Any]:
        lines = Path("/proc/self/status").read_text().splitlines()
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        wanted = ("Uid", "Gid", "Groups", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp")
        return {
            "status": {name: status[name].strip() for name in wanted},
            "root": code_of(lambda: os.setuid(0)),
            "oom": Path("/proc/self/oom_score_adj").read_text().strip(),
        }

    with confined(plan, action) as child:
        child.need("user")
        status = child.result["status"]
        assert {int(status[name], 16) for name in status if name.startswith("Cap")} == {0}
        assert status["Uid"] == status["Gid"] == "\t".join([str(plan.uid)] * 4)
        assert (status["Groups"], status["NoNewPrivs"], status["Seccomp"]) == ("", "1", "2")
        assert (child.result["root"], child.result["oom"]) == ("EPERM", "1000")


def test_cannot_fork_past_the_limit(plan: Plan) -> None:
    def action() -> int:
        for count in range(200):
            try:
                if os.fork() == 0:
                    signal.pause()
            except BlockingIOError:
                return count
        return 200

    with confined(plan, action) as child:
        child.need("rlimits", "user")
        assert child.result == LIMITS.processes - 1


@pytest.mark.parametrize("folder", ["", "/dev/shm"])
def test_cannot_fill_more_than_the_quota(plan: Plan, folder: str) -> None:
    def action() -> list[Any]:
        written = 0
        for number in range(40):
            with open(os.path.join(folder or plan.scratch, str(number)), "wb", buffering=0) as file:
                try:
                    written += file.write(bytes(MIB))
                except OSError as error:
                    return [errno.errorcode[error.errno or 0], written]
        return ["", written]

    with confined(plan, action) as child:
        child.need("scratch_quota", "mount_namespace")
        code, written = child.result
        assert code == "ENOSPC"
        assert written <= LIMITS.scratch_bytes
    assert os.listdir(plan.scratch) == []  # it was the child's own, and is gone with it


def test_cannot_write_files_or_take_addresses_past_the_limit(plan: Plan) -> None:
    small = replace(LIMITS, file_bytes=MIB, address_space_bytes=2 << 30)

    def action() -> list[Any]:
        with open("large", "wb", buffering=0) as file:
            first = file.write(bytes(2 * MIB))
            second = code_of(lambda: file.write(b"x"))
        try:
            bytearray(4 << 30)
        except MemoryError:
            return [first, second, "MemoryError"]
        return [first, second, ""]

    with confined(replace(plan, limits=small), action) as child:
        child.need("rlimits")
        assert child.result == [MIB, "EFBIG", "MemoryError"]


@root_only
@pytest.mark.parametrize("namespaces", [True, False])
def test_a_daemon_dies_with_the_run(plan: Plan, monkeypatch: pytest.MonkeyPatch, namespaces: bool) -> None:
    assert plan.uid is not None
    if not namespaces:
        monkeypatch.setattr(syscalls, "unshare", refuse)
    with confined(plan, start_daemon) as child:
        child.need("user")
        assert child.layers["pid_namespace"].active == namespaces
        assert alive_under(plan.uid) == 2
    assert alive_under(plan.uid) == 0


# --- what it can do ----------------------------------------------------------------------------------------


def test_can_import_from_below_a_closed_folder(plan: Plan) -> None:
    unseen = [name for name in ("colorsys", "sched", "wave", "cmd", "shelve") if name not in sys.modules]

    def action() -> list[str]:
        importlib.import_module(unseen[0])
        command = [sys.executable, "-c", "import json, ssl, sys; print(sys.prefix)"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return [done.stdout.strip(), done.stderr]

    with confined(plan, action) as child:
        assert child.result == [sys.prefix, ""]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc")
def test_can_compile_and_run_in_scratch(plan: Plan) -> None:
    def action() -> list[Any]:
        os.environ["TMPDIR"] = plan.scratch
        Path("answer.c").write_text('#include <stdio.h>\nint main(void) { return printf("42") != 2; }\n')
        built = subprocess.run(["gcc", "-O1", "answer.c", "-o", "answer"], capture_output=True, check=False)
        ran = subprocess.run(["./answer"], capture_output=True, check=False)
        Path("answer.c").rename("renamed.c")
        return [built.returncode, built.stderr.decode(), ran.stdout.decode()]

    with confined(plan, action) as child:
        assert child.result == [0, "", "42"]


def test_can_use_threads_and_its_own_proc(plan: Plan) -> None:
    def action() -> list[Any]:
        waiting = threading.Event()
        thread = threading.Thread(target=waiting.wait)
        thread.start()
        # As the CUDA driver names its threads: by the file, from another thread.
        name = Path(f"/proc/self/task/{thread.native_id}/comm")
        name.write_text("renamed")
        found = [name.read_text().strip(), "[stack]" in Path("/proc/self/maps").read_text()]
        waiting.set()
        thread.join()
        return found

    with confined(plan, action) as child:
        assert child.result == ["renamed", True]


def test_every_layer_is_reported_once_and_active_here(plan: Plan) -> None:
    with confined(plan, lambda: os.path.samefile(os.getcwd(), plan.scratch)) as child:
        assert set(child.layers) == set(LAYERS)
        assert child.result is True
        lacking = missing(child.layers.values())
    if lacking:
        pytest.skip(f"this machine lacks {[layer.name for layer in lacking]}")
