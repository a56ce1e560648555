"""Products that are summed across threads."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def rounded(a, b):
    """a * b, which no addition takes in.

    For tl.sum(a * b), whose products another thread has half of, the compiler makes the first addition of the
    sum and its own product one operation, that rounds once: each thread adds its own product as it is to the
    rounded one of the other, and threads that share a sum have not all the same bits of it. Where they write
    it to shared memory, for another layout, which one is last decides: a race.
    """
    return tl.fma(a, b, 0.0)
