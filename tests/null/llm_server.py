"""A small real HTTP server on loopback: OpenAI's and Anthropic's protocols, recorded answers."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

Reply = str | tuple[int, str]
"""The text of an answer; or a status and a raw body."""


class ModelServer:
    """Answers every prompt by what `answer(prompt)` says; remembers what it was asked."""

    def __init__(self, answer: Callable[[str], Reply]) -> None:
        self.asked: list[dict[str, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.append({"path": self.path, "headers": dict(self.headers), **body})
                status, text = _reply(self.path, answer(body["messages"][-1]["content"]))
                data = text.encode("utf-8", "surrogatepass")
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                with contextlib.suppress(BrokenPipeError):  # whoever asked may have gone
                    self.wfile.write(data)

            def log_message(self, *_arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> ModelServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _reply(path: str, reply: Reply) -> tuple[int, str]:
    if isinstance(reply, tuple):
        return reply
    if path.endswith("/messages"):
        return 200, json.dumps(
            {
                "id": "m",
                "type": "message",
                "role": "assistant",
                "model": "tiny",
                "content": [{"type": "text", "text": reply}],
                "stop_reason": "end_turn",
                "stop_sequence": None,
                "usage": {"input_tokens": 100, "output_tokens": 50},
            }
        )
    return 200, json.dumps(
        {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": "tiny",
            "choices": [
                {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": reply}}
            ],
            "usage": {"prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150},
        }
    )
