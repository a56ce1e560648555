"""The sandbox where less is to be had, and its parts one by one."""

from __future__ import annotations

import ctypes
import errno
import importlib
import os
import pwd
import signal
import socket
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confined import (
    LIMITS,
    MIB,
    NOBODY,
    SOURCE,
    alive_under,
    code_of,
    confined,
    make_plan,
    refuse,
    root_only,
    start_daemon,
)

from assay.records.errors import JudgeFault
from assay.records.layers import Layer
from assay.sandbox import (
    LAYERS,
    Plan,
    device_paths,
    kill_all,
    missing,
    namespace_bytes,
    probe,
    readable_paths,
    resident_bytes,
    seccomp,
    syscalls,
    unused_uid,
)

# What a confined process finds depends on the threads of the one it was forked from: a worker has more.
pytestmark = pytest.mark.alone


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return make_plan(tmp_path)


# --- where less is to be had -------------------------------------------------------------------------------


@root_only
def test_without_namespaces_the_rest_holds_and_says_so(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syscalls, "unshare", refuse)
    judge = os.getpid()
    before = Path("/proc/self/mounts").read_text()

    def action() -> list[str]:
        return [code_of(lambda: os.kill(judge, 0)), code_of(lambda: os.open(SOURCE, os.O_RDONLY))]

    with confined(plan, action) as child:
        lacking = {layer.name: layer.detail for layer in missing(child.layers.values())}
        names = {"pid_namespace", "network_namespace", "mount_namespace", "ipc_namespace", "scratch_quota"}
        assert set(lacking) == names
        assert "refused by the test" in lacking["network_namespace"]
        child.need("landlock", "user")
        assert child.result == ["EPERM", "EACCES"]
    assert Path("/proc/self/mounts").read_text() == before  # nothing was mounted on the host


@root_only
@pytest.mark.parametrize("namespaces", [True, False])
def test_as_an_unprivileged_user(monkeypatch: pytest.MonkeyPatch, namespaces: bool) -> None:
    if not namespaces:
        monkeypatch.setattr(syscalls, "unshare", refuse)
    judge, before = os.getpid(), alive_under(NOBODY)

    def action() -> list[str]:
        start_daemon()
        flags = os.O_CREAT | os.O_WRONLY
        return [
            code_of(lambda: os.kill(judge, 0)),
            code_of(lambda: os.open(SOURCE, os.O_RDONLY)),
            code_of(lambda: socket.socket(socket.AF_INET)),
            code_of(lambda: os.open("mine", flags)),
        ]

    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        scratch = Path(folder, "scratch")
        scratch.mkdir()
        os.chown(scratch, NOBODY, NOBODY)
        plan = Plan(str(scratch), readable_paths(), device_paths(), None, LIMITS)
        with confined(plan, action, user=NOBODY) as child:
            assert not child.layers["user"].active
            assert "only root" in child.layers["user"].detail
            note = child.layers["network_namespace"].detail
            assert "user namespace" in note
            assert child.layers["network_namespace"].active == (
                namespaces and "no user namespace" not in note
            )
            child.need("landlock", "seccomp")
            assert child.result[0] in ("EPERM", "ESRCH")
            assert child.result[1:] == ["EACCES", "EPERM", ""]
            assert resident_bytes(child.pid, None) > 0
            assert alive_under(NOBODY) == before + 3
        assert alive_under(NOBODY) == before


# --- the parts ---------------------------------------------------------------------------------------------


def test_probe_tries_what_it_claims() -> None:
    layers = probe()
    assert [layer.name for layer in layers] == list(LAYERS)
    assert all("; but " not in layer.detail for layer in layers if layer.active)


@root_only
def test_probe_is_not_fooled_by_return_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seccomp, "install", lambda: Layer("seccomp", True, "claimed"))
    monkeypatch.setattr(syscalls, "unshare", lambda flags: None)
    lacking = {layer.name: layer.detail for layer in missing(probe())}
    assert "made a socket" in lacking["seccomp"]
    assert "port of the host" in lacking["network_namespace"]
    assert "mount_namespace" in lacking  # the claim is checked before anything is mounted


def test_missing_counts_what_nobody_reported() -> None:
    layers = [Layer("user", True, ""), Layer("seccomp", False, "off")]
    assert missing(layers, ("user", "seccomp", "landlock")) == [
        Layer("seccomp", False, "off"),
        Layer("landlock", False, "not reported"),
    ]


def test_readable_paths_leave_the_project_out() -> None:
    paths = [os.path.realpath(path) for path in readable_paths()]
    project = SOURCE.parents[2]
    for hidden in (SOURCE, project / "pyproject.toml", project / "tests", Path("/etc/shadow")):
        assert not [path for path in paths if Path(path) == hidden or Path(path) in hidden.parents]
    assert os.path.realpath(sys.base_prefix) in paths
    assert any(Path(path) in Path(pytest.__file__).parents for path in paths)


def test_an_installed_project_is_left_out_of_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site-packages"
    own = ("assay", "assay-0.1.0.dist-info", "__editable__.assay-0.1.0.pth", "__editable___assay_finder.py")
    for name in (*own, "torch", "assaying", "six.py"):
        (site / name).mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [*sys.path, str(site)])
    granted = {os.path.basename(path) for path in readable_paths() if path.startswith(f"{site}/")}
    assert granted == {"torch", "assaying", "six.py"}


