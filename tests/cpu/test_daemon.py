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
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hostile_walk import CANDIDATES, PROBLEM, read_expectation

import assay
from assay.daemon import places, protocol
from assay.daemon.bench import Bench, read_policy, read_source
from assay.daemon.client import Daemon, Unavailable, connect, find_daemon
from assay.daemon.door import Door
from assay.daemon.protocol import MAX_REQUEST_BYTES, Lines
from assay.daemon.server import Reins, Server
from assay.judge import Judge
from assay.records import JudgeFault, UserError
from assay.records.decoding import decode_verdict

ROOT = Path(__file__).parents[2]
QUICK = {"derive_hidden": False, "speed": False}
TINY = """
import torch

rows = 8
cols = 16


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1.0


def get_inputs():
    return [torch.randn(rows, cols)]
"""
RIGHT = "import torch\ndef forward(x):\n    return torch.clamp(x, min=0) + 1.0\n"
WRONG = "import torch\ndef forward(x):\n    return torch.clamp(x, min=0) + 1.001\n"
BARE = """
// assay: out y = torch.empty_like(x)
// assay: call add(x, y, x.numel())
// assay: return y
extern "C" void add(const float* x, float* y, long n) {
    for (long i = 0; i < n; i++) y[i] = (x[i] > 0 ? x[i] : 0.0f) + 1.0f;
}
"""
PATIENCE_S = 120.0


@dataclass
class Running:
    """A daemon process of this test."""

    process: subprocess.Popen[str]
    folder: Path
    """Stands in for XDG_RUNTIME_DIR."""

    @property
    def path(self) -> Path:
        return self.folder / "assay" / "judge-cpu.sock"

    @property
    def environment(self) -> dict[str, str]:
        return environment(self.folder)

    def client(self) -> Daemon:
        found = connect(self.path)
        assert isinstance(found, Daemon), found
        return found

    def status(self) -> protocol.Status:
        with self.client() as daemon:
            return daemon.status

    def check(self, problem: Path, candidate: Path, policy: dict[str, Any] | None = None) -> Any:
        with self.client() as daemon:
            return daemon.check(str(problem), str(candidate), policy or QUICK, lambda words: None)


def environment(folder: Path) -> dict[str, str]:
    # One thread: these tensors are so small that more only wait for each other.
    return {**os.environ, "XDG_RUNTIME_DIR": str(folder), "OMP_NUM_THREADS": "1"}


