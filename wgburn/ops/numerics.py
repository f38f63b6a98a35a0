"""numpy rules that numpy itself lacks: erf and friends, integer powers, NaN-true remainders.

Owns: element-wise host functions with a ufunc's `out=`. Sources: erf and erfc after W. J. Cody,
"Rational Chebyshev approximations for the error function" (1969); erfinv after M. Giles,
"Approximating the erfinv function" (2010), refined by Newton steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core import hostmem

Array = NDArray[Any]

_A = (
    3.16112374387056560e0,
    1.13864154151050156e2,
    3.77485237685302021e2,
    3.20937758913846947e3,
    1.85777706184603153e-1,
)
_B = (2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3)
_C = (
    5.64188496988670089e-1,
    8.88314979438837594e0,
    6.61191906371416295e1,
    2.98635138197400131e2,
    8.81952221241769090e2,
    1.71204761263407058e3,
    2.05107837782607147e3,
    1.23033935479799725e3,
    2.15311535474403846e-8,
)
_D = (
    1.57449261107098347e1,
    1.17693950891312499e2,
    5.37181101862009858e2,
    1.62138957456669019e3,
    3.29079923573345963e3,
    4.36261909014324716e3,
    3.43936767414372164e3,
    1.23033935480374942e3,
)
_P = (
    3.05326634961232344e-1,
    3.60344899949804439e-1,
    1.25781726111229246e-1,
    1.60837851487422766e-2,
    6.58749161529837803e-4,
    1.63153871373020978e-2,
)
_Q = (
    2.56852019228982242e0,
    1.87295284992346725e0,
    5.27905102951428412e-1,
    6.05183413124413191e-2,
    2.33520497626869185e-3,
)


def _erf_small(x: Array) -> Array:
    z = x * x
    num = _A[4] * z
    den = z.copy()
    for a, b in zip(_A[:3], _B[:3], strict=True):
        num = (num + a) * z
        den = (den + b) * z
    return x * (num + _A[3]) / (den + _B[3])


def _erfc_positive(y: Array) -> Array:
    """erfc for y > 0.46875 (scaled exponent split as Cody does, so that exp loses nothing)."""
    mid = np.minimum(y, 4.0)
    num = _C[8] * mid
    den = mid.copy()
    for c, d in zip(_C[:7], _D[:7], strict=True):
        num = (num + c) * mid
        den = (den + d) * mid
    r_mid = (num + _C[7]) / (den + _D[7])
    big = np.maximum(y, 4.0)
    z = 1.0 / (big * big)
    num = _P[5] * z
    den = z.copy()
    for p, q in zip(_P[:4], _Q[:4], strict=True):
        num = (num + p) * z
        den = (den + q) * z
    r = z * (num + _P[4]) / (den + _Q[4])
    r_big = (0.56418958354775628695 - r) / big
    cut = np.trunc(y * 16.0) / 16.0
    scale = np.exp(-cut * cut) * np.exp(-(y - cut) * (y + cut))
    return np.asarray(np.where(y <= 4.0, r_mid, r_big) * scale)


def _erf64(x: Array, complement: bool) -> Array:
    with np.errstate(all="ignore"):
        y = np.abs(x)
        small = _erf_small(np.where(y <= 0.46875, x, 0.0))
        tail = _erfc_positive(np.clip(np.where(np.isnan(y), 1.0, y), 0.46875, 27.0))
        if complement:
            far = np.where(x < 0, 2.0 - tail, tail)
            out = np.where(y <= 0.46875, 1.0 - small, far)
        else:
            out = np.where(y <= 0.46875, small, np.copysign(1.0 - tail, x))
        return np.where(np.isnan(x), x, out)


def _through64(fn: Any, x: Array, out: Array) -> Array:
    """Evaluate in blocks of float64 that stay in cache."""
    flat, flat_out = x.reshape(-1), out.reshape(-1) if out.flags.c_contiguous else None
    if flat_out is None:
        out[...] = fn(x.astype(np.float64))
        return out
    step = 16384
    for i in range(0, flat.size, step):
        flat_out[i : i + step] = fn(flat[i : i + step].astype(np.float64))
    return out


def _prepared(x: Array, out: Array | None) -> Array:
    return np.empty(np.shape(x), np.asarray(x).dtype) if out is None else out


def _singles(*values: float) -> tuple[Array, ...]:
    """float32 operands for ufuncs, which take arrays faster than scalars."""
    return tuple(np.array(v, np.float32) for v in values)


# erf(x) / x as a rational of x^2 up to 3.93, where float32's erf rounds to 1: the device's own (see
# special.wgsl of the shader library), error 2^-25, highest power first.
_ERF_P = _singles(2.04197741e-6, 0.000284807772, 0.0037795727, 0.0527901747, 0.19078298, 1.12837915)
_ERF_Q = _singles(3.80040996e-5, 0.00116520381, 0.0149973648, 0.114257172, 0.502409734, 1.0)
#: A little beyond, the rational passes 1 in float32: cut off there, it is 1 exactly.
_ERF_LOW, _ERF_HIGH, _ERF_ONE = _singles(-3.94, 3.94, 1.0)
#: float32 elements evaluated at a time: large enough that calls cost little, and in cache.
_ERF_BLOCK = 1 << 15


def _erf32(x: Array, out: Array, scratch: Array) -> None:
    z, p = scratch[:, : x.size]
    np.maximum(x, _ERF_LOW, out=out)  # NaN passes
    np.minimum(out, _ERF_HIGH, out=out)
    np.multiply(out, out, out=z)
    for join, coefs in ((np.multiply, _ERF_P), (np.divide, _ERF_Q)):
        np.multiply(z, coefs[0], out=p)
        for c in coefs[1:-1]:
            np.add(p, c, out=p)
            np.multiply(p, z, out=p)
        np.add(p, coefs[-1], out=p)
        join(out, p, out=out)
    np.minimum(out, _ERF_ONE, out=out)
    np.maximum(out, -_ERF_ONE, out=out)


def erf(x: Array, out: Array | None = None) -> Array:
    """The error function, to the rounding of x's dtype."""
    x = np.asarray(x)
    into = _prepared(x, out)
    if x.dtype != np.float32 or x.shape != into.shape:
        return _through64(lambda v: _erf64(v, False), np.broadcast_to(x, into.shape), into)
    flat = np.ascontiguousarray(x).reshape(-1)
    dense = into.flags.c_contiguous
    target = into.reshape(-1) if dense else np.empty(flat.size, np.float32)
    size = min(_ERF_BLOCK, flat.size)
    scratch = hostmem.empty((2, size), flat.dtype)
    for i in range(0, flat.size, _ERF_BLOCK):
        _erf32(flat[i : i + _ERF_BLOCK], target[i : i + _ERF_BLOCK], scratch)
    if not dense:
        into[...] = target.reshape(into.shape)
    return into


