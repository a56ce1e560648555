"""What compilers do not make of a kernel's words, in PTX.

A multiprocessor has 16 units for exponentials and 128 for products and sums: attention with small heads waits
for the 16, so some exponentials are computed as polynomials. Rounding single values is slow as well: it is
done two at a time.
"""

from __future__ import annotations

from typing import Any

from assay.tiles.hopper import gl, jit

VALUES = 8
"""Of a thread; the first is a polynomial's."""
BY_UNIT = "ex2.approx.ftz.f32 ${to}, ${x};"
BY_POLYNOMIAL = """{{
.reg .f32 x, below, part;
.reg .b32 power, bits;
max.NaN.f32 x, ${x}, 0fC2FE0000;
add.rm.f32 below, x, 0f4B400000;
shl.b32 power, below, 23;
sub.f32 below, below, 0f4B400000;
sub.f32 x, x, below;
fma.rn.f32 part, x, 0f3D9DD554, 0f3E691BC5;
fma.rn.f32 part, part, x, 0f3F31F32C;
fma.rn.f32 part, part, x, 0f3F800000;
mov.b32 bits, part;
add.s32 bits, bits, power;
mov.b32 part, bits;
fma.rn.f32 ${to}, x, 0f00000000, part;
}}"""
"""2^x = 2^floor(x) * 2^(x - floor(x)), the second a cubic that is off by 8.6e-5 at most. Floors come by
adding 1.5 * 2^23, rounded down; their last bits, moved, are added to the exponent. From -127 down it is zero;
the last line keeps NaN."""
TEXT: Any = gl.constexpr(
    "\n".join((BY_UNIT if i else BY_POLYNOMIAL).format(to=i, x=VALUES + i) for i in range(VALUES))
)
OPERANDS: Any = gl.constexpr(",".join(["=f"] * VALUES + ["f"] * VALUES))
PACKED: Any = gl.constexpr(VALUES)
TO_BF16: Any = gl.constexpr("cvt.rn.bf16x2.f32 $0, $2, $1;")
TO_FP16: Any = gl.constexpr("cvt.rn.f16x2.f32 $0, $2, $1;")
FROM_BF16: Any = gl.constexpr("shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;")
FROM_FP16: Any = gl.constexpr("{ .reg .b16 a, b; mov.b32 {a, b}, $2; cvt.f32.f16 $0, a; cvt.f32.f16 $1, b; }")


@jit
def mixed_exp2(x):
    """2^x for x of up to about 0."""
    return gl.inline_asm_elementwise(TEXT, OPERANDS, [x], gl.float32, True, PACKED)


@jit
def narrowed(x, dtype: gl.constexpr):
    """x in bf16 or fp16, two at a time: if it is used as float32 again, ptxas rounds one value after the
    other."""
    if dtype == gl.bfloat16:
        made = gl.inline_asm_elementwise(TO_BF16, "=r,r,r", [x], gl.bfloat16, True, 2)
    else:
        made = gl.inline_asm_elementwise(TO_FP16, "=r,r,r", [x], gl.float16, True, 2)
    return made


@jit
def widened(x, dtype: gl.constexpr):
    """x, of that type, in float32: both halves of a register."""
    if dtype == gl.bfloat16:
        made = gl.inline_asm_elementwise(FROM_BF16, "=r,=r,r", [x], gl.float32, True, 2)
    else:
        made = gl.inline_asm_elementwise(FROM_FP16, "=r,=r,r", [x], gl.float32, True, 2)
    return made
