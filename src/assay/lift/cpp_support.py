"""The C++ that kernels call: number types, maxima that keep NaN, moments, shifts; what is used is printed.

All of it is inline, without branches where a loop over it should be vectorised, and needs no header of torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from assay.lift.cpp_math import MATH

_BITS = """\
template <class To, class From> inline To bits_as(From value) { return __builtin_bit_cast(To, value); }"""

_AS = """\
// Between number types: narrow ones, which only memory holds, are widened for arithmetic. Small integers and
// floating-point numbers meet by way of int32_t, as the vectoriser wants it; numbers too large wrap around.
template <class T> inline T widened(T value) { return value; }
template <class To> struct Narrowed {
    template <class From> static To of(From value) {
        constexpr bool from_small = std::is_integral_v<From> && sizeof(From) < 4;
        constexpr bool to_small = std::is_integral_v<To> && sizeof(To) < 4 && !std::is_same_v<To, bool>;
        constexpr bool widens = from_small && std::is_floating_point_v<To>;
        if constexpr (widens || (to_small && std::is_floating_point_v<From>)) {
            return To(int32_t(value));
        } else {
            return To(value);
        }
    }
};
template <class To, class From> inline To as(From value) { return Narrowed<To>::of(widened(value)); }"""

_BFLOAT16 = """\
enum class bfloat16 : uint16_t {};
bool operator==(bfloat16, bfloat16) = delete;
bool operator<(bfloat16, bfloat16) = delete;
inline float widened(bfloat16 value) { return bits_as<float>(uint32_t(value) << 16); }
template <> struct Narrowed<bfloat16> {
    static bfloat16 of(float value) {
        const uint32_t wide = bits_as<uint32_t>(value);
        const uint32_t rounded = (wide + 0x7fff + ((wide >> 16) & 1)) >> 16;
        return bfloat16(value != value ? 0x7fc0 : rounded);
    }
};"""

_HALF = """\
enum class half : uint16_t {};
bool operator==(half, half) = delete;
bool operator<(half, half) = delete;
#if defined(__ARM_FP16_FORMAT_IEEE)
typedef __fp16 hardware_half;
#else
typedef _Float16 hardware_half;
#endif
inline float widened(half value) { return float(bits_as<hardware_half>(uint16_t(value))); }
template <> struct Narrowed<half> {  // in integers: GCC vectorises no conversion to sixteen bits
    static half of(float value) {
        const uint32_t wide = bits_as<uint32_t>(value);
        const uint32_t size = wide & 0x7fffffff;
        // Below 2^-14 the adder rounds: a half leaves room for exactly the bits that are kept.
        const uint32_t small = bits_as<uint32_t>(bits_as<float>(size) + 0.5f) - 0x3f000000;
        const uint32_t normal = (size - 0x38000000 + 0xfff + ((size >> 13) & 1)) >> 13;
        const uint32_t finite = size < 0x38800000 ? small : normal;
        const uint32_t special = size > 0x7f800000 ? 0x7e00 : 0x7c00;
        return half((size >= 0x477ff000 ? special : finite) | ((wide >> 16) & 0x8000));
    }
};"""

_FLOAT8_E4M3FN = """\
enum class float8_e4m3fn : uint8_t {};  // one sign, four exponent, three mantissa bits; no infinity
inline float widened(float8_e4m3fn value) {
    const uint32_t bits = uint32_t(value);
    const float size = bits_as<float>((bits & 0x7f) << 20) * 0x1p120f;
    const float finite = (bits & 0x7f) == 0x7f ? __builtin_nanf("") : size;
    return bits & 0x80 ? -finite : finite;
}
template <> struct Narrowed<float8_e4m3fn> {
    static float8_e4m3fn of(float value) {
        const uint32_t wide = bits_as<uint32_t>(value);
        const uint32_t size = wide & 0x7fffffff;
        // Below 2^-6 the adder rounds: 2^14 leaves room for exactly the bits that are kept.
        const uint32_t small = bits_as<uint32_t>(bits_as<float>(size) + 16384.0f) - 0x46800000;
        const uint32_t normal = (size - 0x3c000000 + 0x7ffff + ((size >> 20) & 1)) >> 20;
        const uint32_t finite = size < 0x3c800000 ? small : normal;
        return float8_e4m3fn((size >= 0x43f00000 ? 0x7f : finite) | ((wide >> 24) & 0x80));
    }
};"""

_FLOAT8_E5M2 = """\
enum class float8_e5m2 : uint8_t {};  // one sign, five exponent, two mantissa bits
inline float widened(float8_e5m2 value) {
    const uint32_t bits = uint32_t(value);
    const uint32_t size = (bits & 0x7f) << 21;
    const float finite = bits_as<float>(size) * 0x1p112f;
    const float unsigned_value = (bits & 0x7c) == 0x7c ? bits_as<float>(size | 0x7f800000) : finite;
    return bits & 0x80 ? -unsigned_value : unsigned_value;
}
template <> struct Narrowed<float8_e5m2> {
    static float8_e5m2 of(float value) {
        const uint32_t wide = bits_as<uint32_t>(value);
        const uint32_t size = wide & 0x7fffffff;
        const uint32_t small = bits_as<uint32_t>(bits_as<float>(size) + 128.0f) - 0x43000000;
        const uint32_t normal = (size - 0x38000000 + 0xfffff + ((size >> 21) & 1)) >> 21;
        const uint32_t finite = size < 0x38800000 ? small : normal;
        const uint32_t special = size > 0x7f800000 ? 0x7f : 0x7c;
        return float8_e5m2((size >= 0x47800000 ? special : finite) | ((wide >> 24) & 0x80));
    }
};"""

_EXTREMES = """\
// The greater and the smaller of two numbers, and NaN if one of them is.
template <class T> inline T larger(T a, T b) { return (a > b) | (a != a) ? a : b; }
template <class T> inline T smaller(T a, T b) { return (a < b) | (a != a) ? a : b; }
// The same without regard to NaN.
template <class T> inline T larger_number(T a, T b) { return a > b ? a : b; }
template <class T> inline T smaller_number(T a, T b) { return a < b ? a : b; }
// In integers, since GCC would compare the half that a float was made of.
inline int32_t nan_flag(float a) { return (bits_as<uint32_t>(a) << 1) > 0xff000000u; }
inline int32_t nan_flag(double a) { return a != a; }
#if defined(__aarch64__)
inline int32_t nan_mask(float a, float b) { return -int32_t(a != a) | -int32_t(b != b); }
template <> inline float larger_number(float a, float b) { return __builtin_fmaxf(a, b); }
template <> inline float smaller_number(float a, float b) { return __builtin_fminf(a, b); }
template <> inline float larger(float a, float b) {
    return bits_as<float>(bits_as<int32_t>(larger_number(a, b)) | nan_mask(a, b));
}
template <> inline float smaller(float a, float b) {
    return bits_as<float>(bits_as<int32_t>(smaller_number(a, b)) | nan_mask(a, b));
}
#endif
inline float clamped(float a, float low, float high) {  // between two numbers; NaN stays
    const float inside = smaller_number(larger_number(a, low), high);
    return bits_as<float>(bits_as<int32_t>(inside) | -int32_t(a != a));
}"""

_FLOOR_DIV = """\
template <class T> inline T floor_div(T a, T b) {
    const T q = a / b;
    return q - T((a % b != 0) & ((a < 0) != (b < 0)));
}"""

_FLOOR_DIVIDE = """\
template <class A, class B> inline auto floor_divide(A a, B b) {
    using T = decltype(a + b);
    using Narrow = std::common_type_t<A, B>;
    return b == 0 ? Narrow(0) : Narrow(floor_div(T(a), T(b)));
}"""

_REMAINDER = """\
template <class A, class B> inline auto remainder_of(A a, B b) {
    using T = std::common_type_t<A, B>;
    if constexpr (std::is_floating_point_v<T>) {
        return std::fmod(T(a), T(b));
    } else {
        return (b == 0) | (T(b) == T(-1)) ? T(0) : T(T(a) % T(b));
    }
}"""

_SHIFTS = """\
template <class A, class B> inline A shift_right(A a, B b) {
    constexpr int most = int(sizeof(A)) * 8 - int(std::is_signed_v<A>);
    return A(a >> ((b < 0) | (b >= most) ? most : int(b)));
}
template <class A, class B> inline A shift_left(A a, B b) {
    constexpr int most = int(sizeof(A)) * 8;
    return (b < 0) | (b >= most) ? A(0) : A(std::make_unsigned_t<A>(a) << int(b));
}"""

_MOMENTS = """\
struct Moments {  // mean and sum of squared distances from it, of `count` numbers
    double mean = 0, m2 = 0, count = 0;
    void merge(double other_mean, double other_m2, double other_count) {
        const double total = count + other_count;
        const double share = total == 0 ? 0 : other_count / total;
        const double apart = other_mean - mean;
        mean = mean + apart * share;
        m2 = m2 + other_m2 + apart * apart * count * share;
        count = total;
    }
    void merge(const Moments& other) { merge(other.mean, other.m2, other.count); }
    void add(double value) { merge(value, 0, 1); }
};"""

_PLACED = """\
template <class T> struct Placed { int64_t index; T value; };  // a value and where it was found
template <class T> inline bool is_before(bool ahead, T a, T b, int64_t i, int64_t j) {
    if (a != a || b != b) return a != a && (b == b || i < j);  // the first NaN wins
    return ahead || (a == b && i < j);
}
template <class T> inline Placed<T> argmax_of(Placed<T> best, T value, int64_t index) {
    const bool wins = is_before(value > best.value, value, best.value, index, best.index);
    return wins ? Placed<T>{index, value} : best;
}
template <class T> inline Placed<T> argmin_of(Placed<T> best, T value, int64_t index) {
    const bool wins = is_before(value < best.value, value, best.value, index, best.index);
    return wins ? Placed<T>{index, value} : best;
}
template <class T> inline Placed<T> argmax_of(Placed<T> best, Placed<T> other) {
    return argmax_of(best, other.value, other.index);
}
template <class T> inline Placed<T> argmin_of(Placed<T> best, Placed<T> other) {
    return argmin_of(best, other.value, other.index);
}"""

_LANES = """\
template <class T, int N, class Join> inline T fold(T (&lanes)[N], Join join) {
    for (int half = N / 2; half > 0; half /= 2) {
        for (int k = 0; k < half; ++k) lanes[k] = join(lanes[k], lanes[k + half]);
    }
    return lanes[0];
}"""

_STORE_HALVES = """\
inline void store_halves(half* place, const float* values, int64_t count) {
    hardware_half* to = reinterpret_cast<hardware_half*>(place);
    int64_t k = 0;
#if defined(__aarch64__)
    for (; k + 8 <= count; k += 8) {
        const float16x4_t low = vcvt_f16_f32(vld1q_f32(values + k));
        vst1q_f16(to + k, vcvt_high_f16_f32(low, vld1q_f32(values + k + 4)));
    }
#endif
    for (; k < count; ++k) to[k] = hardware_half(values[k]);
}"""

_ATOMIC_ADD = """\
template <class T> inline void atomic_add(T* place, T value) {
#pragma omp atomic
    *place += value;
}"""

_SIGN = """\
template <class T> inline bool is_negative(T value) {
    if constexpr (std::is_floating_point_v<T>) {
        return std::signbit(value);
    } else {
        return value < 0;
    }
}"""

_HUGE_PAGES = """\
inline void use_huge_pages(void* start, int64_t bytes) {  // fewer page faults while a fresh tensor is filled
    const uintptr_t huge = uintptr_t(1) << 21;
    const uintptr_t first = (uintptr_t(start) + huge - 1) & ~(huge - 1);
    const uintptr_t last = (uintptr_t(start) + bytes) & ~(huge - 1);
    if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
}"""

SUPPORT: Mapping[str, str] = {
    "bits_as": _BITS,
    "as": _AS,
    "bfloat16": _BFLOAT16,
    "half": _HALF,
    "float8_e4m3fn": _FLOAT8_E4M3FN,
    "float8_e5m2": _FLOAT8_E5M2,
    "larger": _EXTREMES,
    "floor_div": _FLOOR_DIV,
    "floor_divide": _FLOOR_DIVIDE,
    "remainder_of": _REMAINDER,
    "shift_right": _SHIFTS,
    "Moments": _MOMENTS,
    "Placed": _PLACED,
    "fold": _LANES,
    "store_halves": _STORE_HALVES,
    "atomic_add": _ATOMIC_ADD,
    "is_negative": _SIGN,
    "use_huge_pages": _HUGE_PAGES,
    **MATH,
}
"""C++ by the first name it defines; in an order in which each stands behind what it needs."""

_ALSO = {
    **dict.fromkeys(("widened", "Narrowed"), "as"),
    **dict.fromkeys(("smaller", "larger_number", "smaller_number", "nan_flag", "clamped"), "larger"),
    **dict.fromkeys(("argmax_of", "argmin_of"), "Placed"),
    "shift_left": "shift_right",
}
_WORD = re.compile(r"\b[A-Za-z_]\w*\b")


def support_for(texts: Iterable[str]) -> str:
    """The definitions that these kernels need, and those that the definitions need."""
    pending = [word for text in texts for word in _WORD.findall(text)]
    wanted: set[str] = set()
    while pending:
        word = pending.pop()
        word = _ALSO.get(word, word)
        if word in SUPPORT and word not in wanted:
            wanted.add(word)
            pending += _WORD.findall(SUPPORT[word])
    return "\n\n".join(text for name, text in SUPPORT.items() if name in wanted)


def defined_names() -> frozenset[str]:
    return frozenset((*SUPPORT, *_ALSO))
