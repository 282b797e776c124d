/* As much of HIP as the examples use, on the CPU: memory is memory, a stream does at once what it is asked, and there are as
 * many devices as HIP_CPU_DEVICES says (2). To try the examples, and ampere, where there is no AMD GPU. */
#ifndef HIP_CPU_H
#define HIP_CPU_H

#include <stdlib.h>
#include <string.h>

#define __global__ static __attribute__((noinline))
#define __device__

typedef enum { hipSuccess = 0, hipErrorInvalidValue = 1, hipErrorOutOfMemory = 2, hipErrorInvalidDevice = 101 } hipError_t;
typedef enum { hipMemcpyHostToDevice, hipMemcpyDeviceToHost } hipMemcpyKind;
typedef struct { int device; } *hipStream_t;

QUIET const char *hipGetErrorString(hipError_t error) {
    switch (error) {
    case hipSuccess: return "no error";
    case hipErrorOutOfMemory: return "out of memory";
    case hipErrorInvalidDevice: return "invalid device";
    default: return "invalid value";
    }
}

static int hip_cpu_device;

QUIET hipError_t hipGetDeviceCount(int *count) {
    const char *text = getenv("HIP_CPU_DEVICES");
    *count = text ? atoi(text) : 2;
    return *count >= 0 ? hipSuccess : hipErrorInvalidValue;
}

QUIET hipError_t hipSetDevice(int device) {
    int count;
    if (hipGetDeviceCount(&count) != hipSuccess || device < 0 || device >= count) return hipErrorInvalidDevice;
    hip_cpu_device = device;
    return hipSuccess;
}

template <typename T> QUIET hipError_t hipMalloc(T **memory, size_t bytes) {
    *memory = (T *)malloc(bytes);
    return *memory ? hipSuccess : hipErrorOutOfMemory;
}

QUIET hipError_t hipFree(void *memory) {
    free(memory);
    return hipSuccess;
}

QUIET hipError_t hipMemcpy(void *to, const void *from, size_t bytes, hipMemcpyKind) {
    memcpy(to, from, bytes);
    return hipSuccess;
}

QUIET hipError_t hipMemcpyAsync(void *to, const void *from, size_t bytes, hipMemcpyKind kind, hipStream_t) {
    return hipMemcpy(to, from, bytes, kind);
}

QUIET hipError_t hipStreamCreate(hipStream_t *stream) {
    *stream = (hipStream_t)malloc(sizeof(**stream));
    if (!*stream) return hipErrorOutOfMemory;
    (*stream)->device = hip_cpu_device;
    return hipSuccess;
}

QUIET hipError_t hipStreamDestroy(hipStream_t stream) {
    free(stream);
    return hipSuccess;
}

QUIET hipError_t hipStreamSynchronize(hipStream_t) { return hipSuccess; }
QUIET hipError_t hipDeviceSynchronize(void) { return hipSuccess; }
QUIET hipError_t hipGetLastError(void) { return hipSuccess; }

#endif
