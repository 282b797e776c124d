/* Two OpenCL kernels, one with three times the work of the other, on the first device.
 *
 * kernels ROUNDS QUEUES [late]    each round runs both on each queue and waits for them; with `late` it waits only at the end
 *
 * With USE_MPI, each rank does this. When all kernels have run, it waits until there is a file called "over". */
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef USE_MPI
#include <mpi.h>
#endif

static const char *source =
    "float spin(int n) { float s = 0; for (int i = 1; i <= n; i++) s += 1.0f / i; return s; }\n"
    "__kernel void light(__global float *out) { out[get_global_id(0)] = spin(1200000); }\n"
    "__kernel void heavy(__global float *out) { out[get_global_id(0)] = spin(3600000); }\n";

static void check(cl_int code, const char *what) {
    if (code != CL_SUCCESS) {
        fprintf(stderr, "%s: OpenCL error %d\n", what, code);
        exit(1);
    }
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 10, queues = argc > 2 ? atoi(argv[2]) : 1;
    int late = argc > 3 && !strcmp(argv[3], "late");
    size_t items = 16;
    cl_int code;
    cl_platform_id platform;
    cl_device_id device;
    cl_command_queue queue[8];
#ifdef USE_MPI
    MPI_Init(&argc, &argv);
#endif
    check(clGetPlatformIDs(1, &platform, NULL), "platform");
    check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "device");
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    check(code, "context");
    for (int q = 0; q < queues; q++) {
        queue[q] = clCreateCommandQueue(context, device, CL_QUEUE_PROFILING_ENABLE, &code);
        check(code, "queue");
    }
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &code);
    check(code, "program");
    check(clBuildProgram(program, 1, &device, "", NULL, NULL), "build");
    cl_kernel kernel[2] = {clCreateKernel(program, "light", NULL), clCreateKernel(program, "heavy", NULL)};
    cl_mem out = clCreateBuffer(context, CL_MEM_READ_WRITE, items * sizeof(float), NULL, &code);
    check(code, "buffer");
    for (int k = 0; k < 2; k++)
        check(clSetKernelArg(kernel[k], 0, sizeof out, &out), "argument");
    for (int round = 0; round < rounds; round++)
        for (int q = 0; q < queues; q++) {
            for (int k = 0; k < 2; k++)
                check(clEnqueueNDRangeKernel(queue[q], kernel[k], 1, NULL, &items, NULL, 0, NULL, NULL), "kernel");
            if (late)
                clFlush(queue[q]);
            else
                check(clFinish(queue[q]), "finish");
        }
    for (int q = 0; q < queues; q++)
        check(clFinish(queue[q]), "finish");
    while (access("over", F_OK))
        usleep(10000);
    for (int q = 0; q < queues; q++)
        clReleaseCommandQueue(queue[q]);
#ifdef USE_MPI
    MPI_Finalize();
#endif
    return 0;
}
