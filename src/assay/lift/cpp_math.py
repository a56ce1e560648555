"""Elementary functions of float in C++ without branches or tables, so that GCC vectorises loops over them.

Errors over all floats against double precision, in units of the last place (measured): exp and exp2 1.0,
log 0.8, log1p 1.5, tanh 2.6, erf 1.6. Infinities, NaN, signed zeros and subnormal numbers come out as from
the standard library. The coefficients are fits of our own: least squares, reweighted for the least maximum.

Arguments of type double go to the standard library. Not covered: sine, cosine and powers.
"""

from __future__ import annotations

from collections.abc import Mapping

_WITHIN = """\
// The nearest number between two others; of NaN one of them.
inline float within(float x, float low, float high) {
#if defined(__aarch64__)
    return __builtin_fminf(__builtin_fmaxf(x, low), high);
#else
    const float raised = x > low ? x : low;
    return raised < high ? raised : high;
#endif
}"""

_POWER_OF_TWO = """\
// p * 2^n for |n| < 252, rounded once; n is in the low bits of the float 1.5 * 2^23 + n.
inline float times_power(float p, float n_shifted) {
    const int32_t n = bits_as<int32_t>(n_shifted);
    const int32_t half_n = n >> 1;
    const float first = bits_as<float>((half_n << 23) + 0x3f800000);
    const float second = bits_as<float>(((n - half_n) << 23) + 0x3f800000);
    return p * first * second;
}"""

_EXP = """\
inline double quick_exp(double x) { return std::exp(x); }
inline float quick_exp(float x) {
    const float bounded = within(x, -104.0f, 89.0f);
    const float shifted = __builtin_fmaf(bounded, 1.44269504f, 12582912.0f);
    const float n = shifted - 12582912.0f;
    const float r = __builtin_fmaf(n, -1.42860677e-6f, __builtin_fmaf(n, -0.693145752f, bounded));
    float p = __builtin_fmaf(0.00138144672f, r, 0.00836878084f);
    p = __builtin_fmaf(p, r, 0.0416683927f);
    p = __builtin_fmaf(p, r, 0.166665196f);
    p = __builtin_fmaf(p, r, 0.49999994f);
    p = __builtin_fmaf(p, r * r, r) + 1.0f;
    const float y = times_power(p, shifted);
    return x != x ? x : y;
}"""

_EXP2 = """\
inline double quick_exp2(double x) { return std::exp2(x); }
inline float quick_exp2(float x) {
    const float bounded = within(x, -151.0f, 129.0f);
    const float shifted = bounded + 12582912.0f;
    const float r = bounded - (shifted - 12582912.0f);
    float p = __builtin_fmaf(0.00015353362f, r, 0.00133988739f);
    p = __builtin_fmaf(p, r, 0.00961843692f);
    p = __builtin_fmaf(p, r, 0.0555033237f);
    p = __builtin_fmaf(p, r, 0.240226477f);
    p = __builtin_fmaf(p, r, 0.693147182f);
    p = __builtin_fmaf(p, r, 1.0f);
    const float y = times_power(p, shifted);
    return x != x ? x : y;
}"""

_LOG = """\
inline double quick_log(double x) { return std::log(x); }
inline float quick_log(float x) {
    const bool tiny = x < 0x1p-126f;
    const float normal = tiny ? x * 0x1p23f : x;
    const int32_t offset = bits_as<int32_t>(normal) - 0x3f3504f3;  // from the root of a half
    const float n = float(offset >> 23) - (tiny ? 23.0f : 0.0f);
    const float f = bits_as<float>((offset & 0x7fffff) + 0x3f3504f3) - 1.0f;
    float p = __builtin_fmaf(-0.0763449669f, f, 0.127615765f);
    p = __builtin_fmaf(p, f, -0.131601825f);
    p = __builtin_fmaf(p, f, 0.142017573f);
    p = __builtin_fmaf(p, f, -0.166233569f);
    p = __builtin_fmaf(p, f, 0.200012267f);
    p = __builtin_fmaf(p, f, -0.250008196f);
    p = __builtin_fmaf(p, f, 0.333333313f);
    const float squared = f * f;
    float y = __builtin_fmaf(p, squared * f, n * -2.12194440e-4f);
    y = __builtin_fmaf(-0.5f, squared, y) + f;
    y = __builtin_fmaf(n, 0.693359375f, y);
    y = x == __builtin_inff() ? x : y;
    y = x == 0.0f ? -__builtin_inff() : y;
    return (x < 0.0f) | (x != x) ? __builtin_nanf("") : y;
}"""

