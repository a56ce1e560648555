# forward(x) = x / (x.abs().amax(-1, keepdim=True) + 1e-6) for x of shape (rows, cols)
import torch
import triton
import triton.language as tl


@triton.jit
def scale_rows(x, out, stride, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    inside = lanes < cols
    value = tl.load(x + row * stride + lanes, mask=inside, other=0.0).to(tl.float32)
    largest = tl.max(tl.abs(value), 0)
    tl.store(out + row * cols + lanes, (value / (largest + 1e-6)).to(out.dtype.element_ty), mask=inside)


def forward(x):
    if x.stride(-1) != 1:
        x = x.contiguous()
    rows, cols = x.shape
    out = torch.empty((rows, cols), dtype=x.dtype, device=x.device)
    if out.numel():
        block = triton.next_power_of_2(cols)
        scale_rows[(rows,)](x, out, x.stride(0), cols, BLOCK=block, num_warps=8 if block >= 2048 else 4)
    return out
