/* Uses OpenCL in several ways with which a layer of its loader must not interfere.
 *
 * opencl WAY      see the table at the end; what each prints does not depend on how long anything takes
 *
 * Functions are looked up with dlsym, so that the library can be closed. No queue is made with profiling. */
#define CL_TARGET_OPENCL_VERSION 200
#include <CL/cl.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ITEMS = 16, PLACES = 64 };

static const char *text =
    "float spin(int n) { float s = 0; for (int i = 1; i <= n; i++) s += 1.0f / i; return s; }\n"
    "__kernel void light(__global volatile float *out, int at) { out[at] = spin(1200000); }\n"
    "__kernel void heavy(__global volatile float *out, int at) { out[at] = spin(3600000); }\n"
    "__kernel void endless(__global volatile float *out, int at) { for (int i = 0; i < 400; i++) out[at] = spin(3600000); }\n"
    "__kernel void tiny(__global volatile float *out, int at) { out[at] = 1; }\n"
    "__kernel void NAME(__global volatile float *out, int at) { out[at] = spin(1200000); }\n";

static void *library;
static cl_context context;
static cl_device_id device;
static cl_program program;
static cl_mem buffer;
static volatile float out[1 << 16] __attribute__((aligned(4096)));

#define CL(name) ((__typeof__(name) *)dlsym(library, #name))

static void check(cl_int code, const char *what) {
    if (code == CL_SUCCESS) return;
    fprintf(stderr, "%s: OpenCL error %d\n", what, code);
    exit(1);
}

