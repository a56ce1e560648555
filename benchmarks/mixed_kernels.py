"""The kernels of mixed.py as source text: Triton, bare CUDA and C++, by ladder problem.

$NAMES are filled in by mixed.py, so that one text gives several candidates.
"""

from __future__ import annotations

_TRITON_HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n\n"

TRITON = {
    "gelu": _TRITON_HEAD
    + """@triton.jit
def kernel(x, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    result = 0.5 * value * (1.0 + tl.erf(value * 0.7071067811865476))
    tl.store(out + at, result.to(out.dtype.element_ty), mask=inside)


def forward(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    count = out.numel()
    if count:
        kernel[(triton.cdiv(count, $BLOCK),)](x, out, count, BLOCK=$BLOCK, num_warps=$WARPS)
    return out
""",
    "softmax_rows": _TRITON_HEAD
    + """@triton.jit
def kernel(x, out, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * cols
    lanes = tl.arange(0, BLOCK)
    inside = lanes < cols
    value = tl.load(x + row + lanes, mask=inside, other=float("-inf"))
    value = tl.exp(value - tl.max(value, 0))
    tl.store(out + row + lanes, value / tl.sum(value, 0), mask=inside)


def forward(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    rows, cols = x.shape
    if out.numel():
        kernel[(rows,)](x, out, cols, BLOCK=triton.next_power_of_2(cols), num_warps=$WARPS)
    return out
""",
    "swiglu": _TRITON_HEAD
    + """@triton.jit
def kernel(gate, up, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    g = tl.load(gate + at, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(up + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, (g / (1.0 + tl.exp(-g)) * u).to(out.dtype.element_ty), mask=inside)


def forward(gate, up):
    gate, up = gate.contiguous(), up.contiguous()
    out = torch.empty_like(gate)
    count = out.numel()
    if count:
        kernel[(triton.cdiv(count, $BLOCK),)](gate, up, out, count, BLOCK=$BLOCK, num_warps=$WARPS)
    return out
""",
    "row_sum": _TRITON_HEAD
    + """@triton.jit
def kernel(x, out, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, cols, BLOCK):
        total += tl.load(x + row * cols + start + lanes, mask=start + lanes < cols, other=0.0)
    tl.store(out + row, tl.sum(total, 0))


def forward(x):
    x = x.contiguous()
    rows, cols = x.shape
    out = torch.empty(rows, dtype=x.dtype, device=x.device)
    if rows:
        kernel[(rows,)](x, out, cols, BLOCK=$BLOCK, num_warps=$WARPS)
    return out
""",
    "residual_rms_norm": _TRITON_HEAD
    + """@triton.jit
def kernel(x, residual, weight, out, total, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * cols
    lanes = tl.arange(0, BLOCK)
    inside = lanes < cols
    both = tl.load(x + row + lanes, mask=inside, other=0.0).to(tl.float32)
    both += tl.load(residual + row + lanes, mask=inside, other=0.0).to(tl.float32)
    rounded = both.to(total.dtype.element_ty)
    tl.store(total + row + lanes, rounded, mask=inside)
    wide = rounded.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(wide * wide, 0) / cols + 1e-5)
    gain = tl.load(weight + lanes, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row + lanes, (wide * scale * gain).to(out.dtype.element_ty), mask=inside)


def forward(x, residual, weight):
    x, residual = x.contiguous(), residual.contiguous()
    out, total = torch.empty_like(x), torch.empty_like(x)
    rows, cols = x.shape
    if out.numel():
        block = triton.next_power_of_2(cols)
        kernel[(rows,)](x, residual, weight, out, total, cols, BLOCK=block, num_warps=$WARPS)
    return out, total
""",
    "cross_entropy": _TRITON_HEAD
    + """@triton.jit
def kernel(logits, labels, out, classes, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    peak = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, classes, BLOCK):
        inside = start + lanes < classes
        value = tl.load(logits + row * classes + start + lanes, mask=inside, other=float("-inf"))
        higher = tl.where(inside, tl.maximum(peak, value), peak)
        total = tl.where(inside, total * tl.exp(peak - higher) + tl.exp(value - higher), total)
        peak = higher
    highest = tl.max(peak, 0)
    whole = tl.sum(tl.where(total > 0, total * tl.exp(peak - highest), 0.0), 0)
    chosen = tl.load(logits + row * classes + tl.load(labels + row))
    tl.store(out + row, tl.log(whole) + highest - chosen)


def forward(logits, labels):
    logits, labels = logits.contiguous(), labels.contiguous()
    rows, classes = logits.shape
    out = torch.empty(rows, dtype=logits.dtype, device=logits.device)
    if rows:
        kernel[(rows,)](logits, labels, out, classes, BLOCK=$BLOCK, num_warps=$WARPS)
    return out
""",
    "matmul_bf16": _TRITON_HEAD
    + """@triton.jit
def kernel(a, b, out, rows, cols, depth, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    row = tl.program_id(0) * M + tl.arange(0, M)
    col = tl.program_id(1) * N + tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, depth, K):
        inner = start + tl.arange(0, K)
        left = (row[:, None] < rows) & (inner[None, :] < depth)
        right = (inner[:, None] < depth) & (col[None, :] < cols)
        x = tl.load(a + row[:, None] * depth + inner[None, :], mask=left, other=0.0)
        y = tl.load(b + inner[:, None] * cols + col[None, :], mask=right, other=0.0)
        total = tl.dot(x, y, total)
    inside = (row[:, None] < rows) & (col[None, :] < cols)
    tl.store(out + row[:, None] * cols + col[None, :], total.to(out.dtype.element_ty), mask=inside)


def forward(a, b):
    a, b = a.contiguous(), b.contiguous()
    rows, depth = a.shape
    cols = b.shape[1]
    out = torch.empty(rows, cols, dtype=a.dtype, device=a.device)
    if out.numel():
        grid = (triton.cdiv(rows, $M), triton.cdiv(cols, $N))
        kernel[grid](a, b, out, rows, cols, depth, M=$M, N=$N, K=$K, num_warps=$WARPS)
    return out
""",
    "add_tiny": _TRITON_HEAD
    + """@triton.jit
def kernel(a, b, out, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    tl.store(out + at, tl.load(a + at, mask=inside) + tl.load(b + at, mask=inside), mask=inside)


def forward(a, b):
    a, b = a.contiguous(), b.contiguous()
    out = torch.empty_like(a)
    count = out.numel()
    if count:
        kernel[(triton.cdiv(count, $BLOCK),)](a, b, out, count, BLOCK=$BLOCK, num_warps=$WARPS)
    return out
""",
}

