"""What a client sends that cannot be read: `assay mcp` answers it, and goes on."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from daemon_process import RIGHT, TINY, environment

pytest.importorskip("mcp")

PATIENCE_S = 60.0
PARSE_ERROR, INVALID_REQUEST = -32700, -32600
OPENING = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
HALF = "\ud800"


class Wire:
    """A server, spoken to in lines."""

    def __init__(self, folder: Path) -> None:
        words = [sys.executable, "-m", "assay.cli", "mcp", "--device", "cpu", "--root", str(folder)]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(folder), text=True
        )
        self._number = 0

    def say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE_S)
        assert ready, "no answer"
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        request = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self.say(json.dumps(request))
        answer = self.hear()
        assert answer["id"] == self._number
        return answer

    def close(self) -> int:
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    wire = Wire(tmp_path_factory.mktemp("wire"))
    wire.ask("initialize", **OPENING)
    wire.say(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}))
    yield wire
    assert wire.close() == 0


@pytest.mark.parametrize(
    "arguments",
    [
        {"problem_source": TINY, "candidate_source": f"{RIGHT}# {HALF}", "speed": False},
        {"problem_source": f"{TINY}# \udc00{HALF}", "candidate_source": RIGHT},
        {HALF: 1},
    ],
)
def test_half_a_character_is_answered_to_who_asked(wire: Wire, arguments: dict[str, Any]) -> None:
    error = wire.ask("tools/call", name="check", arguments=arguments)["error"]
    assert error["code"] == PARSE_ERROR and "half of a surrogate pair" in error["message"]
    assert "error" not in wire.ask("tools/call", name="explain", arguments={})


def test_whole_characters_beyond_sixteen_bits_are_taken(wire: Wire) -> None:
    answer = wire.ask("tools/call", name="explain", arguments={"code": "\U0001f600"})
    assert "\U0001f600" in answer["result"]["content"][0]["text"]


@pytest.mark.parametrize(
    ("line", "number", "code"),
    [
        ("hello", None, PARSE_ERROR),
        ('{"jsonrpc": "2.0", "id": 7, "method": "tools/list"', None, PARSE_ERROR),
        ('{"jsonrpc": "2.0", "id": "mine", "methods": "tools/list"}', "mine", INVALID_REQUEST),
        ('{"jsonrpc": "2.0", "id": 8, "method": 9}', 8, INVALID_REQUEST),
        ('{"jsonrpc": "2.0", "id": "\\udc00", "method": "tools/list"}', None, PARSE_ERROR),
        ("[1]", None, INVALID_REQUEST),
        ("[" * 9000, None, PARSE_ERROR),
    ],
)
def test_what_is_no_request_is_refused(wire: Wire, line: str, number: int | str | None, code: int) -> None:
    wire.say(line)
    answer = wire.hear()
    assert (answer["id"], answer["error"]["code"]) == (number, code)


@pytest.mark.parametrize(
    "line",
    [
        "",
        '{"jsonrpc": "2.0", "method": "notifications/\\ud800"}',
        '{"jsonrpc": "2.0", "id": 1, "result": "\\ud800"}',
        '{"jsonrpc": "2.0", "id": 1, "error": 5}',
    ],
)
def test_where_nobody_waits_nothing_is_said(wire: Wire, line: str) -> None:
    wire.say(line)
    assert "result" in wire.ask("tools/list")
