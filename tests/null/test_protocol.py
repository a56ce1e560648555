"""Frames between judge and child, and the records a child may answer with."""

from __future__ import annotations

import array
import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from assay.records.errors import CandidateFailure
from assay.worker import messages, protocol
from assay.worker.handle import _reported
from assay.worker.messages import OutputFact
from assay.worker.protocol import Closed, Message, ProtocolError, Reader

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


def drain(reader: Reader, frames: int = 1) -> list[Message]:
    found: list[Message] = []
    while len(found) < frames:
        assert reader.feed()
        while (message := reader.next()) is not None:
            found.append(message)
    return found


def frame(head: Any, payload: bytes = b"") -> bytes:
    text = head if isinstance(head, bytes) else json.dumps(head).encode()
    return struct.pack(">II", len(text), len(payload)) + text + payload


def test_importing_the_protocol_does_not_import_torch() -> None:
    code = "import sys, assay.worker.protocol, assay.worker.messages; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("payload", [b"", b"x", bytes(range(256)) * 40])
def test_messages_arrive_whole_and_in_order(pair: Pair, payload: bytes) -> None:
    ours, theirs = pair
    protocol.send(theirs, {"n": 1, "text": "ö", "nest": [None, {"a": 1.5}]}, payload)
    protocol.send(theirs, {"n": 2})
    first, second = drain(Reader(ours), 2)
    assert first == Message({"n": 1, "text": "ö", "nest": [None, {"a": 1.5}]}, payload, ())
    assert second == Message({"n": 2}, b"", ())


def test_partial_reads_give_nothing_until_the_frame_is_whole(pair: Pair) -> None:
    ours, theirs = pair
    reader = Reader(ours)
    data = frame({"a": 1}, b"payload") + frame({"b": 2})
    split = len(frame({"a": 1}, b"payload"))
    for k, byte in enumerate(data, start=1):
        theirs.sendall(bytes([byte]))
        assert reader.feed()
        message = reader.next()
        assert (message is not None) == (k in (split, len(data))), k
    assert message is not None and message.head == {"b": 2} and reader.next() is None


def test_feeding_does_not_block_and_sees_the_end(pair: Pair) -> None:
    ours, theirs = pair
    reader = Reader(ours)
    assert reader.feed() and reader.next() is None
    theirs.sendall(frame({"last": True})[:-1])
    theirs.close()
    assert reader.feed() and reader.next() is None
    assert not reader.feed() and reader.next() is None


@pytest.mark.parametrize(
    ("head_bytes", "payload_bytes"),
    [
        (protocol.MAX_HEADER_BYTES + 1, 0),
        (0xFFFFFFFF, 0),
        (2, protocol.MAX_PAYLOAD_BYTES + 1),
        (2, 0xFFFFFFFF),
    ],
)
def test_oversized_frames_are_refused_from_their_header_alone(
    pair: Pair, head_bytes: int, payload_bytes: int
) -> None:
    ours, theirs = pair
    theirs.sendall(struct.pack(">II", head_bytes, payload_bytes) + b"{}")
    reader = Reader(ours)
    reader.feed()
    with pytest.raises(ProtocolError, match="oversized"):
        reader.next()


def test_frames_at_the_limit_are_waited_for(pair: Pair) -> None:
    ours, theirs = pair
    theirs.sendall(struct.pack(">II", protocol.MAX_HEADER_BYTES, protocol.MAX_PAYLOAD_BYTES))
    reader = Reader(ours)
    assert reader.feed() and reader.next() is None


@pytest.mark.parametrize(
    "text",
    [
        b'{"a": NaN}', b'{"a": Infinity}', b'{"a": [-Infinity]}', b"[]", b"[{}]", b"3", b'"text"', b"null",
        b"true", b"", b"{", b"{'a': 1}", b"{} {}", b"\xff\xfe", b'{"a": "\xff"}', b"[" * 50_000,
        b'{"a":' * 10_000, b'{"a": ' + b"9" * 5000 + b"}",
    ],
)  # fmt: skip
def test_what_is_no_strict_object_is_refused(pair: Pair, text: bytes) -> None:
    ours, theirs = pair
    theirs.sendall(frame(text))
    reader = Reader(ours)
    while reader.feed() and len(reader._buffer) < 8 + len(text):
        pass
    with pytest.raises(ProtocolError):
        reader.next()


