/* Definitions that the examples share: the GPU interface (HIP, CUDA, or a replacement on the CPU), errors in one line, and MPI if
 * it is used.
 *
 * Kernels work with any number of threads: each begins at item `first_item()` and takes every `item_stride()`th one. A GPU runs
 * them with thousands of threads, a CPU with one. On a CPU, a launch is one call of a function that has the kernel's name, so
 * that a profile of the program on the CPU has the same names as one on the GPU.
 */
#ifndef GPU_H
#define GPU_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Helpers are not phases of the program, so they are not in a profile of its functions. */
#define HELPER static inline __attribute__((no_instrument_function, unused))

#if defined(__HIPCC__) || defined(__HIP__) || defined(__CUDACC__)
#ifdef __CUDACC__
#include "../cuda/hip_cuda.h"
#else
#include <hip/hip_runtime.h>
#endif
#define WHERE "GPU"
HELPER __device__ size_t first_item(void) { return blockIdx.x * (size_t)blockDim.x + threadIdx.x; }
HELPER __device__ size_t item_stride(void) { return gridDim.x * (size_t)blockDim.x; }
enum { THREADS = 256 };
#define LAUNCH(kernel, items, stream, ...) \
    hipLaunchKernelGGL(kernel, dim3(blocks_for(items)), dim3(THREADS), 0, stream, __VA_ARGS__)
HELPER unsigned blocks_for(size_t items) {
    size_t blocks = (items + THREADS - 1) / THREADS;
    return blocks < 65535 ? (unsigned)blocks : 65535;
}
#else
#include "hip_cpu.h"
#define WHERE "CPU, in place of a GPU"
HELPER size_t first_item(void) { return 0; }
HELPER size_t item_stride(void) { return 1; }
#define LAUNCH(kernel, items, stream, ...) kernel(__VA_ARGS__)
#endif

/* A call that must succeed. */
#define CHECK(call)                                                                                     \
    do {                                                                                                \
        hipError_t error_ = (call);                                                                     \
        if (error_ != hipSuccess) {                                                                     \
            fprintf(stderr, "%s: %s: %s\n", __FILE__, #call, hipGetErrorString(error_));                \
            exit(1);                                                                                    \
        }                                                                                               \
    } while (0)

#ifdef USE_MPI
#include <mpi.h>
#endif

static int rank, ranks = 1;

/* Starts the job: each rank takes the GPU with its number. Returns the number of GPUs. */
HELPER int begin_job(int *argc, char ***argv) {
#ifdef USE_MPI
    MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
#else
    (void)argc, (void)argv;
#endif
    setvbuf(stdout, NULL, _IOLBF, 0);
    int devices = 0;
    hipError_t error = hipGetDeviceCount(&devices);
    if (error != hipSuccess || devices == 0) {
        fprintf(stderr, "no GPU to run on (%s): `make cpu` builds the same program for the CPU\n", hipGetErrorString(error));
        exit(1);
    }
    CHECK(hipSetDevice(rank % devices));
    return devices;
}

/* Ends the job. Every rank reports whether its result was right; the exit status is 0 if all were. */
HELPER int end_job(const char *program, int right) {
    int all = right;
#ifdef USE_MPI
    MPI_Allreduce(&right, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    MPI_Finalize();
#endif
    if (!right) fprintf(stderr, "%s: rank %d: WRONG RESULT\n", program, rank);
    if (rank == 0) printf("%s: %s\n", program, all ? "result is right" : "RESULT IS WRONG");
    return !all;
}

/* A positive number from the command line, or `usual`. */
HELPER double argument(int argc, char **argv, int at, const char *name, double usual) {
    if (argc <= at) return usual;
    char *end;
    double value = strtod(argv[at], &end);
    if (*end != '\0' || !(value > 0) || value > 1e9) {
        fprintf(stderr, "%s: %s has to be a number above 0, not \"%s\"\n", argv[0], name, argv[at]);
        exit(2);
    }
    return value;
}

HELPER long long nanoseconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

HELPER double seconds_now(void) { return 1e-9 * (double)nanoseconds(CLOCK_MONOTONIC); }

#endif
