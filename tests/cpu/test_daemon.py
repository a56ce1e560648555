"""The warm judge daemon as its clients meet it: a real process on a real socket."""

from __future__ import annotations

import json
import os
import queue
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from daemon_process import (
    PATIENCE_S,
    QUICK,
    TINY,
    Running,
    alive,
    descendants,
    end,
    launch,
    request,
    when_ready,
    write_files,
)
from hostile_walk import CANDIDATES, PROBLEM, read_expectation

import assay
from assay.daemon.client import Daemon, Unavailable, find_daemon
from assay.daemon.protocol import MAX_REQUEST_BYTES, Lines
from assay.records import JudgeFault, UserError
from assay.records.decoding import decode_verdict

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def daemon(folder: Path) -> Iterator[Running]:
    """The last test that asks it stops it; without that test it ends as test_cli.py has it end."""
    running = when_ready(launch(folder, "--idle-exit", "3600"))
    yield running
    if running.process.poll() is None:
        end(running)


@pytest.fixture(scope="module", autouse=True)
def broken(folder: Path) -> Iterator[Running]:
    """A daemon with a bug in a client's thread; started early to save time."""
    code = "import assay.daemon.server as server\nserver.read_source = lambda path: 1 / 0"
    running = launch(folder / "broken", code=code)
    yield running
    running.process.kill()
    running.process.wait()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write_files(tmp_path)
    return tmp_path


def test_a_problem_is_prepared_once_and_anew_when_it_changes(daemon: Running, files: Path) -> None:
    before = daemon.status()
    verdicts = [daemon.check(files / "tiny.py", files / name) for name in ("right.py", "wrong.py")]
    assert [verdict.status for verdict in verdicts] == ["passed", "wrong"]
    assert verdicts[0].problem.path == str(files / "tiny.py")
    assert verdicts[1].cases[0].mismatches
    after = daemon.status()
    assert (after.verdicts - before.verdicts, after.problems_kept - before.problems_kept) == (2, 1)
    (files / "tiny.py").write_text(TINY.replace("+ 1.0", "+ 1.001"))
    changed = [daemon.check(files / "tiny.py", files / name).status for name in ("right.py", "wrong.py")]
    assert changed == ["wrong", "passed"]
    assert daemon.status().problems_kept - before.problems_kept == 2


def test_clients_at_once_are_all_answered(daemon: Running, files: Path) -> None:
    names = ["right.py", "wrong.py", "bare.cpp", "right.py", "nowhere.py"]
    answers: list[str] = [""] * len(names)

    def ask(k: int) -> None:
        try:
            answers[k] = daemon.check(files / "tiny.py", files / names[k]).status
        except UserError as error:
            answers[k] = str(error)

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(len(names))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert answers[:4] == ["passed", "wrong", "passed", "passed"]
    assert "nowhere.py does not exist" in answers[4]


