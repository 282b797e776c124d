/* Measures what the layer of OpenCL's loader costs. The implementation behind it does nothing.
 *
 * opencl_layer LAYER KERNELS PER_SECOND QUEUES [WRONG]
 *
 * LAYER is the library. The program prints median times in nanoseconds: of a call that enqueues a kernel, with and without the
 * layer, and of the layer's completion callback, which is called after each kernel, as a real implementation does. With
 * PER_SECOND 0 there is no pause between kernels. A kernel's name has 10,000 characters.
 *
 * With WRONG, each kernel takes 1 ms, and is waited for. The times of every tenth kernel are wrong: with `negative` it ends
 * before it starts, with `untimed` both times are 0, with `before` it starts and ends a minute before it is queued. With `back`,
 * the device's clock goes back by 0.1 s in the middle instead. */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl_icd.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef void callback(cl_event, cl_int, void *);

static cl_ulong now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC_RAW, &time);
    return (cl_ulong)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* The event of a kernel that ran after the previous one on its queue. */
struct event {
    cl_ulong queued, start, end;
    callback *function;
    void *data;
    struct event *next;
};
static struct event *unused;
static cl_ulong ended[64], duration = 100;
/* How far the device's clock is behind, and what is wrong with the times of the next kernel. */
static cl_ulong behind;
static const char *wrong = "";

static struct event *new_event(size_t queue) {
    struct event *event = unused ? unused : malloc(sizeof *event);
    if (unused) unused = unused->next;
    event->queued = now() - behind;
    event->start = event->queued > ended[queue] ? event->queued : ended[queue] + 1;
    event->end = ended[queue] = event->start + duration;
    if (!strcmp(wrong, "negative")) event->end = event->start, event->start += duration;
    if (!strcmp(wrong, "untimed")) event->start = event->end = 0;
    if (!strcmp(wrong, "before")) event->start -= 60000000000, event->end -= 60000000000;
    event->function = NULL;
    return event;
}

static struct event *last;

static cl_int enqueue(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, const size_t *offset, const size_t *global,
                      const size_t *local, cl_uint waits, const cl_event *list, cl_event *event) {
    (void)kernel, (void)dimensions, (void)offset, (void)global, (void)local, (void)waits, (void)list;
    last = NULL;
    if (event) *event = (cl_event)(last = new_event((size_t)queue));
    return CL_SUCCESS;
}
static cl_int mark(cl_command_queue queue, cl_uint waits, const cl_event *list, cl_event *event) {
    return enqueue(queue, NULL, 0, NULL, NULL, NULL, waits, list, event);
}
static cl_int call_back(cl_event of, cl_int status, callback *function, void *data) {
    struct event *event = (struct event *)of;
    (void)status;
    event->function = function, event->data = data;
    return CL_SUCCESS;
}
static cl_int times(cl_event of, cl_profiling_info what, size_t size, void *value, size_t *needed) {
    struct event *event = (struct event *)of;
    (void)size, (void)needed;
    *(cl_ulong *)value = what == CL_PROFILING_COMMAND_QUEUED ? event->queued
                       : what == CL_PROFILING_COMMAND_START  ? event->start : event->end;
    return CL_SUCCESS;
}
static cl_int release(cl_event of) {
    struct event *event = (struct event *)of;
    event->next = unused, unused = event;
    return CL_SUCCESS;
}
static cl_int retain(cl_event of) { return (void)of, CL_SUCCESS; }
static cl_int unknown(void) { return CL_INVALID_VALUE; }
static cl_int name_of(cl_kernel kernel, cl_kernel_info what, size_t size, void *value, size_t *needed) {
    (void)kernel, (void)what;
    if (needed) *needed = 10001;
    if (value) memset(value, 'k', size - 1), ((char *)value)[size - 1] = 0;
    return CL_SUCCESS;
}
static cl_command_queue make(cl_context context, cl_device_id device, cl_command_queue_properties bits, cl_int *code) {
    static size_t queues;
    (void)context, (void)device, (void)bits;
    *code = CL_SUCCESS;
    return (cl_command_queue)++queues;
}

static int compare(const void *a, const void *b) {
    unsigned left = *(const unsigned *)a, right = *(const unsigned *)b;
    return (left > right) - (left < right);
}
static unsigned median(unsigned *of, long count) {
    qsort(of, count, sizeof *of, compare);
    return of[count / 2];
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    long kernels = atol(argv[2]), per_second = atol(argv[3]), queues = atol(argv[4]);
    cl_icd_dispatch target;
    const cl_icd_dispatch *layered;
    cl_uint entries;
    for (size_t i = 0; i < sizeof target / sizeof(void *); i++) ((void **)&target)[i] = (void *)unknown;
    target.clEnqueueNDRangeKernel = enqueue;
    target.clEnqueueMarkerWithWaitList = mark;
    target.clSetEventCallback = (__typeof__(target.clSetEventCallback))call_back;
    target.clGetEventProfilingInfo = times;
    target.clReleaseEvent = release;
    target.clRetainEvent = retain;
    target.clGetKernelInfo = name_of;
    target.clCreateCommandQueue = make;
    void *library = dlopen(argv[1], RTLD_NOW);
    if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
    cl_int (*init)(cl_uint, const cl_icd_dispatch *, cl_uint *, const cl_icd_dispatch **) =
        (__typeof__(init))dlsym(library, "clInitLayer");
    init(sizeof target / sizeof(void *), &target, &entries, &layered);
    cl_int code;
    for (long q = 0; q < queues; q++) {
        last = NULL;
        layered->clCreateCommandQueue(NULL, NULL, 0, &code);
        if (last && last->function) last->function((cl_event)last, CL_COMPLETE, last->data);
    }
    const char *what = argc > 5 ? argv[5] : NULL;
    if (what) duration = 1000000;
    size_t one = 1;
    unsigned *calls = malloc(kernels * sizeof *calls), *plain = malloc(kernels * sizeof *plain),
             *completions = malloc(kernels * sizeof *completions);
    cl_ulong started = now();
    for (long n = 0; n < kernels; n++) {
        cl_command_queue queue = (cl_command_queue)(n % queues + 1);
        cl_event event;
        cl_ulong a = now();
        enqueue(queue, NULL, 1, NULL, &one, NULL, 0, NULL, &event);
        cl_ulong b = now();
        release(event);
        ended[(size_t)queue] = 0;
        if (what && !strcmp(what, "back")) behind = n < kernels / 2 ? 0 : 100000000;
        else if (what) wrong = n % 10 == 9 ? what : "";
        cl_ulong c = now();
        layered->clEnqueueNDRangeKernel(queue, (cl_kernel)8, 1, NULL, &one, NULL, 0, NULL, NULL);
        cl_ulong d = now();
        while (what && now() < d + duration) {}
        wrong = "";
        struct event *of = last;
        if (of && of->function) of->function((cl_event)of, CL_COMPLETE, of->data);
        cl_ulong e = now();
        plain[n] = b - a, calls[n] = d - c, completions[n] = e - d;
        if (per_second)
            while (now() - started < (cl_ulong)n * 1000000000 / per_second) {}
    }
    printf("launch %u ns, without the layer %u ns, record %u ns\n", median(calls, kernels), median(plain, kernels),
           median(completions, kernels));
    return 0;
}
