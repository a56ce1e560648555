// Addition as a torch extension: needs torch's headers, so nvcc builds it (a minute, once).
#include <c10/cuda/CUDAStream.h>
#include <torch/extension.h>

__global__ void add_kernel(const float* a, const float* b, float* out, int64_t count) {
  int64_t at = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
  if (at < count) out[at] = a[at] + b[at];
}

torch::Tensor forward(torch::Tensor a, torch::Tensor b) {
  a = a.contiguous();
  b = b.contiguous();
  auto out = torch::empty_like(a);
  if (out.numel() > 0)
    add_kernel<<<(out.numel() + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), out.numel());
  return out;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward); }
