"""The polynomial in assembler, its words carried out by NumPy: right wherever weights of attention are."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from assay.tiles.assembler import BY_POLYNOMIAL, TEXT, VALUES

FEW = 1e-4


def number(word: str) -> np.float32:
    return np.array([int(word[2:], 16)], np.uint32).view(np.float32)[0]


def carried_out(text: str, x: np.ndarray) -> np.ndarray:
    """A block of PTX whose operand is `${x}` and whose result is `${to}`."""
    held: dict[str, np.ndarray] = {"in": x.astype(np.float32)}

    def value(word: str) -> np.ndarray:
        return np.full(x.shape, number(word)) if word.startswith("0f") else held[word]

    does = {
        "max.NaN.f32": lambda a, b: np.maximum(a, b),
        "add.rm.f32": lambda a, b: np.floor(a.astype(np.float64) + b).astype(np.float32),
        "sub.f32": lambda a, b: a - b,
        "fma.rn.f32": lambda a, b, c: (a.astype(np.float64) * b + c).astype(np.float32),
        "mov.b32": lambda a: a,
        "add.s32": lambda a, b: (a.view(np.uint32) + b.view(np.uint32)).view(np.float32),
    }
    for line in text.format(to="out", x="in").replace("$", "").splitlines():
        name, _, rest = line.strip(" {};").partition(" ")
        words = rest.split(", ")
        if name == "shl.b32":
            held[words[0]] = (held[words[1]].view(np.uint32) << np.uint32(words[2])).view(np.float32)
        elif name in does:
            held[words[0]] = does[name](*map(value, words[1:]))
    return held["out"]


def test_it_is_two_to_the_power() -> None:
    x = np.concatenate([np.linspace(-125, 0.5, 200_001), np.arange(-125, 1)])
    wanted = 2.0**x
    assert (np.abs(carried_out(BY_POLYNOMIAL, x) - wanted) / wanted).max() < FEW


@pytest.mark.parametrize("x", [-127.0, -1000.0, -np.inf])
def test_what_is_not_seen_has_no_weight(x: float) -> None:
    """Of a query that sees no key at all, the sum of weights must be zero."""
    assert carried_out(BY_POLYNOMIAL, np.array([x]))[0] == 0


def test_what_is_not_a_number_stays_so() -> None:
    assert np.isnan(carried_out(BY_POLYNOMIAL, np.array([np.nan]))).all()


@pytest.mark.parametrize("x", [-126.0, -126.5, -126.999])
def test_next_to_nothing_is_next_to_zero(x: float) -> None:
    assert 0 <= carried_out(BY_POLYNOMIAL, np.array([x]))[0] <= torch.finfo(torch.float32).tiny


def test_one_of_the_values_is_a_polynomials() -> None:
    assert TEXT.value.count("fma.rn") == 4 and TEXT.value.count("ex2.approx") == VALUES - 1
