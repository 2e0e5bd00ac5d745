"""exp in fp32 by additions, multiplications and FMAs: no exp instruction, whose last bits differ between devices."""

import triton
import triton.language as tl


@triton.jit
def exp_parts(t):
    """(scale, part), exp(t) = scale + part, for -88 <= t <= 88; scale a power of two, |part| < scale / 2; NaN: part.

    Cody-Waite reduction and a polynomial fitted for |r| <= ln(2)/2. Near t = 0 scale is 1, so that part is exp(t) - 1
    to its last bits.
    """
    n = tl.fma(t, 1.4426950408889634, 128.5).to(tl.int32) - 128  # nearest integer; the shift makes the cast a floor
    r = tl.fma(n.to(tl.float32), -0.693359375, t)
    r = tl.fma(n.to(tl.float32), 2.1219444e-4, r)
    p = tl.fma(r, 0.00138145394, 0.00836874545)
    p = tl.fma(p, r, 0.041668389)
    p = tl.fma(p, r, 0.166665211)
    p = tl.fma(p, r, 0.49999994)
    scale = ((n + 127) << 23).to(tl.float32, bitcast=True)
    return scale, tl.fma(r * r, p, r) * scale
