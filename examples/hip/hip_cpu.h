/* The part of HIP that the examples use, on the CPU, to try the examples and ampere without an AMD GPU. Memory is the host's.
 * Each operation of a stream is complete when its call returns. HIP_CPU_DEVICES sets the number of devices (2 by default). */
#ifndef HIP_CPU_H
#define HIP_CPU_H

#include <stdlib.h>
#include <string.h>

#define __global__ static __attribute__((noinline))
#define __device__

typedef enum { hipSuccess = 0, hipErrorInvalidValue = 1, hipErrorOutOfMemory = 2, hipErrorInvalidDevice = 101 } hipError_t;
typedef enum { hipMemcpyHostToDevice, hipMemcpyDeviceToHost } hipMemcpyKind;
typedef struct { int device; } *hipStream_t;

HELPER const char *hipGetErrorString(hipError_t error) {
    switch (error) {
    case hipSuccess: return "no error";
    case hipErrorOutOfMemory: return "out of memory";
    case hipErrorInvalidDevice: return "invalid device";
    default: return "invalid value";
    }
}

static int hip_cpu_device;

HELPER hipError_t hipGetDeviceCount(int *count) {
    const char *text = getenv("HIP_CPU_DEVICES");
    *count = text ? atoi(text) : 2;
    return *count >= 0 ? hipSuccess : hipErrorInvalidValue;
}

HELPER hipError_t hipSetDevice(int device) {
    int count;
    if (hipGetDeviceCount(&count) != hipSuccess || device < 0 || device >= count) return hipErrorInvalidDevice;
    hip_cpu_device = device;
    return hipSuccess;
}

template <typename T> HELPER hipError_t hipMalloc(T **memory, size_t bytes) {
    *memory = (T *)malloc(bytes);
    return *memory ? hipSuccess : hipErrorOutOfMemory;
}

HELPER hipError_t hipFree(void *memory) {
    free(memory);
    return hipSuccess;
}

HELPER hipError_t hipMemcpy(void *to, const void *from, size_t bytes, hipMemcpyKind) {
    memcpy(to, from, bytes);
    return hipSuccess;
}

HELPER hipError_t hipMemcpyAsync(void *to, const void *from, size_t bytes, hipMemcpyKind kind, hipStream_t) {
    return hipMemcpy(to, from, bytes, kind);
}

HELPER hipError_t hipStreamCreate(hipStream_t *stream) {
    *stream = (hipStream_t)malloc(sizeof(**stream));
    if (!*stream) return hipErrorOutOfMemory;
    (*stream)->device = hip_cpu_device;
    return hipSuccess;
}

HELPER hipError_t hipStreamDestroy(hipStream_t stream) {
    free(stream);
    return hipSuccess;
}

HELPER hipError_t hipStreamSynchronize(hipStream_t) { return hipSuccess; }
HELPER hipError_t hipDeviceSynchronize(void) { return hipSuccess; }
HELPER hipError_t hipGetLastError(void) { return hipSuccess; }

#endif