_BFLOAT16 = """
__device__ float wide(unsigned short bits) { return __uint_as_float((unsigned)bits << 16); }

__device__ unsigned short narrow(float value) {
  unsigned bits = __float_as_uint(value);
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}
"""
_REDUCTION = """
__device__ float block_sum(float own) {
  __shared__ float shared[$THREADS];
  shared[threadIdx.x] = own;
  __syncthreads();
  for (int half = $THREADS / 2; half > 0; half >>= 1) {
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    __syncthreads();
  }
  float total = shared[0];
  __syncthreads();
  return total;
}
"""

CUDA = {
    "gelu": """// assay: let count = x.numel()
// assay: out y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
// assay: launch gelu<<<cdiv(count, $THREADS), $THREADS>>>(x, y, count)
// assay: return y
"""
    + _BFLOAT16
    + """
extern "C" __global__ void gelu(const unsigned short* x, unsigned short* y, long long count) {
  long long at = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (at >= count) return;
  float value = wide(x[at]);
  y[at] = narrow(0.5f * value * (1.f + erff(value * 0.70710678f)));
}
""",
    "softmax_rows": """// assay: let rows, cols = x.shape
// assay: out y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
// assay: launch softmax<<<rows, $THREADS>>>(x, y, cols)
// assay: return y
"""
    + _REDUCTION
    + """
__device__ float block_max(float own) {
  __shared__ float shared[$THREADS];
  shared[threadIdx.x] = own;
  __syncthreads();
  for (int half = $THREADS / 2; half > 0; half >>= 1) {
    if (threadIdx.x < half) shared[threadIdx.x] = fmaxf(shared[threadIdx.x], shared[threadIdx.x + half]);
    __syncthreads();
  }
  float peak = shared[0];
  __syncthreads();
  return peak;
}

extern "C" __global__ void softmax(const float* x, float* y, long long cols) {
  const float* row = x + blockIdx.x * cols;
  float peak = __int_as_float(0xff800000), total = 0.f;
  for (long long i = threadIdx.x; i < cols; i += $THREADS) peak = fmaxf(peak, row[i]);
  peak = block_max(peak);
  for (long long i = threadIdx.x; i < cols; i += $THREADS) total += expf(row[i] - peak);
  total = block_sum(total);
  for (long long i = threadIdx.x; i < cols; i += $THREADS)
    y[blockIdx.x * cols + i] = expf(row[i] - peak) / total;
}
""",
    "swiglu": """// assay: let count = gate.numel()
// assay: out y = torch.empty(gate.shape, dtype=gate.dtype, device=gate.device)
// assay: launch swiglu<<<cdiv(count, $THREADS), $THREADS>>>(gate, up, y, count)
// assay: return y
"""
    + _BFLOAT16
    + """
extern "C" __global__ void swiglu(const unsigned short* gate, const unsigned short* up, unsigned short* y,
                                  long long count) {
  long long at = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (at >= count) return;
  float g = wide(gate[at]);
  y[at] = narrow(g / (1.f + expf(-g)) * wide(up[at]));
}
""",
    "row_sum": """// assay: let rows, cols = x.shape
// assay: out y = torch.empty(rows, dtype=x.dtype, device=x.device)
// assay: launch row_sum<<<rows, $THREADS>>>(x, y, cols)
// assay: return y
"""
    + _REDUCTION
    + """
extern "C" __global__ void row_sum(const float* x, float* y, long long cols) {
  float total = 0.f;
  for (long long i = threadIdx.x; i < cols; i += $THREADS) total += x[blockIdx.x * cols + i];
  total = block_sum(total);
  if (threadIdx.x == 0) y[blockIdx.x] = total;
}
""",
    "add_tiny": """// assay: let count = a.numel()
// assay: out y = torch.empty(a.shape, dtype=a.dtype, device=a.device)
// assay: launch add<<<cdiv(count, $THREADS), $THREADS>>>(a, b, y, count)
// assay: return y

extern "C" __global__ void add(const float* a, const float* b, float* y, long long count) {
  long long at = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (at < count) y[at] = a[at] + b[at];
}
""",
}

