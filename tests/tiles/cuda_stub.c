// A CUDA driver without a device: launches are noted down, everything else succeeds.
#include <string.h>

#include "cuda.h"

static struct {
  unsigned long long config[6];
  unsigned char bytes[8192];
} note;
static int sizes[64], arguments;

void stub_expect(int count, const int* given) {
  arguments = count;
  memcpy(sizes, given, count * sizeof(int));
}

const void* stub_note(void) { return &note; }

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** given, void** extra) {
  unsigned long long seen[6] = {config->gridDimX,       config->gridDimY,      config->gridDimZ,
                                config->sharedMemBytes, (size_t)config->hStream, config->blockDimX};
  memset(&note, 0, sizeof note);
  memcpy(note.config, seen, sizeof seen);
  unsigned char* to = note.bytes;
  for (int i = 0; i < arguments; to += sizes[i++]) memcpy(to, given[i], sizes[i]);
  return CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                const cuuint64_t* shape, const cuuint64_t* strides, const cuuint32_t* box,
                                const cuuint32_t* steps, CUtensorMapInterleave interleave,
                                CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                CUtensorMapFloatOOBfill fill) {
  unsigned long long* to = memset(map, 0, sizeof *map);
  *to++ = (size_t)address;
  *to++ = type << 16 | swizzle << 8 | rank;
  for (cuuint32_t axis = 0; axis < rank; axis++) {
    *to++ = shape[axis];
    *to++ = axis + 1 < rank ? strides[axis] : 0;
    *to++ = box[axis];
  }
  return CUDA_SUCCESS;
}

CUresult cuPointerGetAttribute(void* to, CUpointer_attribute what, CUdeviceptr pointer) {
  *(CUdeviceptr*)to = pointer;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetAttribute(int* to, CUdevice_attribute what, CUdevice device) {
  *to = 232448;
  return CUDA_SUCCESS;
}

CUresult cuFuncGetAttribute(int* to, CUfunction_attribute what, CUfunction function) {
  *to = 1024;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* to) {
  *to = (CUcontext)1;
  return CUDA_SUCCESS;
}

CUresult cuGetErrorString(CUresult result, const char** to) {
  *to = "an error";
  return CUDA_SUCCESS;
}

#define SUCCEEDS(name, ...) \
  CUresult name(__VA_ARGS__) { return CUDA_SUCCESS; }

SUCCEEDS(cuCtxSetCurrent, CUcontext context)
SUCCEEDS(cuCtxGetLimit, size_t* to, CUlimit limit)
SUCCEEDS(cuCtxSetLimit, CUlimit limit, size_t value)
SUCCEEDS(cuDeviceGet, CUdevice* to, int index)
SUCCEEDS(cuDevicePrimaryCtxRetain, CUcontext* to, CUdevice device)
SUCCEEDS(cuFuncSetAttribute, CUfunction function, CUfunction_attribute what, int value)
SUCCEEDS(cuFuncSetCacheConfig, CUfunction function, CUfunc_cache value)
SUCCEEDS(cuModuleGetFunction, CUfunction* to, CUmodule module, const char* name)
SUCCEEDS(cuModuleLoadData, CUmodule* to, const void* image)
