"""Fingerprints of memory: any flipped bit shows, whatever the length, and keys are secret."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.correctness import Fingerprinter

CPU = torch.device("cpu")
PRINTER = Fingerprinter(CPU)


def random_bytes(size: int, seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 256, (size,), dtype=torch.uint8, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("size", range(101))
def test_every_single_bit_counts_in_small_memory(size: int) -> None:
    data = random_bytes(size, size)
    before = PRINTER.of(data)
    assert PRINTER.of(data.clone()) == before
    for at in range(size):
        for bit in range(8) if size < 20 else (0, 7):
            data[at] ^= 1 << bit
            assert PRINTER.of(data) != before, (at, bit)
            data[at] ^= 1 << bit
    assert PRINTER.of(data) == before


@settings(max_examples=60, deadline=None)
@given(size=st.integers(1, 5000), place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_any_flipped_bit_changes_the_fingerprint(size: int, place: float, bit: int) -> None:
    data = random_bytes(size, size)
    before = PRINTER.of(data)
    data[int(place * size)] ^= 1 << bit
    assert PRINTER.of(data) != before


@pytest.mark.parametrize("size", [(8 << 20) - 1, 8 << 20, (8 << 20) + 8, (17 * 8 << 20) + 13])
def test_every_part_of_large_memory_counts(size: int) -> None:
    """Whole rows of 8 MiB, blocks of sixteen of them, the words after them and the bytes after those."""
    data = torch.zeros(size, dtype=torch.uint8)
    before = PRINTER.of(data)
    row = 8 << 20
    places = {0, 7, size // 2, size - 1, size - 9, min(row, size) - 1, min(row, size - 1), 16 * row}
    for at in sorted(p for p in places if p < size):
        data[at] ^= 0x80
        assert PRINTER.of(data) != before, at
        data[at] ^= 0x80


def test_moved_and_swapped_contents_show() -> None:
    data = random_bytes(4096)
    before = PRINTER.of(data)
    assert PRINTER.of(data.roll(1)) != before and PRINTER.of(data.roll(8)) != before
    assert PRINTER.of(data.flip(0)) != before
    words = data.view(torch.int64).clone()
    words[3], words[200] = words[200].item(), words[3].item()
    assert PRINTER.of(words.view(torch.uint8)) != before


def test_lengths_of_zeros_differ_within_a_word() -> None:
    prints = [PRINTER.of(torch.zeros(n, dtype=torch.uint8)) for n in range(8)]
    assert len(set(prints)) == 8


def test_other_keys_give_other_fingerprints() -> None:
    data = random_bytes(1000)
    prints = {Fingerprinter(CPU).of(data) for _ in range(5)} | {PRINTER.of(data)}
    assert len(prints) == 6


def test_what_was_seen_before_something_larger_has_the_same_fingerprint() -> None:
    printer, data = Fingerprinter(CPU), random_bytes(50_001)
    before = printer.of(data)
    printer.of(random_bytes((9 << 20) + 3))
    assert printer.of(data) == before


def test_exchanged_rows_show() -> None:
    """Each row of 8 MiB has a multiplier of its own: what lies in one does not count for another."""
    row = 8 << 20
    data = torch.zeros(3 * row, dtype=torch.uint8)
    data[5], data[2 * row + 5] = 1, 2
    before = PRINTER.of(data)
    data[5], data[2 * row + 5] = 2, 1
    assert PRINTER.of(data) != before
    data[5], data[row + 5], data[2 * row + 5] = 1, 2, 0
    assert PRINTER.of(data) != before


def test_a_change_that_keeps_one_fingerprint_does_not_keep_another() -> None:
    """Whoever knew the multipliers could choose a change that goes unnoticed: they are drawn anew."""
    stranger = Fingerprinter(CPU)
    first, second = stranger._keys[:2].tolist()
    words = torch.zeros(8, dtype=torch.int64)
    changed = words.clone()
    changed[0], changed[1] = second, -first
    assert stranger.of(words.view(torch.uint8)) == stranger.of(changed.view(torch.uint8))
    assert PRINTER.of(words.view(torch.uint8)) != PRINTER.of(changed.view(torch.uint8))
