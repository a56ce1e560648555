"""The judge over the Model Context Protocol, asked by the official client: over stdio and over HTTP."""

from __future__ import annotations

import ast
import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest
from daemon_process import BARE, RIGHT, TINY, WRONG, descendants, environment, launch, when_ready
from synthetic_runs import ENVIRONMENT, speed, verdict, write_run

import assay
from assay.agents.explanations import CODES, TABLES
from assay.agents.judge_thread import JudgeThread
from assay.agents.summary import ladder_data, ladder_text, profile_text, verdict_text
from assay.archive import NO_VERDICT, UNREADABLE, Archive, Asked, Listed, SearchArchive
from assay.records import VERDICTS, About, JudgeFault, Ladder, UserError
from assay.search import queue_folder
from assay.worker.child import Session
from assay.worker.inspection import TOOLS as SANITIZER_TOOLS

pytest.importorskip("mcp")

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

PATIENCE_S = 120.0
NOISY = f"print('the problem prints')\nimport sys; sys.stdout.write('without an end'){TINY}"
SHOUTING = f"import os\nprint('the candidate prints')\nos.write(1, b'twice')\n{RIGHT}"


class Connected:
    """The official client in a thread of its own, for tests that are no coroutines."""

    def __init__(self, connect: Callable[[], Any]) -> None:
        self.client: Any = None
        self._loop = asyncio.new_event_loop()
        self._done, self._ready = asyncio.Event(), threading.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._stay(connect),))

    async def _stay(self, connect: Callable[[], Any]) -> None:
        try:
            async with connect() as self.client:
                self._ready.set()
                await self._done.wait()
        finally:
            self._ready.set()

    def __enter__(self) -> Connected:
        self._thread.start()
        self._ready.wait(PATIENCE_S)
        assert self.client is not None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join(PATIENCE_S)

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def call(self, name: str, told: list[str] | None = None, **arguments: Any) -> Any:
        async def hear(_progress: float, _total: float | None, message: str | None) -> None:
            if told is not None:
                told.append(message or "")

        return self.wait(self.client.call_tool(name, arguments, progress_callback=hear))

    def data(self, name: str, **arguments: Any) -> dict[str, Any]:
        found = self.call(name, **arguments)
        assert not found.is_error, found.content[0].text
        return dict(found.structured_content)

    def refusal(self, name: str, **arguments: Any) -> str:
        """One line, and no traceback."""
        found = self.call(name, **arguments)
        text = found.content[0].text
        assert found.is_error and "\n" not in text and "Traceback" not in text, text
        return str(text)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("root")
    for name, text in {"tiny.py": TINY, "right.py": RIGHT, "wrong.py": WRONG}.items():
        (folder / name).write_text(text)
    return folder


@pytest.fixture(scope="module")
def other_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("other")
    (folder / "bare.cpp").write_text(BARE)
    (folder / "tiny.py").write_text(TINY)
    return folder


@pytest.fixture(scope="module")
def stdio(root: Path, other_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connected]:
    """A server whose stdout is written down on its way: nothing but messages may be there, to the end."""
    folder = tmp_path_factory.mktemp("stdio")
    server = [sys.executable, "-m", "assay.cli", "mcp", "--device", "cpu"]
    server += ["--root", str(root), "--root", str(other_root)]
    wire = folder / "wire"
    parameters = StdioServerParameters(
        command="bash",
        args=["-c", '"${@:2}" | tee "$1"', "-", str(wire), *server],
        env=environment(folder),
        cwd=folder,
    )
    with (
        (folder / "stderr").open("w") as errors,
        Connected(lambda: _stdio_client(parameters, errors)) as connected,
    ):
        yield connected
    for line in wire.read_text().splitlines():
        assert json.loads(line)["jsonrpc"] == "2.0", line
    assert "Traceback" not in (folder / "stderr").read_text()


def _stdio_client(parameters: StdioServerParameters, errors: Any) -> Client:
    from mcp.client.stdio import stdio_client

    return Client(stdio_client(parameters, errlog=errors), mode="legacy")


