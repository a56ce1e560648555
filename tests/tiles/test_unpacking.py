"""What numbers of four bits are unpacked to, by the lines of PTX and by the emulator's words."""

from __future__ import annotations

import pytest
import torch

from assay.tiles.assembler import BF16_BITS, BF16_HALVES, FP16_BITS, FP16_HALVES
from assay.tiles.emulated_language import WORDS

ONES = {torch.bfloat16: 0x4300, torch.float16: 0x6400}
"""Numbers whose last bit is worth one."""


def halves(register: int, dtype: torch.dtype) -> torch.Tensor:
    """The two numbers that a register holds."""
    return torch.tensor([register], dtype=torch.int64).to(torch.int32).view(dtype)


def ran(text: str, given: dict[str, int], made: int, dtype: torch.dtype) -> list[float]:
    """The numbers that these lines of PTX leave in their first registers."""
    registers = dict(given)

    def value(name: str) -> int:
        return registers[name] if name in registers else int(name, 0)

    for line in text.strip("{ }").split(";")[1:-1]:
        what, *names = line.replace(",", " ").split()
        a, b, *c = map(value, names[1:])
        if what == "shr.u32":
            result = a >> b
        elif what == "and.b32":
            result = a & b
        elif what == "mul.lo.u32":
            result = a * b & 0xFFFFFFFF
        elif what == "lop3.b32":
            assert c[1] == 0xEA
            result = (a & b) | c[0]
        else:
            assert what == {torch.bfloat16: "sub.bf16x2", torch.float16: "sub.f16x2"}[dtype]
            difference = halves(a, dtype) - halves(b, dtype)
            result = int(difference.view(torch.int32)) & 0xFFFFFFFF
        registers[names[0]] = result
    return torch.cat([halves(registers[f"${i}"], dtype) for i in range(made)]).tolist()


@pytest.mark.parametrize(
    ("text", "dtype"), [(BF16_BITS.value, torch.bfloat16), (FP16_BITS.value, torch.float16)]
)
def test_words_are_unpacked_as_the_emulator_does(text: str, dtype: torch.dtype) -> None:
    for word in (0, 0xFFFFFFFF, 0x76543210, 0x89ABCDEF, 0xF0E1D2C3):
        for zero in (0, 8, 15):
            signed = torch.full((8,), word, dtype=torch.int64).to(torch.int32)
            wanted = WORDS["four_bits"](signed, torch.tensor(zero), dtype).tolist()
            given = {"$4": word, "$12": (ONES[dtype] + zero) * 0x10001}
            assert ran(text, given, 4, dtype) == wanted


@pytest.mark.parametrize(
    ("text", "dtype"), [(BF16_HALVES.value, torch.bfloat16), (FP16_HALVES.value, torch.float16)]
)
def test_bytes_are_unpacked_as_the_emulator_does(text: str, dtype: torch.dtype) -> None:
    """Whatever the bits above the byte are."""
    for byte in (*range(256), 0xFFFFFF00, 0x89ABCDEF):
        for zero in (0, 8, 15):
            signed = torch.full((2,), byte, dtype=torch.int64).to(torch.int32)
            wanted = WORDS["two_halves"](signed, torch.tensor(zero), dtype).tolist()
            given = {"$1": byte, "$3": (ONES[dtype] + zero) * 0x10001}
            assert ran(text, given, 1, dtype) == wanted
