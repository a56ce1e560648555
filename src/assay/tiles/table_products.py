"""Rows of the table: products, those of few bits too, and convolutions of images."""

from __future__ import annotations

from assay.tiles.kernels.int4_few_rows import MOST_ROWS
from assay.tiles.table_row import Row, half


def gemm(name: str, m: int, n: int, k: int) -> Row:
    return Row(
        label=f"gemm {name} {m}x{n}x{k}",
        kernel="gemm",
        sizes={"m": m, "n": n, "k": k},
        reference="cuBLAS",
        names="a, b",
        body="return a @ b",
        inputs=f"{half(m, k)}, {half(k, n)}",
        call="gemm(a, b)",
    )


def fp8_gemm(m: int, n: int, k: int, *, per_tensor: bool) -> Row:
    """One scale for all: sums stay in the tensor core on both sides. Scales of blocks lie as cuBLAS wants."""
    a, b = (f"torch.randn({rows}, {k}).to(torch.float8_e4m3fn)" for rows in (m, n))
    steps, blocks = -(-k // 128), -(-n // 128)
    if per_tensor:
        scales = ("torch.rand(1) + 0.5",) * 2
        product = "torch._scaled_mm(a, b.T, sa, sb, out_dtype=torch.bfloat16, use_fast_accum=True)"
    else:
        scales = f"torch.rand({steps}, {m}).T + 0.5", f"torch.rand({blocks}, {steps}) + 0.5"
        product = "torch._scaled_mm(a, b.T, sa.T.contiguous().T, sb.T, out_dtype=torch.bfloat16)"
    return Row(
        label=f"fp8_gemm {'one scale' if per_tensor else 'blocks'} {m}x{n}x{k}",
        kernel="fp8_gemm",
        sizes={"m": m, "n": n, "k": k, "per_tensor": per_tensor},
        reference="cuBLAS",
        names="a, b, sa, sb",
        body=f"""if a.dtype == torch.float64:
    return scaled(a, sa, 1) @ scaled(b, sb, 128).T
if not a.is_cuda:
    return (scaled(a.float(), sa, 1) @ scaled(b.float(), sb, 128).T).bfloat16()
return {product}""",
        inputs=f"{a}, {b}, {', '.join(scales)}",
        call="fp8_gemm(a, b, sa, sb)",
        setup='''
def scaled(x, scale, rows):
    """Scales of blocks are for so many rows and 128 columns."""
    if scale.numel() == 1:
        return x * scale
    scale = scale.repeat_interleave(rows, 0).repeat_interleave(128, 1)
    return x * scale[: x.shape[0], : x.shape[1]]
''',
        more=() if per_tensor else ("assay.tiles.kernels.fp8_blocks",),
    )


WEIGHTS = """
class Weights(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("packed", torch.randint(256, ({n}, {k} // 2), dtype=torch.uint8))
        self.register_buffer("scales", (torch.rand({n}, {k} // {group}) / 8 + 1 / 16).bfloat16())
"""
UNPACKED = '''
def unpack(module, _=None):
    """When weights come, not when they are used."""
    q = torch.stack((module.packed & 15, module.packed >> 4), -1).flatten(1)
    scales = module.scales.repeat_interleave({group}, 1)
    module.weight = (q.to(scales.dtype) - 8) * scales


class Unpacked(Weights):
    def __init__(self):
        super().__init__()
        self.register_buffer("weight", None, persistent=False)
        self.register_load_state_dict_post_hook(unpack)
        unpack(self)

    def double(self):
        unpack(super().double())
        return self
'''


def int4_gemm(m: int, n: int, k: int, *, group: int = 128) -> Row:
    """The weight is state: unpacking it is no part of the reference's call."""
    return Row(
        label=f"int4_gemm {m}x{n}x{k}",
        kernel="int4_gemm",
        sizes={"m": m, "n": n, "k": k, "group": group, "has_zeros": False},
        reference="cuBLAS, bf16 weight",
        names="x",
        body="return x @ self.weight.T",
        inputs=half(m, k),
        call="int4_gemm(x, self.packed, self.scales)",
        shared=WEIGHTS.format(n=n, k=k, group=group),
        setup=UNPACKED.format(group=group),
        base="Unpacked",
        candidate_base="Weights",
        more=(f"assay.tiles.kernels.int4_{'few_rows' if m <= MOST_ROWS else 'hopper'}",),
    )


def conv2d(
    n: int, channels: int, side: int, outputs: int, *, window: int = 3, stride: int = 1, padding: int = 1
) -> Row:
    return _convolution("conv2d", "return {}", n, channels, side, outputs, window, stride, padding)


def conv2d_relu_maxpool(n: int, channels: int, side: int, outputs: int) -> Row:
    pooled = "return F.max_pool2d(F.relu({}), 2)"
    return _convolution("conv2d_relu_maxpool", pooled, n, channels, side, outputs, 3, 1, 1)


def _convolution(
    kernel: str, body: str, n: int, channels: int, side: int, outputs: int,
    window: int, stride: int, padding: int,
) -> Row:  # fmt: skip
    """Images and weights with channels side by side, which is what cuDNN is fastest with."""
    last = ".contiguous(memory_format=torch.channels_last)"
    taps = channels * window**2
    weight = f"({half(outputs, channels, window, window)} * {taps}**-0.5){last}"
    sizes = {"n": n, "channels": channels, "side": side, "outputs": outputs, "window": window}
    return Row(
        label=f"{kernel} {n}x{channels}x{side}x{side} to {outputs} by {window}x{window}",
        kernel=kernel,
        sizes=sizes | {"stride": stride, "padding": padding},
        reference="cuDNN" if kernel == "conv2d" else "cuDNN, torch",
        names="x, w, b",
        body=body.format(f"F.conv2d(x, w, b, {stride}, {padding})"),
        inputs=f"{half(n, channels, side, side)}{last}, {weight}, {half(outputs)}",
        call=f"{kernel}(x, w, b, {stride}, {padding})",
        more=("assay.tiles.kernels.conv2d_boxes", "assay.tiles.kernels.conv2d_held"),
    )