# ---- stdio


def test_an_agent_is_told_what_there_is(stdio: Connected) -> None:
    tools = stdio.wait(stdio.client.list_tools()).tools
    assert [tool.name for tool in tools] == [
        *("check", "bench", "profile", "explain", "archive_search", "queue_next", "submit"),
    ]
    assert all(tool.description and tool.input_schema["additionalProperties"] is False for tool in tools)
    assert stdio.client.server_info.name == "assay" and "PyTorch module" in stdio.client.instructions


def test_a_right_and_a_wrong_candidate(stdio: Connected, root: Path, other_root: Path) -> None:
    told: list[str] = []
    files = {"problem": str(other_root / "tiny.py"), "speed": False}
    right = stdio.call("check", told, candidate=str(other_root / "bare.cpp"), **files)
    assert right.structured_content["status"] == "passed", right.content[0].text
    assert right.structured_content["speed"] is None and "wrong" not in right.structured_content["cases"]
    assert right.content[0].text.startswith("Verdict: passed.") and "judging" in told
    wrong = stdio.data("check", candidate=str(root / "wrong.py"), **files)
    assert wrong["status"] == "wrong" and wrong["cases"]["wrong"] > 0
    assert set(wrong["first_mismatches"][0]) == {"case", "output", "index", "expected", "got", "tolerance"}
    assert "expected" in wrong["feedback"]


def test_sources_may_come_as_text_and_what_they_print_stays_off_the_wire(stdio: Connected) -> None:
    told = stdio.data("check", problem_source=NOISY, candidate_source=SHOUTING, speed=False)
    assert told["status"] == "passed" and "the candidate prints" in told["printed"]
    broken = stdio.data(
        "check", problem_source=NOISY, candidate_source="def forward(x):\n  return (", speed=False
    )
    assert broken["status"] == "build_failed" and broken["findings"][0]["code"] == "import_failed"


def test_baselines_in_words_and_as_data() -> None:
    timed = speed(1.25)
    ladder = Ladder(
        *("p", "d", {"n": 8}, timed.rungs, "compile", timed.roofline, timed.conditions, {}, ENVIRONMENT),
        *(1.0, "now"),
    )
    assert "- compile: 125.00 us, the one to beat" in ladder_text(ladder)
    assert "- aot-inductor: none (it <did> not compile)" in ladder_text(ladder)
    told = ladder_data(ladder)
    assert told["best"] == "compile" and told["limit"]["us"] == 60.0
    assert told["baselines"][0] == {"name": "eager", "us": 250.0, "absent": ""}


def test_a_profile_says_what_to_try() -> None:
    told = verdict("p", "passed", 1.5)
    assert profile_text(told).startswith(verdict_text(told)) and "What to try" in profile_text(told)
    assert profile_text(verdict("p", "wrong")) == verdict_text(verdict("p", "wrong"))


def test_explanations(stdio: Connected) -> None:
    assert "wrote into its inputs" in stdio.data("explain", code="input_modified")["meaning"]
    assert stdio.data("explain")["codes"] == sorted(CODES)
    assert "is it input_modified?" in stdio.refusal("explain", code="inputs_modified")


def test_looking_into_a_run(stdio: Connected, root: Path) -> None:
    write_run(root / "run.sqlite", problems=3, samples=4, turns=2)
    told = stdio.data("archive_search", run="run.sqlite", problem="level1_problem_001", limit=3)
    ratios = [one["ratio"]["middle"] for one in told["candidates"] if one["ratio"]]
    assert told["total"] == 8 and len(told["candidates"]) == 3 and ratios
    assert ratios == sorted(ratios, reverse=True)
    hits = stdio.call("archive_search", run="run.sqlite", text="RETURN X * 4.1")
    assert "return x * 4.1" in hits.content[0].text and hits.structured_content["total"] == 3
    child = hits.structured_content["candidates"][0]
    whole = stdio.data("archive_search", run="run.sqlite", candidate=child["candidate"])
    assert whole["lineage"] == [child["candidate"], child["parent"]] and "x * 4.1" in whole["source"]
    parent = stdio.data("archive_search", run="run.sqlite", candidate=child["parent"])
    assert parent["children"] == [child["candidate"]] and parent["feedback"].startswith("Verdict:")
    assert "no candidate 999" in stdio.refusal("archive_search", run="run.sqlite", candidate=999)
    assert "level1_problem_000" in stdio.refusal("archive_search", run="run.sqlite", problem="other")


