// forward(x) = x / (x.abs().amax(-1, keepdim=True) + 1e-6) for float32 x of shape (rows, cols)
//
// assay: out y = torch.empty(x.shape)
// assay: call scale_rows(x, y, x.shape[0], x.shape[1])
// assay: return y

#include <cmath>
#include <cstdint>

extern "C" void scale_rows(const float* x, float* y, int64_t rows, int64_t cols) {
#pragma omp parallel for
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x + r * cols;
    float largest = 0;
#pragma omp simd reduction(max : largest)
    for (int64_t c = 0; c < cols; ++c) largest = std::fmax(largest, std::fabs(row[c]));
    for (int64_t c = 0; c < cols; ++c) y[r * cols + c] = row[c] / (largest + 1e-6f);
  }
}