_LOG1P = """\
inline double quick_log1p(double x) { return std::log1p(x); }
inline float quick_log1p(float x) {
    const float u = 1.0f + x;
    const float lost = x - (u - 1.0f);
    const float y = quick_log(u) + lost / u;
    const bool plain = (u == __builtin_inff()) | (u == 0.0f);
    return x == 0.0f ? x : plain ? quick_log(u) : y;
}"""

_REDUCED_EXP = """\
// e^x - 1 as scale * p + (scale - 1), for |x| < 80.
struct ReducedExp { float scale, p; };
inline ReducedExp reduced_exp(float x) {
    const float shifted = __builtin_fmaf(x, 1.44269504f, 12582912.0f);
    const float n = shifted - 12582912.0f;
    const float r = __builtin_fmaf(n, -1.42860677e-6f, __builtin_fmaf(n, -0.693145752f, x));
    float p = __builtin_fmaf(0.00138144672f, r, 0.00836878084f);
    p = __builtin_fmaf(p, r, 0.0416683927f);
    p = __builtin_fmaf(p, r, 0.166665196f);
    p = __builtin_fmaf(p, r, 0.49999994f);
    p = __builtin_fmaf(p, r * r, r);
    return {bits_as<float>((bits_as<int32_t>(shifted) << 23) + 0x3f800000), p};
}"""

_TANH = """\
inline double quick_tanh(double x) { return std::tanh(x); }
inline float quick_tanh(float x) {
    const ReducedExp e = reduced_exp(2.0f * within(__builtin_fabsf(x), 0.0f, 9.02f));
    const float t = __builtin_fmaf(e.scale, e.p, e.scale - 1.0f);
    const float y = __builtin_copysignf(t / (t + 2.0f), x);
    return x != x ? x : y;
}"""

_ERF = """\
inline double quick_erf(double x) { return std::erf(x); }
inline float quick_erf(float x) {
    const float size = __builtin_fabsf(x);
    const float s = x * x;
    float near = __builtin_fmaf(7.85386146e-05f, s, -0.000801019371f);
    near = __builtin_fmaf(near, s, 0.00518832775f);
    near = __builtin_fmaf(near, s, -0.0268538129f);
    near = __builtin_fmaf(near, s, 0.112835854f);
    near = __builtin_fmaf(near, s, -0.37612626f);
    near = __builtin_fmaf(near, s, 0.128379107f);
    const float a = within(size, 1.0f, 3.93f);
    float w = __builtin_fmaf(0.000185574027f, a, -0.00293960748f);
    w = __builtin_fmaf(w, a, 0.0218053181f);
    w = __builtin_fmaf(w, a, -0.103037372f);
    w = __builtin_fmaf(w, a, -0.638225675f);
    w = __builtin_fmaf(w, a, -1.12704003f);
    w = __builtin_fmaf(w, a, -0.000353719341f);
    const ReducedExp e = reduced_exp(w);
    const float far = __builtin_copysignf(1.0f - __builtin_fmaf(e.scale, e.p, e.scale), x);
    const float y = size < 1.0f ? __builtin_fmaf(x, near, x) : far;
    return x != x ? x : y;
}"""

MATH: Mapping[str, str] = {
    "within": _WITHIN,
    "times_power": _POWER_OF_TWO,
    "quick_exp": _EXP,
    "quick_exp2": _EXP2,
    "quick_log": _LOG,
    "quick_log1p": _LOG1P,
    "reduced_exp": _REDUCED_EXP,
    "quick_tanh": _TANH,
    "quick_erf": _ERF,
}
QUICK: Mapping[str, str] = {f"std::{name.removeprefix('quick_')}": name for name in MATH if "quick" in name}
"""Functions of the standard library that have a counterpart here."""