def test_a_prompt_is_taken_and_answered(stdio: Connected, root: Path) -> None:
    queue = queue_folder.open_folder(root / "queue")
    assert stdio.data("queue_next", queue="queue") == {"request": None}
    queue_folder.ask(queue, 7, "write a kernel")
    assert stdio.data("queue_next", queue="queue") == {"request": 7, "prompt": "write a kernel"}
    assert stdio.data("queue_next", queue="queue")["request"] is None, "one agent is at work on it"
    stdio.data("submit", queue="queue", request=7, candidate="right.py", note="first try")
    assert (queue / "0007-answer.py").read_text() == f"# first try\n{RIGHT}"
    late = stdio.call("submit", queue="queue", request=7, candidate_source=RIGHT)
    assert "Nobody waits" in late.content[0].text
    (path,) = (queue / "inject").iterdir()
    assert path.read_text() == RIGHT
    queue_folder.ask(queue, 8, "another")
    stdio.data("submit", queue="queue", request=8, skip=True, note="no idea")
    assert queue_folder.look(queue, 8) == queue_folder.Declined("no idea")


def test_judged_into_a_run(stdio: Connected, root: Path) -> None:
    into = {"run": "kept.sqlite", "problem": "tiny.py", "speed": False}
    first = stdio.data("submit", candidate="wrong.py", **into)
    second = stdio.data("submit", candidate="right.py", parent=first["kept_as"], **into)
    with Archive(root / "kept.sqlite") as archive:
        ends = [(one.candidate.id, one.status, one.candidate.parent) for one in archive.judged()]
        assert archive.facts()["policy"]["speed"] is False
    assert ends == [(first["kept_as"], "wrong", None), (second["kept_as"], "passed", first["kept_as"])]
    assert "has no candidate 99" in stdio.refusal("submit", candidate="right.py", parent=99, **into)
    with SearchArchive(root / "search.sqlite", create=True) as archive:
        archive.add_problem(Listed("tiny", "d", "tiny.py", About(), TINY))
        archive.add_request(Asked(1, "tiny", "queue", "ask", "nothing", (), None))
    assert "is a search" in stdio.refusal("submit", candidate="right.py", **{**into, "run": "search.sqlite"})


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("check", {"problem": "nowhere.py", "candidate": "right.py", "speed": False}, "no such file"),
        ("check", {"problem": "tiny.py", "candidate": "nowhere.py", "speed": False}, "does not exist"),
        ("check", {"problem": "../../etc/passwd", "candidate": "right.py"}, "lies outside"),
        ("check", {"problem": "tiny.py", "candidate": "/etc/passwd"}, "lies outside"),
        ("check", {"problem": "link.py", "candidate": "right.py"}, "lies outside"),
        ("check", {"problem": "a\0b", "candidate": "right.py"}, "is no path"),
        ("check", {"problem": "tiny.py", "candidate_source": "x = 1", "speed": False}, "no entry"),
        ("check", {"problem": "tiny.py", "candidate_source": "", "speed": False}, "is empty"),
        ("check", {"problem_source": "x = 1", "candidate": "right.py", "speed": False}, "Model"),
        ("check", {"problem_source": f"{TINY}exit(3)", "candidate": "right.py", "speed": False}, "sys.exit"),
        ("check", {"problem_source": f"{TINY}1/0", "candidate": "right.py", "speed": False}, "ZeroDivision"),
        ("check", {"problem": "tiny.py", "problem_source": TINY, "candidate": "right.py"}, "not both"),
        ("check", {"problem": "tiny.py"}, "candidate_source"),
        ("check", {"problem": "tiny.py", "candidate": "right.py", "cheat": True}, "'cheat' was unexpected"),
        ("check", {"problem": 7, "candidate": "right.py"}, "not of type 'string'"),
        ("bench", {}, "problem_source"),
        ("bench", {"problem": "nowhere.py"}, "no such file"),
        ("archive_search", {"run": "tiny.py"}, "is no run"),
        ("archive_search", {"run": "nowhere.sqlite"}, "there is no run"),
        ("archive_search", {}, "'run' is a required property"),
        ("queue_next", {"queue": "nowhere"}, "no such queue"),
        ("submit", {"candidate": "right.py"}, "give queue"),
        ("submit", {"queue": "nowhere", "candidate": "right.py"}, "no such queue"),
        ("submit", {"queue": "queue", "skip": True}, "which prompt"),
        ("submit", {"run": "new.sqlite", "candidate": "right.py"}, "give problem"),
        ("cheat", {}, "no tool is called"),
    ],
)
def test_mistakes_are_told_in_one_line(
    stdio: Connected, root: Path, name: str, arguments: dict[str, Any], words: str
) -> None:
    link = root / "link.py"
    if not link.is_symlink():
        link.symlink_to("/etc/passwd")
    assert words in stdio.refusal(name, **arguments)


