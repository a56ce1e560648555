// LayerNorm in plain C++: no torch headers, so it compiles in a second. The lines marked `assay:` bind it.
//
// assay: let values = x.float()
// assay: out y = torch.empty(x.shape)
// assay: call layer_norm(values, weight.float(), bias.float(), y, x.shape[0], x.shape[1], 1e-5)
// assay: return y.to(x.dtype)

#include <cmath>
#include <cstdint>

extern "C" void layer_norm(const float* x, const float* weight, const float* bias, float* y, int64_t rows,
                           int64_t cols, float eps) {
#pragma omp parallel for
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x + r * cols;
    float mean = 0, deviation = 0;
#pragma omp simd reduction(+ : mean)
    for (int64_t c = 0; c < cols; ++c) mean += row[c];
    mean /= cols;
#pragma omp simd reduction(+ : deviation)
    for (int64_t c = 0; c < cols; ++c) deviation += (row[c] - mean) * (row[c] - mean);
    const float scale = 1 / std::sqrt(deviation / cols + eps);
    for (int64_t c = 0; c < cols; ++c) y[r * cols + c] = (row[c] - mean) * scale * weight[c] + bias[c];
  }
}
