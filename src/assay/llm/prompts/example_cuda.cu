// forward(x) = x / (x.abs().amax(-1, keepdim=True) + 1e-6) for float32 x of shape (rows, cols)
//
// assay: let rows, cols = x.shape
// assay: out y = torch.empty_like(x)
// assay: launch scale_rows<<<rows, 256>>>(x, y, cols)
// assay: return y

extern "C" __global__ void scale_rows(const float* x, float* y, long long cols) {
  __shared__ float seen[256];
  const long long row = blockIdx.x * cols;
  float largest = 0;
  for (long long c = threadIdx.x; c < cols; c += 256) largest = fmaxf(largest, fabsf(x[row + c]));
  seen[threadIdx.x] = largest;
  for (int half = 128; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) seen[threadIdx.x] = fmaxf(seen[threadIdx.x], seen[threadIdx.x + half]);
  }
  __syncthreads();
  const float divisor = seen[0] + 1e-6f;
  for (long long c = threadIdx.x; c < cols; c += 256) y[row + c] = x[row + c] / divisor;
}
