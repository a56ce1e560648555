"""Reading what CUPTI recorded: its records as they lie in memory."""

from __future__ import annotations

import ctypes

import pytest

from assay.worker.device_activity import (
    KERNEL,
    MEMCPY,
    MEMSET,
    NAME_OFFSET,
    START_OFFSET,
    read_record,
    written_name,
)


def record(kind: int, start_ns: int, end_ns: int, name: bytes = b"") -> tuple[str, float]:
    text = ctypes.create_string_buffer(name)
    memory = ctypes.create_string_buffer(256)
    address = ctypes.addressof(memory)
    ctypes.c_uint32.from_address(address).value = kind
    ctypes.c_uint64.from_address(address + START_OFFSET).value = start_ns
    ctypes.c_uint64.from_address(address + START_OFFSET + 8).value = end_ns
    ctypes.c_uint64.from_address(address + NAME_OFFSET).value = ctypes.addressof(text)
    return read_record(address)


def test_a_kernel_has_its_name_and_its_time() -> None:
    assert record(KERNEL, 1000, 4500, b"layer_norm") == ("layer_norm", 3.5)


@pytest.mark.parametrize(("kind", "name"), [(MEMCPY, "Memcpy"), (MEMSET, "Memset")])
def test_copies_and_fills_have_no_name_of_their_own(kind: int, name: str) -> None:
    assert record(kind, 7, 2007, b"not read") == (name, 2.0)


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        (b"_ZN2at6native4fillEPf", "at::native::fill(float*)"),
        (b"f", "f"),
        (b"_Z", "_Z"),
        (b"caf\xff", "caf\ufffd"),
        (b"", ""),
    ],
)
def test_symbols_are_written_as_in_their_source(symbol: bytes, name: str) -> None:
    assert written_name(symbol) == name