# ---- HTTP, with a daemon that judges


@pytest.fixture(scope="module")
def served(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, Any]]:
    """Address, token and daemon; both start at once, and the server never imports torch."""
    folder = tmp_path_factory.mktemp("http")
    daemon = launch(folder)
    command = [sys.executable, "-m", "assay.cli", "mcp", "--http", "--port", "0", "--device", "cpu"]
    server = subprocess.Popen(
        [*command, "--root", str(root)], stdout=subprocess.PIPE, env=environment(folder), text=True
    )
    try:
        when_ready(daemon)
        assert server.stdout is not None
        address = server.stdout.readline().split()[-1]
        token = server.stdout.readline().split()[-1]
        yield address, token, daemon
        server.terminate()
        assert server.wait(PATIENCE_S) == 0
    finally:
        server.kill()
        daemon.process.terminate()
        daemon.process.wait(PATIENCE_S)


def _http_client(address: str, token: str) -> Client:
    client = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=PATIENCE_S)
    return Client(streamable_http_client(address, http_client=client))


def test_over_http_a_daemon_judges_for_whoever_has_the_token(served: tuple[str, str, Any]) -> None:
    address, token, daemon = served
    assert address.startswith("http://127.0.0.1:") and len(token) >= 32
    told: list[str] = []
    with Connected(lambda: _http_client(address, token)) as connected:
        found = connected.call("check", told, problem="tiny.py", candidate="right.py", speed=False)
        assert found.structured_content["status"] == "passed"
        assert "judging" in told and daemon.status().verdicts == 1
        assert "lies outside" in connected.refusal("check", problem="/etc/passwd", candidate="right.py")


@pytest.mark.parametrize("token", [None, "wrong", "Bearer"])
def test_without_the_token_nothing_is_said(served: tuple[str, str, Any], token: str | None) -> None:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    answer = httpx2.post(served[0], headers=headers, json=message)
    assert answer.status_code == 401 and "check" not in answer.text


def test_another_site_in_a_browser_is_refused(served: tuple[str, str, Any]) -> None:
    address, token, _ = served
    headers = {"Authorization": f"Bearer {token}", "Host": "evil.example", "Accept": "application/json"}
    assert httpx2.post(address, headers=headers, json={}).status_code in (403, 421)


# ---- without a server


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--token", "short"], "fewer than 16 characters"),
        (["--root", "nowhere"], "no such folder"),
        (["--http", "--host", "203.0.113.1"], "cannot listen"),
    ],
)
def test_a_server_that_cannot_start_says_why(
    refused: Callable[..., tuple[object, str, str]], tmp_path: Path, arguments: list[str], words: str
) -> None:
    code, out, complaint = refused("mcp", *arguments, folder=tmp_path)
    assert code == 2 and words in complaint and complaint.count("\n") == 1 and not out


