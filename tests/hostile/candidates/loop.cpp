// A bare C++ kernel that never returns.
// expect: timed_out
// devices: cpu
//
// assay: out y = torch.empty_like(x)
// assay: call endless(x, y, x.numel())
// assay: return y

extern "C" void endless(const float* x, float* y, long n) {
    volatile long spins = 0;
    while (n >= 0) {
        spins = spins + 1;
    }
    y[0] = x[0];
}