static void begin(void) {
    cl_platform_id platform;
    cl_int code;
    library = dlopen("libOpenCL.so.1", RTLD_NOW);
    if (!library) exit(1);
    check(CL(clGetPlatformIDs)(1, &platform, NULL), "platform");
    check(CL(clGetDeviceIDs)(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "device");
    context = CL(clCreateContext)(NULL, 1, &device, NULL, NULL, &code);
    check(code, "context");
    program = CL(clCreateProgramWithSource)(context, 1, &text, NULL, &code);
    check(code, "program");
    char name[256] = "-DNAME=";
    memset(name + strlen(name), 'a', 200);
    check(CL(clBuildProgram)(program, 1, &device, name, NULL, NULL), "build");
    buffer = CL(clCreateBuffer)(context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, sizeof out, (void *)out, &code);
    check(code, "buffer");
}

static cl_command_queue queue(cl_command_queue_properties bits) {
    cl_int code;
    cl_queue_properties list[] = {CL_QUEUE_PROPERTIES, bits, 0};
    cl_command_queue made = CL(clCreateCommandQueueWithProperties)(context, device, bits ? list : NULL, &code);
    check(code, "queue");
    return made;
}

static void run(cl_command_queue on, const char *name, int at, cl_event *event) {
    cl_int code;
    size_t one = 1;
    cl_kernel kernel = CL(clCreateKernel)(program, name, &code);
    check(code, name);
    check(CL(clSetKernelArg)(kernel, 0, sizeof buffer, &buffer), "argument");
    check(CL(clSetKernelArg)(kernel, 1, sizeof at, &at), "argument");
    check(CL(clEnqueueNDRangeKernel)(on, kernel, 1, NULL, &one, NULL, 0, NULL, event), "kernel");
    check(CL(clReleaseKernel)(kernel), "release");
}

/* Waits until these places are written, by looking at memory that the device shares. */
static void look(int places) {
    for (int at = 0; at < places; at++)
        while (out[at] == 0) usleep(1000);
    usleep(1500000);
}

static void three_of_both(cl_command_queue on) {
    for (int at = 0; at < 6; at++) run(on, at % 2 ? "heavy" : "light", at, NULL);
    check(CL(clFlush)(on), "flush");
}

static void waits(void) {
    cl_command_queue on = queue(0);
    three_of_both(on);
    check(CL(clFinish)(on), "finish");
}

static void never_waits(void) {
    three_of_both(queue(0));
    look(6);
}

static void out_of_order(void) {
    cl_command_queue on = queue(CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    three_of_both(on);
    check(CL(clFinish)(on), "finish");
}

static void released_early(void) {
    for (int at = 0; at < 6; at++) {
        cl_event event;
        cl_command_queue on = queue(0);
        run(on, at % 2 ? "heavy" : "light", at, &event);
        check(CL(clFlush)(on), "flush");
        check(CL(clReleaseEvent)(event), "event");
        check(CL(clReleaseCommandQueue)(on), "release");
    }
    look(6);
}

static void long_name(void) {
    char name[201] = "";
    memset(name, 'a', 200);
    cl_command_queue on = queue(0);
    run(on, name, 0, NULL);
    check(CL(clFinish)(on), "finish");
}

static void copies(void) {
    float here[1024] = {0}, pattern = 2;
    cl_int code;
    cl_command_queue on = queue(0);
    check(CL(clEnqueueWriteBuffer)(on, buffer, CL_TRUE, 0, sizeof here, here, 0, NULL, NULL), "write");
    check(CL(clEnqueueFillBuffer)(on, buffer, &pattern, sizeof pattern, 0, 512, 0, NULL, NULL), "fill");
    check(CL(clEnqueueReadBuffer)(on, buffer, CL_TRUE, 0, sizeof here, here, 0, NULL, NULL), "read");
    check(CL(clEnqueueCopyBuffer)(on, buffer, buffer, 0, 8192, 512, 0, NULL, NULL), "copy");
    void *mapped = CL(clEnqueueMapBuffer)(on, buffer, CL_TRUE, CL_MAP_READ, 0, 512, 0, NULL, NULL, &code);
    check(code, "map");
    printf("%g %g\n", here[0], *(float *)mapped);
    check(CL(clEnqueueUnmapMemObject)(on, buffer, mapped, 0, NULL, NULL), "unmap");
    check(CL(clFinish)(on), "finish");
}

static void properties(void) {
    for (int with = 0; with < 2; with++) {
        cl_command_queue on = queue(with ? CL_QUEUE_PROFILING_ENABLE : 0);
        cl_command_queue_properties bits = 77;
        cl_ulong time = 0;
        cl_event event;
        size_t size = 77;
        check(CL(clGetCommandQueueInfo)(on, CL_QUEUE_PROPERTIES, sizeof bits, &bits, NULL), "properties");
        cl_int of_list = CL(clGetCommandQueueInfo)(on, 0x1098, 0, NULL, &size);
        run(on, "tiny", 0, &event);
        check(CL(clWaitForEvents)(1, &event), "wait");
        cl_int code = CL(clGetEventProfilingInfo)(event, CL_PROFILING_COMMAND_END, sizeof time, &time, NULL);
        printf("%llu %d %zu %d %d\n", (unsigned long long)bits, of_list, size, code, time != 0);
    }
}

static void forks(void) {
    cl_command_queue on = queue(0);
    run(on, "light", 0, NULL);
    check(CL(clFinish)(on), "finish");
    fflush(stdout);
    pid_t child = fork();
    if (!child) exit(3);
    int status;
    waitpid(child, &status, 0);
    printf("child %d\n", WEXITSTATUS(status));
    run(on, "light", 1, NULL);
    check(CL(clFinish)(on), "finish");
}

static void leaves_at_once(void) {
    waits();
    fflush(stdout);
    _exit(5);
}

static void crashes(void) {
    cl_command_queue on = queue(0);
    size_t one = 1;
    run(on, "light", 0, NULL);
    check(CL(clFinish)(on), "finish");
    CL(clEnqueueNDRangeKernel)(on, (cl_kernel)8, 1, NULL, &one, NULL, 0, NULL, NULL);
}

static void closes(void) {
    waits();
    printf("closed %d\n", dlclose(library));
    usleep(100000);
}

static void ends_meanwhile(void) {
    cl_command_queue on = queue(0);
    run(on, "light", 0, NULL);
    check(CL(clFinish)(on), "finish");
    run(on, "endless", 1, NULL);
    check(CL(clFlush)(on), "flush");
    usleep(100000);
}

static void many(void) {
    enum { QUEUES = 8, EACH = 2500 };
    cl_command_queue on[QUEUES];
    cl_int code;
    size_t one = 1;
    int at = 0;
    cl_kernel kernel = CL(clCreateKernel)(program, "tiny", &code);
    check(CL(clSetKernelArg)(kernel, 0, sizeof buffer, &buffer), "argument");
    check(CL(clSetKernelArg)(kernel, 1, sizeof at, &at), "argument");
    __typeof__(clEnqueueNDRangeKernel) *enqueue = CL(clEnqueueNDRangeKernel);
    for (int q = 0; q < QUEUES; q++) on[q] = queue(0);
    for (int n = 0; n < EACH; n++) {
        for (int q = 0; q < QUEUES; q++) check(enqueue(on[q], kernel, 1, NULL, &one, NULL, 0, NULL, NULL), "kernel");
        if (n % 10 == 9) usleep(5000);
    }
    for (int q = 0; q < QUEUES; q++) check(CL(clFinish)(on[q]), "finish");
}

/* The first queue has one kernel, and the second one is busy until there is a file called "over". */
static void one_is_silent(void) {
    cl_command_queue first = queue(0), second = queue(0);
    run(first, "heavy", 0, NULL);
    check(CL(clFinish)(first), "finish");
    while (access("over", F_OK)) {
        run(second, "light", 1, NULL);
        check(CL(clFinish)(second), "finish");
    }
}

static const struct {
    const char *name;
    void (*way)(void);
} ways[] = {
    {"waits", waits},           {"never_waits", never_waits}, {"out_of_order", out_of_order}, {"released_early", released_early},
    {"long_name", long_name},   {"copies", copies},           {"properties", properties},     {"forks", forks},
    {"leaves_at_once", leaves_at_once}, {"crashes", crashes}, {"closes", closes}, {"ends_meanwhile", ends_meanwhile},
    {"many", many},             {"one_is_silent", one_is_silent},
};

int main(int argc, char **argv) {
    begin();
    for (size_t i = 0; argc > 1 && i < sizeof ways / sizeof *ways; i++) {
        if (strcmp(argv[1], ways[i].name)) continue;
        ways[i].way();
        puts(argv[1]);
        return 7;
    }
    return 2;
}