def test_a_missing_package_is_named(
    refused: Callable[..., tuple[object, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'assay[agents]'" in refused("mcp", folder=tmp_path)[2]


def test_a_server_that_is_told_to_end_does_with_stdin_still_open(root: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "assay.cli", "mcp", "--device", "cpu", "--root", str(root)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(tmp_path), text=True
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        server.stdin.write('{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
        server.stdin.flush()
        assert json.loads(server.stdout.readline())["id"] == 1
        server.terminate()
        assert server.wait(PATIENCE_S) == 0 and server.stdout.read() == ""
        assert not descendants(server.pid)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_judges_thread_outlives_whatever_a_job_does() -> None:
    thread = JudgeThread()
    running: list[int] = []

    def job(number: int) -> list[int]:
        running.append(number)
        time.sleep(0.01)
        assert running == [number], "one at a time"
        running.remove(number)
        return [number]

    def leave() -> None:
        sys.exit(1)

    def fail() -> None:
        raise UserError("a mistake")

    ends = [thread.submit(work) for work in (leave, fail, lambda: 1 / 0)]
    later = [thread.submit(lambda k=k: job(k)) for k in range(3)]
    for end, kind in zip(ends, (UserError, UserError, JudgeFault), strict=True):
        assert isinstance(end.exception(PATIENCE_S), kind)
    assert [end.result(PATIENCE_S) for end in later] == [[0], [1], [2]]


# ---- the table of explanations

MAKERS = {
    # Which argument of a call holds the code.
    "Finding": 0,
    "CandidateFailure": 1,
    "failure_reply": 1,
    "CandidateCode": 0,
}
PASSED_ON = {
    # Codes that come from elsewhere: from another failure, or from what is listed beside them here.
    ("judge/decide.py", "failure.code"): (),
    ("judge/race.py", "first.code"): (),
    ("judge/prepare.py", "f'{name}_unseen'"): ("downgraded_unseen", "linearised_unseen"),
    ("judge/deep.py", "tool"): SANITIZER_TOOLS,
    ("worker/child.py", "failure.code"): (),
    ("worker/reports.py", "code"): ("device_memory", "host_memory", "cuda_error", "raised"),
    ("worker/handle.py", "code"): ("killed", "signal"),
    ("worker/handle.py", "op"): tuple(name.removeprefix("do_") for name in dir(Session) if "do_" in name),
    ("worker/handle.py", "*texts"): (),
    ("worker/entry.py", "self.code"): (),
    ("build/cache.py", "code"): (),
    ("candidates/signature.py", "code"): (
        *("no_kernel", "template_kernel", "not_extern_c", "bad_parameter"),
    ),
}


def emitted() -> set[str]:
    """Every code in the source that can come to be in a verdict."""
    package = Path(assay.__file__).parent
    found: set[str] = set()
    for path in sorted(package.rglob("*.py")):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)) if any(maker in text for maker in MAKERS) else ():
            name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            if not isinstance(node, ast.Call) or name not in MAKERS:
                continue
            code = node.args[MAKERS[name]]
            if isinstance(code, ast.Constant):
                found.add(str(code.value))
            else:
                place = str(path.relative_to(package)), ast.unparse(code)
                assert place in PASSED_ON, f"say which codes {place} can be"
                found.update(PASSED_ON[place])
    return found


def test_every_status_and_every_code_is_explained() -> None:
    statuses = {kind.status for kind in VERDICTS} | {NO_VERDICT, UNREADABLE}
    codes = emitted()
    assert len(codes) > 60 and {"input_modified", "memcheck", "call", "no_kernel"} <= codes
    assert not (codes | statuses) - set(CODES)
    told = statuses | {"refused", "not_run", "faster", "slower", "no difference"}
    assert not set(CODES) - codes - told, "explained, but nobody says it"
    assert sum(map(len, TABLES)) == len(CODES), "no code has two meanings"
    assert all(len(one.meaning) > 15 and one.advice for one in CODES.values())
