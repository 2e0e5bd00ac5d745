"""bf16 where Triton's interpreter departs from a GPU: it truncates to bf16, and multiplies matrices of bf16 as bits."""

import triton
import triton.language as tl

_INTERPRETED = tl.constexpr(bool(triton.knobs.runtime.interpret))
# the type of a factor of `tl.dot`; products of two bf16 are exact in fp32, so that both mean the same
FACTOR = tl.constexpr(tl.float32 if triton.knobs.runtime.interpret else tl.bfloat16)


@triton.jit
def to_bf16(x):
    """fp32 rounded to the nearest bf16, ties to even."""
    if _INTERPRETED:
        bits = x.to(tl.int32, bitcast=True)
        bits = tl.where(x == x, bits + 0x7FFF + ((bits >> 16) & 1), bits) & -0x10000
        x = bits.to(tl.float32, bitcast=True)
    return x.to(tl.bfloat16)