def test_nan_is_not_sent_either(pair: Pair) -> None:
    with pytest.raises(ValueError):
        protocol.send(pair[0], {"a": float("nan")})


def test_descriptors_go_to_the_side_that_trusts(pair: Pair) -> None:
    ours, theirs = pair
    read_end, write_end = os.pipe()
    protocol.send(ours, {"arena": 1}, b"body", (write_end,))
    message = protocol.receive_trusted(theirs)
    assert message.head == {"arena": 1} and message.payload == b"body" and len(message.fds) == 1
    assert message.fds[0] != write_end
    os.write(message.fds[0], b"hello")
    assert os.read(read_end, 5) == b"hello"
    for fd in (read_end, write_end, *message.fds):
        os.close(fd)


def test_descriptors_from_the_untrusted_side_are_never_opened(pair: Pair) -> None:
    ours, theirs = pair
    read_end, write_end = os.pipe()
    before = set(os.listdir("/proc/self/fd"))
    data = frame({"gift": True})
    theirs.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [write_end] * 3))])
    (message,) = drain(Reader(ours))
    assert message == Message({"gift": True}, b"", ())
    assert set(os.listdir("/proc/self/fd")) == before
    os.close(read_end)
    os.close(write_end)


def test_a_trusted_receiver_reads_fragments_and_notices_the_end(pair: Pair) -> None:
    ours, theirs = pair
    ours.sendall(frame({"a": 1}, b"abc"))
    assert protocol.receive_trusted(theirs) == Message({"a": 1}, b"abc", ())
    ours.sendall(frame({"a": 1}, b"abc")[:-1])
    ours.close()
    with pytest.raises(Closed):
        protocol.receive_trusted(theirs)


def test_sending_to_nobody_says_so(pair: Pair) -> None:
    ours, theirs = pair
    theirs.close()
    with pytest.raises(Closed):
        for _ in range(3):
            protocol.send(ours, {"a": 1}, b"x" * 100_000)


# ---- answers

FACT = {
    "type": "Tensor",
    "plain": True,
    "device": "cpu",
    "shape": [2, 3],
    "dtype": "float32",
    "delivered": True,
}


def test_output_facts_are_decoded_strictly() -> None:
    (fact,) = messages.decode_list(OutputFact, [FACT])
    assert fact == OutputFact("Tensor", True, "cpu", (2, 3), "float32", True)
    assert messages.decode(OutputFact, {**FACT, "aliases": "input 0"}).aliases == "input 0"


@pytest.mark.parametrize(
    "forged",
    [
        {**FACT, "verdict": "passed"},
        {k: v for k, v in FACT.items() if k != "dtype"},
        {**FACT, "shape": [2.0, 3]},
        {**FACT, "shape": [True, 3]},
        {**FACT, "shape": "23"},
        {**FACT, "shape": 6},
        {**FACT, "plain": 1},
        {**FACT, "delivered": "yes"},
        {**FACT, "dtype": None},
        {**FACT, "aliases": 0},
        [FACT],
        None,
        "Tensor",
    ],
)
def test_forged_facts_reject_the_candidate(forged: Any) -> None:
    with pytest.raises(CandidateFailure) as caught:
        messages.decode(OutputFact, forged)
    assert caught.value.status == "rejected" and caught.value.code == "forged_message"


def test_lists_must_be_lists() -> None:
    for wrong in ({"0": FACT}, "[]", None, 3):
        with pytest.raises(CandidateFailure):
            messages.decode_list(OutputFact, wrong)
        with pytest.raises(CandidateFailure):
            messages.decode_names(wrong)
    with pytest.raises(CandidateFailure):
        messages.decode_names(["a", 1])
    assert messages.decode_names(["a", "b"]) == ["a", "b"]