CPP = {
    "row_sum": """// assay: let rows, cols = x.shape
// assay: out y = torch.empty(rows)
// assay: call row_sum(x, y, rows, cols)
// assay: return y

extern "C" void row_sum(const float* x, float* y, long long rows, long long cols) {
  for (long long r = 0; r < rows; ++r) {
    double total = 0;
    for (long long c = 0; c < cols; ++c) total += x[r * cols + c];
    y[r] = float(total);
  }
}
"""
}

BROKEN = (
    (
        "softmax_rows",
        ".cu",
        CUDA["softmax_rows"].replace("float peak = shared[0];", "").replace("$THREADS", "256"),
    ),
    ("row_sum", ".cpp", CPP["row_sum"].replace("double total = 0;", "")),
    (
        "gelu",
        ".py",
        TRITON["gelu"]
        .replace("tl.erf", "tl.error_function")
        .replace("$BLOCK", "1024")
        .replace("$WARPS", "4"),
    ),
)
"""Problem, suffix and source: a variable that is not declared, a function that does not exist."""

CRASHING = {
    "row_sum": CUDA["row_sum"]
    .replace("y[blockIdx.x] = total", "y[blockIdx.x + (1LL << 40)] = total")
    .replace("$THREADS", "256")
}
"""Writes where nothing is."""