def erfc(x: Array, out: Array | None = None) -> Array:
    """1 - erf(x) without cancellation."""
    return _through64(lambda v: _erf64(v, True), x, _prepared(x, out))


def _erfinv64(x: Array) -> Array:
    with np.errstate(all="ignore"):
        w = -np.log1p(-x * x)
        a = w - 2.5
        p = np.full_like(x, 2.81022636e-08)
        for c in (
            3.43273939e-07,
            -3.5233877e-06,
            -4.39150654e-06,
            0.00021858087,
            -0.00125372503,
            -0.00417768164,
            0.246640727,
            1.50140941,
        ):
            p = p * a + c
        b = np.sqrt(np.maximum(w, 5.0)) - 3.0
        q = np.full_like(x, -0.000200214257)
        for c in (
            0.000100950558,
            0.00134934322,
            -0.00367342844,
            0.00573950773,
            -0.0076224613,
            0.00943887047,
            1.00167406,
            2.83297682,
        ):
            q = q * b + c
        y = np.where(w < 5.0, p, q) * x
        for _ in range(2):  # Newton on erf(y) = x; in the tail erfc keeps the digits
            err = np.where(
                np.abs(x) < 0.5,
                _erf64(y, False) - x,
                np.sign(x) * ((1 - np.abs(x)) - _erf64(np.abs(y), True)),
            )
            y = y - err * (np.sqrt(np.pi) / 2) * np.exp(y * y)
        y = np.where(np.abs(x) == 1, np.copysign(np.inf, x), y)
        return np.asarray(np.where(np.abs(x) > 1, np.nan, y))


def erfinv(x: Array, out: Array | None = None) -> Array:
    """Inverse of erf on (-1, 1); +-inf at +-1, NaN outside."""
    return _through64(_erfinv64, x, _prepared(x, out))


def _in_single(fn: Any, x: Array, out: Array | None) -> Array:
    """A chain of ufuncs on halves, rounded once at its end."""
    r = fn(x.astype(np.float32))
    if out is None:
        return np.asarray(r, np.float16)
    out[...] = r
    return out