@pytest.mark.parametrize("text", ["x" * (messages.LONGEST_TEXT + 1), "two\nlines", "\x1b[2J", "\x00"])
def test_texts_that_are_long_or_not_printable_are_forged(text: str) -> None:
    with pytest.raises(CandidateFailure, match="malformed"):
        messages.decode(OutputFact, {**FACT, "type": text})
    with pytest.raises(CandidateFailure, match="malformed"):
        messages.decode_names(["first", text])


def test_lists_have_an_end() -> None:
    assert len(messages.decode_names(["a"] * messages.MOST_ITEMS)) == messages.MOST_ITEMS
    with pytest.raises(CandidateFailure):
        messages.decode_names(["a"] * (messages.MOST_ITEMS + 1))
    with pytest.raises(CandidateFailure):
        messages.decode_list(OutputFact, [FACT] * (messages.MOST_ITEMS + 1))


SAMPLE = {"device_us": 10.0, "launch_us": 5.0, "host_us": 12.0, "sm_mhz": 1980.0}


def test_samples_are_decoded_strictly() -> None:
    assert messages.decode_sample(SAMPLE) == messages.Sample(10.0, 5.0, 12.0, 1980.0)
    assert messages.decode_sample(None) is None


@pytest.mark.parametrize("field", SAMPLE)
@pytest.mark.parametrize("value", [-1e-9, -5.0, 1e12, "NaN", "Infinity", "-Infinity", "10", None, True])
def test_impossible_samples_are_forged(field: str, value: Any) -> None:
    with pytest.raises(CandidateFailure) as caught:
        messages.decode_sample({**SAMPLE, field: value})
    assert (caught.value.status, caught.value.code) == ("rejected", "forged_message")


def test_a_burst_has_an_answer_for_each_call() -> None:
    assert messages.decode_burst([{}, {}], 2) == [{}, {}]


@pytest.mark.parametrize("answers", [[{}], [{}, {}, {}], {"0": {}, "1": {}}, [{}, None], None])
def test_forged_bursts_reject_the_candidate(answers: Any) -> None:
    with pytest.raises(CandidateFailure) as caught:
        messages.decode_burst(answers, 2)
    assert (caught.value.status, caught.value.code) == ("rejected", "forged_message")


def test_counts_are_decoded_strictly() -> None:
    assert messages.decode_counts([["aten::mm", 2, 3.5]]) == [messages.Counted("aten::mm", 2, 3.5)]


@pytest.mark.parametrize(
    "row",
    [
        ["a", -1, 3.5],
        ["a", 2, -3.5],
        ["a", 2, "NaN"],
        ["a", 2, 1e12],
        ["a", 10**12, 3.5],
        ["a", 2.5, 3.5],
        ["a", True, 3.5],
        ["a\n", 2, 3.5],
        [7, 2, 3.5],
        ["a", 2],
        {"name": "a", "calls": 2, "time_us": 3.5},
        "abc",
    ],
)
def test_impossible_counts_are_forged(row: Any) -> None:
    for plain in ([row], row, [["b", 1, 1.0]] * (messages.MOST_ITEMS + 1)):
        with pytest.raises(CandidateFailure) as caught:
            messages.decode_counts(plain)
        assert (caught.value.status, caught.value.code) == ("rejected", "forged_message")


@pytest.mark.parametrize("status", ["passed", "rejected", "timed_out", "", None, 3])
def test_a_child_cannot_claim_any_status(status: Any) -> None:
    assert _reported({"status": status, "code": "c", "message": "m"}).status == "crashed"
    assert [_reported({"status": s}).status for s in ("wrong", "build_failed")] == ["wrong", "build_failed"]
    assert _reported("no object").status == "crashed"
    assert len(_reported({"message": "x" * 10_000}).message) == 4000
    assert _reported({"message": "a\x1b[2Jb"}).message == "a?[2Jb"