def test_a_compiler_elsewhere_brings_its_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "gcc-15" / "bin" / "gcc"
    compiler.parent.mkdir(parents=True)
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", f"{compiler} -m64")
    assert str(tmp_path / "gcc-15") in readable_paths()


def test_a_package_folder_granted_by_entry_can_be_imported_from(plan: Plan) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        Path(folder, "sandbox_test_module.py").write_text("value = 7\n")
        Path(folder, "sandbox_test_hidden.py").write_text("value = 8\n")
        sys.path.append(folder)
        try:
            granted = (*plan.readable, os.path.join(folder, "sandbox_test_module.py"))

            def action() -> list[Any]:
                value = importlib.import_module("sandbox_test_module").value
                return [value, code_of(lambda: importlib.import_module("sandbox_test_hidden"))]

            with confined(replace(plan, readable=granted), action) as child:
                child.need("landlock")
                assert child.result == [7, "EACCES"]
        finally:
            sys.path.remove(folder)


def test_links_on_the_way_lead_through_the_passage(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "real-1.0").mkdir()
    (tmp_path / "real-1.0" / "file").write_text("inside")
    (tmp_path / "link").symlink_to("real-1.0")
    (tmp_path / "beside").write_text("hidden")
    wanted = replace(plan, readable=(*plan.readable, str(tmp_path / "link")))

    with confined(wanted, lambda: [(tmp_path / "link" / "file").read_text()]) as child:
        assert child.result == ["inside"]
    with confined(wanted, lambda: os.path.exists(tmp_path / "beside")) as child:
        child.need("mount_namespace", "user")
        assert child.result is False


def run_filter(code: list[seccomp.Instruction], arch: int, number: int, argument: int = 0) -> int:
    """What the kernel's interpreter would return."""
    memory = {0: number, 4: arch, 16: argument}
    index, value = 0, 0
    while True:
        operation, if_true, if_false, operand = code[index]
        index += 1
        if operation == 0x20:
            value = memory[operand]
        elif operation == 0x06:
            return operand
        else:
            outcome = {0x15: value == operand, 0x35: value >= operand, 0x45: bool(value & operand)}[operation]
            index += if_true if outcome else if_false


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_filter_of_both_machines(machine: str) -> None:
    numbers = syscalls.numbers_of(machine)
    assert numbers is not None
    code, arch = seccomp.program(numbers), numbers.audit_arch
    allow, deny, absent, kill = 0x7FFF0000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS, 0x80000000
    for columns in seccomp.DENIED.values():
        number = columns[numbers.column]
        assert number is None or run_filter(code, arch, number) == deny
    write, clone = ((1, 56), (64, 220))[numbers.column]
    assert run_filter(code, arch, write) == allow
    assert run_filter(code, arch, clone, 0x003D0F00) == allow  # the flags of a thread
    assert run_filter(code, arch, clone, 0x10000000 | signal.SIGCHLD) == deny
    assert run_filter(code, arch, 435) == absent
    assert run_filter(code, arch ^ 1, write) == kill
    if machine == "x86_64":
        assert run_filter(code, arch, 0x40000000 | write) == kill


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of x86-64")
def test_the_numbers_are_the_headers(tmp_path: Path) -> None:
    header = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
    if not header.exists():
        pytest.skip("no kernel headers")
    rows = [line.split() for line in header.read_text().splitlines() if line.startswith("#define __NR_")]
    official = {row[1].removeprefix("__NR_"): int(row[2]) for row in rows}
    wrong = {name for name, (number, _) in seccomp.DENIED.items() if official.get(name, number) != number}
    assert wrong == set()


@root_only
def test_resident_bytes_counts_all_processes_of_the_run(plan: Plan) -> None:
    def action() -> int:
        if os.fork() == 0:
            held = bytearray(64 * MIB)
            held[::4096] = b"x" * len(held[::4096])
            time.sleep(60)
        return os.getpid()

    with confined(plan, action) as child:
        child.need("user")
        deadline = time.monotonic() + 60
        while resident_bytes(child.pid, plan.uid) < 64 * MIB and time.monotonic() < deadline:
            time.sleep(0.01)
        assert resident_bytes(child.pid, plan.uid) >= 64 * MIB
        assert resident_bytes(child.pid, None) >= 64 * MIB
        assert namespace_bytes(child.pid) >= 64 * MIB
    assert resident_bytes(child.pid, plan.uid) == 0


def test_kill_all_refuses_what_is_not_a_run() -> None:
    for pid, uid in ((1, None), (os.getpid(), None), (0, None), (2**22 + 1, 0), (2**22 + 1, os.geteuid())):
        with pytest.raises(JudgeFault):
            kill_all(pid, uid)
    kill_all(2**22 + 1, unused_uid())  # nothing there: nothing to do


@root_only
def test_unused_uid_is_fresh() -> None:
    first, second = unused_uid(), unused_uid()
    assert first is not None
    assert first != second
    assert first > NOBODY
    assert ctypes.c_int32(first).value == first


@root_only
def test_unused_uid_has_no_name(monkeypatch: pytest.MonkeyPatch) -> None:
    name = next(user for user in pwd.getpwall() if not alive_under(user.pw_uid))
    monkeypatch.setattr("assay.sandbox.processes._TRIES", 2)
    monkeypatch.setattr("assay.sandbox.processes._mapped_range", lambda: (name.pw_uid, name.pw_uid + 1))
    assert unused_uid() is None
