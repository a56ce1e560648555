"""Parts of the daemon that need no process of their own: places, the bench, the line, errors on their way."""

from __future__ import annotations

import os
import socket
import stat
import threading
from pathlib import Path

import pytest
import torch
from daemon_process import QUICK, write_files

from assay.daemon import places
from assay.daemon.bench import Bench, read_policy, read_source
from assay.daemon.door import Door
from assay.daemon.line import Job, Line, Place
from assay.daemon.protocol import error_message, received_error
from assay.daemon.server import Reins, Server
from assay.judge import Judge
from assay.records import CandidateFailure, FlawedProblem, JudgeFault, UserError
from assay.records.decoding import decode_verdict


def test_the_place_is_taken_once(tmp_path: Path) -> None:
    first = Door(tmp_path / "first")
    with pytest.raises(UserError, match="already running"):
        Door(tmp_path / "first")
    first.close()
    with pytest.raises(UserError, match="already running"):
        Door(tmp_path / "first")
    first.release()
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


def test_a_judge_that_failed_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[Judge] = []
    failed: list[Judge] = []

    def fail(judge: Judge, *_arguments: object) -> None:
        failed.append(judge)
        raise JudgeFault("out of order")

    monkeypatch.setattr(Judge, "evaluate", fail)
    monkeypatch.setattr(Judge, "close", lambda judge: closed.append(judge))
    write_files(tmp_path)
    bench, policy = Bench(torch.device("cpu")), read_policy(QUICK)
    problem = bench.open_problem(str(tmp_path / "tiny.py"), policy)
    candidate = read_source(str(tmp_path / "right.py"))
    for _ in range(2):
        with pytest.raises(JudgeFault, match="out of order"):
            bench.evaluate(policy, problem, candidate)
        bench.sweep()
    assert failed[0] is not failed[1]
    assert closed == failed
    bench.close()


def test_it_leaves_when_nobody_comes() -> None:
    bench = Bench(torch.device("cpu"))
    Server(bench, Reins(), idle_exit_s=0.1).work()
    bench.close()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (UserError("u"), UserError),
        (FlawedProblem("f"), UserError),
        (JudgeFault("j"), JudgeFault),
        (CandidateFailure("crashed", "code", "c"), JudgeFault),
    ],
)
def test_errors_keep_their_family_and_words(error: Exception, kind: type[Exception]) -> None:
    back = received_error(error_message(error)["error"])
    assert type(back) is kind
    assert str(back) == str(error)
    assert isinstance(received_error("words"), JudgeFault)


def test_openings_go_first_and_leaving_moves_the_others_up() -> None:
    line = Line()
    jobs = {name: Job(lambda name=name: name) for name in ("first", "second", "third", "opening")}
    for name, job in jobs.items():
        line.join(job, opening=name == "opening")
    assert [line.place_of(job).ahead for job in jobs.values()] == [0, 1, 2, 0]
    taken = line.take(None)
    assert taken is jobs["opening"]
    assert line.place_of(taken) == Place("running")
    assert not line.leave(taken)
    assert line.leave(jobs["first"])
    assert line.place_of(jobs["third"]) == Place("waiting", 2)
    taken.run()
    line.finish(taken)
    assert line.place_of(taken) == Place("done")
    assert taken.result() == "opening"
    assert line.take(None) is jobs["second"]
    assert len(line) == 2


def test_a_job_wakes_its_thread_and_hears_the_client_leave() -> None:
    job = Job(lambda: 1 / 0)
    client, other = socket.socketpair()
    job.wake()
    assert job.sleep(client)
    threading.Timer(0.05, other.close).start()
    assert not job.sleep(client)
    with pytest.raises(ZeroDivisionError):
        job.run()
    client.close()
    job.close()


@pytest.mark.parametrize("plain", [None, [], {}, {"status": "splendid"}, {"status": "passed", "extra": 1}])
def test_what_is_no_verdict_is_not_decoded(plain: object) -> None:
    with pytest.raises(UserError, match="verdict"):
        decode_verdict(plain)