@pytest.mark.parametrize("name", ["kill_everyone.py", "forge_ok.py", "exit_in_destructor.py"])
def test_a_hostile_candidate_does_not_end_it(daemon: Running, files: Path, name: str) -> None:
    verdict = daemon.check(PROBLEM, CANDIDATES / name)
    assert verdict.status in read_expectation(CANDIDATES / name).statuses
    assert daemon.check(files / "tiny.py", files / "right.py").status == "passed"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"good morning\n", "not a JSON object"),
        (b"[1, 2]\n", "not a JSON object"),
        (b'{"op": NaN}\n', "not a JSON object"),
        (b"[" * 5000 + b"\n", "not a JSON object"),
        (b"\xff\xfe\n", "not a JSON object"),
        (b"x" * (MAX_REQUEST_BYTES + 2), "longer than"),
        (b'{"op": "dance"}\n', "no such request: 'dance'"),
        (request(problem=None), "missing field 'problem'"),
        (request(extra=1), "unknown field 'extra'"),
        (request(problem=7), "request.problem: expected str"),
        (request(), "no such file or folder"),
        (request(problem="\ud800\x00"), "absolute paths"),
        (request(problem="/\ud800\x00.py"), "no such file"),
        (request(problem="/" + "n" * 5000), "problem"),
        (request(problem="there.py"), "absolute paths"),
        (request(candidate="/nowhere.cu"), "does not exist"),
        (request(candidate="/" + "n" * 5000 + ".py"), "cannot be read"),
        (request(assay="0.0.0"), "restart it"),
        (request(policy={"patience": 1}), "policy: unknown field 'patience'"),
        (request(policy={"call_timeout_s": "long"}), "policy.call_timeout_s: expected float"),
        (request(policy={"call_timeout_s": "Infinity"}), "policy.call_timeout_s"),
        (request(policy={"processes": -1}), "policy.processes"),
    ],
)
def test_bad_input_is_answered_with_its_reason(daemon: Running, line: bytes, words: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(PATIENCE_S)
        client.connect(str(daemon.path))
        client.sendall(line)
        replies = Lines(client, 1 << 20)
        while "progress" in (reply := replies.next() or {}):
            pass
    assert reply["error"]["kind"] == "user"
    assert words in reply["error"]["message"]
    assert daemon.process.poll() is None


def test_problems_that_cannot_be_judged_are_their_clients_alone(daemon: Running, files: Path) -> None:
    constant = ROOT / "tests" / "cpu" / "data" / "kernelbench" / "level1" / "5_Constant.py"
    with pytest.raises(UserError, match="cannot tell right from wrong"):
        daemon.check(constant, files / "right.py")
    (files / "leaves.py").write_text(TINY + "\nPRECISION = {}\nraise SystemExit(0)\n")
    with pytest.raises(UserError, match=r"sys\.exit"):
        daemon.check(files / "leaves.py", files / "right.py")
    (files / "deep.py").write_text(TINY + "\nx = " + "-" * 100_000 + "1\n")
    with pytest.raises(UserError, match=r"deep\.py"):
        daemon.check(files / "deep.py", files / "right.py")
    assert daemon.check(files / "tiny.py", files / "right.py").status == "passed"


def test_a_connection_carries_several_requests(daemon: Running, files: Path) -> None:
    with daemon.client() as client:
        with pytest.raises(UserError):
            client.check(str(files / "nowhere.py"), str(files / "right.py"), QUICK, lambda words: None)
        verdict = client.check(str(files / "tiny.py"), str(files / "right.py"), QUICK, lambda words: None)
    assert verdict.status == "passed"


def test_a_run_is_finished_without_its_client(daemon: Running, files: Path) -> None:
    before = daemon.status().verdicts
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.connect(str(daemon.path))
        client.sendall(request(problem=str(files / "tiny.py"), candidate=str(files / "right.py")))
        lines = Lines(client, 1 << 20)
        while lines.next() != {"progress": "judging"}:
            pass
    while daemon.status().verdicts == before:
        time.sleep(0.01)
    assert daemon.status().queue == 0


def test_a_client_may_close_its_sending_half(daemon: Running, files: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(PATIENCE_S)
        client.connect(str(daemon.path))
        client.sendall(request(problem=str(files / "tiny.py"), candidate=str(files / "wrong.py")))
        client.shutdown(socket.SHUT_WR)
        lines = Lines(client, 1 << 20)
        while "verdict" not in (reply := lines.next() or {}):
            assert "progress" in reply
    assert decode_verdict(reply["verdict"]).status == "wrong"


def test_another_user_is_turned_away(daemon: Running) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    assert stat.S_IMODE(daemon.path.stat().st_mode) == 0o600
    daemon.path.chmod(0o666)
    daemon.path.parent.chmod(0o711)
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with client:
        client.settimeout(PATIENCE_S)
        os.seteuid(65534)
        try:
            client.connect(str(daemon.path))
        finally:
            os.seteuid(0)
            daemon.path.chmod(0o600)
            daemon.path.parent.chmod(0o700)
        reply = Lines(client, 1 << 20).next()
    assert reply is not None
    assert "you are user 65534" in reply["error"]["message"]


def test_a_client_with_other_mounts_is_turned_away(daemon: Running) -> None:
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("needs root and unshare")
    code = (
        "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\nprint(s.recv(9999))"
    )
    command = ["unshare", "--mount", sys.executable, "-c", code, str(daemon.path)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert "another mnt namespace" in run.stdout


def test_check_asks_the_daemon_without_importing_torch(daemon: Running, files: Path) -> None:
    """A policy of its own (the default one), so this is also the second judge; a third replaces it."""
    code = (
        "import sys\nfrom assay.cli.main import main\n"
        "try:\n    main()\nfinally:\n    print('torch' in sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, "check", "tiny.py", "untimed.py", "--device", "cpu"]
    run = subprocess.run(
        command, cwd=files, env=daemon.environment, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert run.returncode == 1
    assert run.stdout.startswith("WRONG")
    assert run.stderr.strip() == "False"
    record = files / run.stdout.strip().splitlines()[-1].removeprefix("record: ")
    assert decode_verdict(json.loads(record.read_text())).status == "wrong"
    assert daemon.status().judges == 2
    assert daemon.check(files / "tiny.py", files / "right.py").status == "passed"
    kept = daemon.status().problems_kept
    with pytest.raises(UserError, match="no such file"):
        daemon.check(files / "nowhere.py", files / "right.py", {**QUICK, "allow_tf32": True})
    assert daemon.status().judges == 2
    assert daemon.status().problems_kept < kept


def test_a_stale_socket_is_said_once_and_the_judge_runs_here(
    refused: Callable[..., tuple[object, str, str]], folder: Path
) -> None:
    """`assay check` where a daemon has left its socket behind."""
    place = folder / "stale"
    (place / "assay").mkdir(parents=True)
    write_files(place)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gone:
        gone.bind(str(place / "assay" / "judge-cpu.sock"))
    order = ("check", "tiny.py", "wrong.py", "--json", "--no-speed", "--device", "cpu")
    code, output, complaint = refused(*order, folder=place)
    assert code == 1
    assert json.loads(output)["status"] == "wrong"
    assert len(complaint.strip().splitlines()) == 1
    assert "judging in this process" in complaint


def test_only_a_daemon_that_judges_alike_is_found(daemon: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(daemon.folder))
    found = find_daemon("cpu")
    assert isinstance(found, Daemon)
    found.close()
    assert find_daemon("cuda:3") is None
    assert find_daemon("abacus") is None
    with monkeypatch.context() as patch:
        patch.setattr(assay, "__file__", __file__)
        edited = find_daemon("cpu")
    assert isinstance(edited, Unavailable)
    assert "other source" in edited.reason
    monkeypatch.setattr(assay, "__version__", "0.0.0")
    refused = find_daemon("cpu")
    assert isinstance(refused, Unavailable)
    assert "this is 0.0.0" in refused.reason


def test_an_error_nobody_foresaw_ends_it_loudly(broken: Running, files: Path) -> None:
    when_ready(broken)
    with pytest.raises(JudgeFault, match="ended before the verdict"):
        broken.check(files / "tiny.py", files / "right.py")
    assert broken.process.wait(PATIENCE_S) == 2
    assert broken.process.stdout is not None
    assert "ZeroDivisionError" in broken.process.stdout.read()
    assert not broken.path.exists()


def test_waiting_candidates_are_compiled_hang_ups_leave_and_stop_finishes_nothing(
    daemon: Running, files: Path
) -> None:
    """The last one that asks this daemon."""
    assert daemon.check(files / "tiny.py", files / "wrong.py").status == "wrong"
    heard: queue.Queue[tuple[str, str]] = queue.Queue()

    def ask(name: str, candidate: Path, client: Daemon) -> None:
        try:
            client.check(str(files / "tiny.py"), str(candidate), QUICK, lambda w: heard.put((name, w)))
        except JudgeFault as fault:
            heard.put((name, str(fault)))

    def send(name: str, candidate: Path) -> Daemon:
        client = daemon.client()
        threading.Thread(target=ask, args=(name, candidate, client)).start()
        return client

    clients = [send("hanging", CANDIDATES / "hang_import.py")]
    while heard.get(timeout=PATIENCE_S) != ("hanging", "judging"):
        pass
    clients.append(send("bare", files / "bare.cpp"))
    # The device stays busy throughout: what follows "compiling" was said while it was.
    assert heard.get(timeout=PATIENCE_S) == ("bare", "compiling")
    assert heard.get(timeout=PATIENCE_S) == ("bare", "queued, 1 ahead")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as leaver:
        leaver.connect(str(daemon.path))
        leaver.sendall(request(problem=str(files / "tiny.py"), candidate=str(files / "right.py")))
        assert Lines(leaver, 1 << 20).next() == {"progress": "queued, 2 ahead"}
        assert daemon.status().queue == 3
    while daemon.status().queue != 2:
        time.sleep(0.01)
    below = descendants(daemon.process.pid)
    with daemon.client() as stopper:
        stopper.stop()
    assert daemon.process.wait(PATIENCE_S) == 0
    assert not daemon.path.exists()
    assert not [pid for pid in below if alive(pid)]
    ends = dict(heard.get(timeout=PATIENCE_S) for _ in clients)
    assert set(ends) == {"hanging", "bare"}
    assert all("ended before the verdict" in words for words in ends.values())
