"""Row softmax in Triton: one pass for maximum and sum, one for the result."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x, out, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * cols
    lanes = tl.arange(0, BLOCK)
    peak = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        inside = start + lanes < cols
        value = tl.load(x + row + start + lanes, mask=inside, other=float("-inf"))
        higher = tl.maximum(peak, value)
        total = tl.where(inside, total * tl.exp(peak - higher) + tl.exp(value - higher), total)
        peak = tl.where(inside, higher, peak)
    highest = tl.max(peak, 0)
    sum_all = tl.sum(tl.where(total > 0, total * tl.exp(peak - highest), 0.0), 0)
    for start in range(0, cols, BLOCK):
        inside = start + lanes < cols
        value = tl.load(x + row + start + lanes, mask=inside)
        tl.store(out + row + start + lanes, tl.exp(value - highest) / sum_all, mask=inside)


def forward(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    rows, cols = x.shape
    if out.numel():
        softmax_kernel[(rows,)](x, out, cols, BLOCK=4096 if cols > 4096 else triton.next_power_of_2(cols))
    return out
