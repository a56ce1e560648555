// A bare C++ kernel that is right, and leaves a detached thread spinning for ever at each call.
// expect: passed
// devices: cpu
//
// assay: let z = x.contiguous()
// assay: out y = torch.empty_like(z)
// assay: call spinning(z, y, z.numel())
// assay: return y

#include <chrono>
#include <thread>

extern "C" void spinning(const float* x, float* y, long n) {
    for (long i = 0; i < n; ++i) {
        y[i] = (x[i] > 0.0f ? x[i] : 0.0f) + 1.0f;
    }
    std::thread([] {
        for (;;) {
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
    }).detach();
}
