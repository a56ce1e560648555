"""What ptxas does not make of a kernel's words, in PTX: numbers rounded, widened and unpacked two at a time,
kernels that begin before the last one has ended, and programs that take what is next."""

from __future__ import annotations

from typing import Any

from assay.tiles.hopper import gl, jit

TO_BF16: Any = gl.constexpr("cvt.rn.bf16x2.f32 $0, $2, $1;")
TO_FP16: Any = gl.constexpr("cvt.rn.f16x2.f32 $0, $2, $1;")
FROM_BF16: Any = gl.constexpr("shl.b32 $0, $2, 16; and.b32 $1, $2, 0xffff0000;")
FROM_FP16: Any = gl.constexpr("{ .reg .b16 a, b; mov.b32 {a, b}, $2; cvt.f32.f16 $0, a; cvt.f32.f16 $1, b; }")
MULTIPLIED: Any = gl.constexpr("fma.rn.f32 $0, $1, $2, $3;")
ONE_FOR_ALL: Any = gl.constexpr("redux.sync.max.s32 $0, $1, 0xffffffff;")
FETCHED: Any = gl.constexpr(
    "{ .reg .pred p; .reg .b32 lane; mov.u32 lane, %laneid; setp.eq.u32 p, lane, 0;"
    " @p cp.async.bulk.prefetch.L2.global [$1], $2; mov.b32 $0, 0; }"
)
FOUR_BITS: Any = gl.constexpr(
    "{ .reg .b32 a, b, c; shr.u32 a, $4, 4; shr.u32 b, $4, 8; shr.u32 c, $4, 12;"
    " lop3.b32 $0, $4, 0x000f000f, ONE, 0xea; lop3.b32 $1, a, 0x000f000f, ONE, 0xea;"
    " lop3.b32 $2, b, 0x000f000f, ONE, 0xea; lop3.b32 $3, c, 0x000f000f, ONE, 0xea;"
    " SUB $0, $0, $12; SUB $1, $1, $12; SUB $2, $2, $12; SUB $3, $3, $12; }"
)
BF16_BITS: Any = gl.constexpr(FOUR_BITS.value.replace("ONE", "0x43004300").replace("SUB", "sub.bf16x2"))
FP16_BITS: Any = gl.constexpr(FOUR_BITS.value.replace("ONE", "0x64006400").replace("SUB", "sub.f16x2"))
TWO_HALVES: Any = gl.constexpr(
    "{ .reg .b32 a; and.b32 a, $1, 0xff; mul.lo.u32 a, a, 0x1001; lop3.b32 a, a, 0x000f000f, ONE, 0xea;"
    " SUB $0, a, $3; }"
)
BF16_HALVES: Any = gl.constexpr(TWO_HALVES.value.replace("ONE", "0x43004300").replace("SUB", "sub.bf16x2"))
FP16_HALVES: Any = gl.constexpr(TWO_HALVES.value.replace("ONE", "0x64006400").replace("SUB", "sub.f16x2"))
EIGHT_ALIKE: Any = gl.constexpr("=&r,=&r,=&r,=&r" + ",r" * 16)


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


@jit
def multiplied(a, b, added):
    """a * b + added, where it stands: before what follows it. Plain arithmetic is moved behind a product of
    tensor cores that comes next, and then its operands have to be kept."""
    return gl.inline_asm_elementwise(MULTIPLIED, "=f,f,f,f", [a, b, added], gl.float32, False, 1)


@jit
def four_bits(words, zeros, dtype: gl.constexpr):
    """The eight numbers of four bits in a word that is there eight times, in the order 0, 4, 1, 5, 2, 6, 3,
    7, less zeros, exactly: they are or-ed into a number whose last bit is worth one, and so are zeros."""
    if dtype == gl.bfloat16:
        both = (zeros + 0x4300) * 0x10001
        made = gl.inline_asm_elementwise(BF16_BITS, EIGHT_ALIKE, [words, both], gl.bfloat16, True, 8)
    else:
        both = (zeros + 0x6400) * 0x10001
        made = gl.inline_asm_elementwise(FP16_BITS, EIGHT_ALIKE, [words, both], gl.float16, True, 8)
    return made


@jit
def two_halves(byte, zeros, dtype: gl.constexpr):
    """The two numbers of four bits in the lowest byte of a word that is there twice, less zeros, as above."""
    if dtype == gl.bfloat16:
        both = (zeros + 0x4300) * 0x10001
        made = gl.inline_asm_elementwise(BF16_HALVES, "=r,r,r,r,r", [byte, both], gl.bfloat16, True, 2)
    else:
        both = (zeros + 0x6400) * 0x10001
        made = gl.inline_asm_elementwise(FP16_HALVES, "=r,r,r,r,r", [byte, both], gl.float16, True, 2)
    return made


@jit
def let_next_begin():
    """The kernel launched behind this one, if it waits itself, may take multiprocessors that are free."""
    gl.inline_asm_elementwise("griddepcontrol.launch_dependents; // $0", "=r", [], gl.int32, False, 1)


@jit
def wait_for_last():
    """Until the kernel launched before this one has ended, and all that it wrote is there."""
    gl.inline_asm_elementwise("griddepcontrol.wait; // $0", "=r", [], gl.int32, False, 1)


@jit
def take(counter):
    """The first of what is counted that nobody has taken yet. Says nothing of what others have written."""
    return gl.atomic_add(counter, 1, sem="relaxed")


@jit
def heard(place):
    """A number that is there four times. The same in all threads of a warp, which ptxas sees by the word
    alone."""
    t = gl.max(place.load(gl.BlockedLayout([4], [32], [4], [0])), 0)
    return gl.inline_asm_elementwise(ONE_FOR_ALL, "=r,r", [t], gl.int32, False, 1)


@jit
def fetch(place, size_bytes):
    """Into the L2 cache, by the first thread of each warp; both are multiples of 16 bytes."""
    gl.inline_asm_elementwise(FETCHED, "=r,l,r", [place, size_bytes], gl.int32, False, 1)
