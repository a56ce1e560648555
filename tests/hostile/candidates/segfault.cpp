// A bare C++ kernel that writes to address zero.
// expect: crashed
// devices: cpu
//
// assay: out y = torch.empty_like(x)
// assay: call broken(x, y, x.numel())
// assay: return y

extern "C" void broken(const float* x, float* y, long n) {
    volatile float* nowhere = nullptr;
    *nowhere = x[0];
    y[n - 1] = *nowhere;
}
