// LayerNorm in two launches: per-chunk mean and squared deviation (merged pairwise, so that a large mean
// costs no digits), then the normalisation, which merges the row's chunks again on the fly.
//
// assay: let n = ln_weight.numel()
// assay: let rows = x.numel() // n
// assay: let chunk = max(1024, cdiv(n, 128))
// assay: let chunks = cdiv(n, chunk)
// assay: out partial = torch.empty(rows, chunks, 2, dtype=torch.float32, device=x.device)
// assay: out y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
// assay: launch moments<<<(chunks, rows), 256>>>(x, partial, n, chunk)
// assay: launch normalise<<<(chunks, rows), 256>>>(x, ln_weight, ln_bias, partial, y, n, chunk, chunks, 1e-5)
// assay: return y

struct Moments {
  float count, mean, m2;
};

__device__ Moments merge(Moments a, Moments b) {
  float count = a.count + b.count;
  if (count == 0.f) return a;
  float delta = b.mean - a.mean;
  float share = b.count / count;
  return {count, a.mean + delta * share, a.m2 + b.m2 + delta * delta * a.count * share};
}

__device__ Moments merge_block(Moments own) {
  __shared__ Moments shared[256];
  shared[threadIdx.x] = own;
  __syncthreads();
  for (int half = 128; half > 0; half >>= 1) {
    if (threadIdx.x < half) shared[threadIdx.x] = merge(shared[threadIdx.x], shared[threadIdx.x + half]);
    __syncthreads();
  }
  return shared[0];
}

extern "C" __global__ void moments(const float* x, float* partial, long long n, long long chunk) {
  long long start = blockIdx.x * chunk;
  long long end = min(start + chunk, n);
  const float* row = x + blockIdx.y * n;
  Moments own = {0.f, 0.f, 0.f};
  for (long long i = start + threadIdx.x; i < end; i += 256) {
    float delta = row[i] - own.mean;
    own.count += 1.f;
    own.mean += delta / own.count;
    own.m2 += delta * (row[i] - own.mean);
  }
  Moments all = merge_block(own);
  if (threadIdx.x == 0) {
    float* place = partial + (blockIdx.y * (long long)gridDim.x + blockIdx.x) * 2;
    place[0] = all.mean;
    place[1] = all.m2;
  }
}

extern "C" __global__ void normalise(const float* x, const float* weight, const float* bias,
                                     const float* partial, float* y, long long n, long long chunk,
                                     int chunks, float eps) {
  Moments own = {0.f, 0.f, 0.f};
  for (int c = threadIdx.x; c < chunks; c += 256) {
    const float* place = partial + (blockIdx.y * (long long)chunks + c) * 2;
    float count = float(min((c + 1) * chunk, n) - c * chunk);
    own = merge(own, {count, place[0], place[1]});
  }
  Moments all = merge_block(own);
  float scale = 1.f / sqrtf(all.m2 / all.count + eps);
  long long start = blockIdx.x * chunk;
  long long end = min(start + chunk, n);
  for (long long i = start + threadIdx.x; i < end; i += 256) {
    long long at = blockIdx.y * n + i;
    y[at] = (x[at] - all.mean) * scale * weight[i] + bias[i];
  }
}