def start(folder: Path, *options: str, code: str = "") -> Running:
    """A daemon at the usual place below `folder`; `code` runs in it first."""
    text = f"import sys\n{code}\nfrom assay.cli.main import main\nmain()"
    command = [sys.executable, "-c", text, "serve-judge", "--device", "cpu", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(folder), text=True)
    running = Running(process, folder)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert str(running.path) in line, line
    return running


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    # Short, since the path of a socket may have no more than 107 characters, and open to other users.
    path = Path(tempfile.mkdtemp(prefix="assay-test-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def daemon(folder: Path) -> Iterator[Running]:
    running = start(folder, "--idle-exit", "3600")
    yield running
    below = descendants(running.process.pid)
    assert below
    with running.client() as client:
        client.stop()
    assert running.process.wait(PATIENCE_S) == 0
    assert not running.path.exists()
    assert not [pid for pid in below if alive(pid)]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, text in {"tiny.py": TINY, "right.py": RIGHT, "wrong.py": WRONG, "bare.cpp": BARE}.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def descendants(pid: int) -> set[int]:
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := stat_fields(int(name))):
            parents[int(name)] = int(fields[1])
    found, new = set(), {pid}
    while new:
        found |= new
        new = {child for child, parent in parents.items() if parent in new} - found
    return found - {pid}


def alive(pid: int) -> bool:
    fields = stat_fields(pid)
    return bool(fields) and fields[0] not in ("Z", "X")


def stat_fields(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


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


def request(**changes: Any) -> bytes:
    plain = {"op": "check", "problem": "/nowhere.py", "candidate": str(CANDIDATES / "abort.py")}
    plain |= {"policy": QUICK, "assay": assay.__version__, **changes}
    return json.dumps({k: v for k, v in plain.items() if v is not None}).encode() + b"\n"


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


def test_check_asks_the_daemon_without_importing_torch(daemon: Running, files: Path) -> None:
    """A policy of its own (the default one), so this is also the second judge; a third one takes turns."""
    code = (
        "import sys\nfrom assay.cli.main import main\n"
        "try:\n    main()\nfinally:\n    print('torch' in sys.modules, file=sys.stderr)"
    )
    command = [sys.executable, "-c", code, "check", "tiny.py", "wrong.py", "--device", "cpu"]
    run = subprocess.run(
        command, cwd=files, env=daemon.environment, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert run.returncode == 1
    assert run.stdout.startswith("WRONG")
    assert run.stderr.strip() == "False"
    record = files / run.stdout.strip().splitlines()[-1].removeprefix("record: ")
    assert decode_verdict(json.loads(record.read_text())).status == "wrong"
    assert daemon.status().judges == 2
    kept = daemon.status().problems_kept
    with pytest.raises(UserError, match="no such file"):
        daemon.check(files / "nowhere.py", files / "right.py", {**QUICK, "allow_tf32": True})
    assert daemon.status().judges == 2
    assert daemon.status().problems_kept < kept


def test_a_stale_socket_is_said_once_and_the_judge_runs_here(files: Path, folder: Path) -> None:
    place = folder / "stale" / "assay"
    place.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as gone:
        gone.bind(str(place / "judge-cpu.sock"))
    command = [sys.executable, "-m", "assay.cli", "check", "tiny.py", "wrong.py", "--device", "cpu", "--json"]
    run = subprocess.run(
        command, cwd=files, env=environment(place.parent), capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert run.returncode == 1
    assert json.loads(run.stdout)["status"] == "wrong"
    assert len(run.stderr.strip().splitlines()) == 1
    assert "judging in this process" in run.stderr


def test_only_a_daemon_that_judges_alike_is_found(daemon: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(daemon.folder))
    found = find_daemon("cpu")
    assert isinstance(found, Daemon)
    found.close()
    assert find_daemon("cuda:3") is None
    assert find_daemon("abacus") is None
    monkeypatch.setattr(assay, "__version__", "0.0.0")
    refused = find_daemon("cpu")
    assert isinstance(refused, Unavailable)
    assert "this is 0.0.0" in refused.reason


def test_the_place_is_taken_once(daemon: Running, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="already running"):
        Door(daemon.path)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="no socket"):
        Door(tmp_path / "file")
    with pytest.raises(UserError, match="cannot write"):
        Door(tmp_path / "nowhere" / "judge.sock")
    with pytest.raises(UserError, match="cannot listen"):
        Door(tmp_path / ("n" * 120))
    stale = tmp_path / "s"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.bind(str(stale))
        other.listen()
        with pytest.raises(UserError, match="something else listens"):
            Door(stale)
    door = Door(stale)
    assert stat.S_IMODE(stale.stat().st_mode) == 0o600
    door.close()
    door.close()
    door.release()
    assert not stale.exists()


def test_the_folder_is_ours_alone(tmp_path: Path) -> None:
    places.make_private_folder(tmp_path / "new")
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    (tmp_path / "open").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(tmp_path / "new")
    for name in ("open", "link"):
        with pytest.raises(UserError, match="nobody else may enter"):
            places.make_private_folder(tmp_path / name)


def test_usual_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    assert places.default_socket("cuda:1") == Path("/run/user/7/assay/judge-cuda-1.sock")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert places.default_socket("cpu") == Path(f"/tmp/assay-{os.geteuid()}/judge-cpu.sock")
    assert places.default_socket("../cpu") is None
    assert places.likely_devices("cuda") == ("cuda:0",)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert places.likely_devices(None) == ("cuda:0", "cpu")


def test_a_judge_that_failed_is_replaced(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Judge] = []
    failed: list[Judge] = []

    def fail(judge: Judge, *_arguments: object) -> None:
        failed.append(judge)
        raise JudgeFault("out of order")

    monkeypatch.setattr(Judge, "evaluate", fail)
    monkeypatch.setattr(Judge, "close", lambda judge: closed.append(judge))
    bench, policy = Bench(torch.device("cpu")), read_policy(QUICK)
    problem = bench.open_problem(str(files / "tiny.py"), policy)
    candidate = read_source(str(files / "right.py"))
    for _ in range(2):
        with pytest.raises(JudgeFault, match="out of order"):
            bench.evaluate(policy, problem, candidate)
        bench.sweep()
    assert failed[0] is not failed[1]
    assert closed == failed
    bench.close()


def test_waiting_candidates_are_compiled_hang_ups_leave_and_stop_finishes_nothing(
    files: Path, folder: Path
) -> None:
    (folder / "busy").mkdir()
    daemon = start(folder / "busy")
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


def test_it_leaves_when_nobody_comes() -> None:
    bench = Bench(torch.device("cpu"))
    Server(bench, Reins(), idle_exit_s=0.1).work()
    bench.close()


def test_an_error_nobody_foresaw_ends_it_loudly(folder: Path, files: Path) -> None:
    (folder / "broken").mkdir()
    code = "import assay.daemon.server as server\nserver.read_source = lambda path: 1 / 0"
    daemon = start(folder / "broken", code=code)
    with pytest.raises(JudgeFault, match="ended before the verdict"):
        daemon.check(files / "tiny.py", files / "right.py")
    assert daemon.process.wait(PATIENCE_S) == 2
    assert not daemon.path.exists()