def sigmoid(x: Array, out: Array | None = None) -> Array:
    """1 / (1 + exp(-x)), whose small values keep their digits; where exp overflows it is 0."""
    if np.asarray(x).dtype == np.float16:
        return _in_single(sigmoid, x, out)
    one = np.asarray(x).dtype.type(1)
    r = np.exp(np.negative(x, out=out), out=out)
    r = np.add(r, one, out=out)
    return np.divide(one, r, out=out)


def softplus(x: Array, out: Array | None = None) -> Array:
    """log(1 + exp(x)), exact at both ends."""
    return np.logaddexp(x, np.asarray(x).dtype.type(0), out=out)


def rsqrt(x: Array, out: Array | None = None) -> Array:
    if np.asarray(x).dtype == np.float16:
        return _in_single(rsqrt, x, out)
    r = np.sqrt(x, out=out)
    return np.divide(r.dtype.type(1), r, out=out)


def reciprocal(x: Array, out: Array | None = None) -> Array:
    return np.divide(np.asarray(x).dtype.type(1), x, out=out)


def relu(x: Array, out: Array | None = None) -> Array:
    return np.maximum(x, np.asarray(x).dtype.type(0), out=out)


def sign(x: Array, out: Array | None = None) -> Array:
    return np.sign(x, out=out)


def power(a: Array, b: Array, out: Array | None = None) -> Array:
    """a ** b; integers with a negative exponent truncate toward zero (1, -1 or 0)."""
    if np.asarray(a).dtype.kind == "f":
        return np.power(a, b, out=out)
    base, exponent = np.asarray(a), np.asarray(b)
    r = np.power(base, np.maximum(exponent, 0))
    if exponent.dtype.kind == "i" and (exponent < 0).any():
        odd = (exponent & 1) == 1
        inverse = np.where(base == 1, 1, np.where(base == -1, np.where(odd, -1, 1), 0))
        r = np.where(exponent < 0, inverse, r)
    if out is None:
        return np.asarray(r, base.dtype)
    out[...] = r
    return out


def _zero_safe(fn: Any, a: Array, b: Array, out: Array | None) -> Array:
    """Integer division by zero is 0 on every device (WGSL has no trap)."""
    if np.asarray(b).dtype.kind == "f":
        return np.asarray(fn(a, b, out=out))
    r = fn(a, b, out=out)
    zero = np.equal(b, 0)
    if np.any(zero):
        r = np.where(zero, 0, r).astype(r.dtype)
        if out is not None:
            out[...] = r
            return out
    return np.asarray(r)


def floor_divide(a: Array, b: Array, out: Array | None = None) -> Array:
    """floor(a / b) as torch: floats divide, then floor."""
    if np.asarray(b).dtype.kind == "f":
        return np.floor(np.divide(a, b, out=out), out=out)
    return _zero_safe(np.floor_divide, a, b, out)


def remainder(a: Array, b: Array, out: Array | None = None) -> Array:
    """a - floor(a / b) * b: the result has the divisor's sign."""
    return _zero_safe(np.remainder, a, b, out)


def fmod(a: Array, b: Array, out: Array | None = None) -> Array:
    """C's fmod: the result has the dividend's sign."""
    return _zero_safe(np.fmod, a, b, out)


def saturating_cast(x: Array, dtype: np.dtype[Any]) -> Array:
    """Float to integer as WGSL and Rust do: truncate, saturate, NaN to 0."""
    if x.dtype.kind != "f" or dtype.kind not in "iu":
        return x.astype(dtype)
    if dtype.itemsize == 8:
        # 2^63 is a float and no int64: casting it would give the lowest one.
        info = np.iinfo(dtype)
        wide = np.where(np.isnan(x), 0, np.trunc(x)).astype(np.float64)
        high = wide >= float(info.max)
        y = np.where(high, 0.0, np.maximum(wide, float(info.min))).astype(dtype)
        return np.asarray(np.where(high, info.max, y)).astype(dtype)
    # Narrow types wrap from 32 bits, as the packed stores of a device do.
    info = np.iinfo(np.uint32 if dtype.kind == "u" else np.int32)
    y = np.where(np.isnan(x), 0, np.trunc(x)).astype(np.float64)
    return np.clip(y, float(info.min), float(info.max)).astype(np.int64).astype(dtype)
