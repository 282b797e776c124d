/* A layer of OpenCL's loader below ampere's. Every third kernel ends before it starts (-DNEGATIVE), or a launch or copy keeps its
 * thread busy for 8 ms of CPU time before it begins, so that samples are taken in it (-DBUSY). */
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl_icd.h>
#include <time.h>

static cl_icd_dispatch own;
static const cl_icd_dispatch *next;

#ifdef NEGATIVE
static cl_int times(cl_event event, cl_profiling_info what, size_t size, void *value, size_t *needed) {
    static int kernels;
    cl_command_type type = 0;
    next->clGetEventInfo(event, CL_EVENT_COMMAND_TYPE, sizeof type, &type, NULL);
    if (type == CL_COMMAND_NDRANGE_KERNEL && what == CL_PROFILING_COMMAND_START) kernels++;
    if (type == CL_COMMAND_NDRANGE_KERNEL && kernels % 3 == 0)
        what = what == CL_PROFILING_COMMAND_START ? CL_PROFILING_COMMAND_END
             : what == CL_PROFILING_COMMAND_END   ? CL_PROFILING_COMMAND_START : what;
    return next->clGetEventProfilingInfo(event, what, size, value, needed);
}
static void change(void) { own.clGetEventProfilingInfo = (__typeof__(own.clGetEventProfilingInfo))times; }
#endif

#ifdef BUSY
static void be_busy(void) {
    struct timespec begin, now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    do clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    while ((now.tv_sec - begin.tv_sec) * 1000000000L + now.tv_nsec - begin.tv_nsec < 8000000);
}
static cl_int launch(cl_command_queue queue, cl_kernel kernel, cl_uint dimensions, const size_t *offset, const size_t *items,
                     const size_t *group, cl_uint waits, const cl_event *list, cl_event *event) {
    be_busy();
    return next->clEnqueueNDRangeKernel(queue, kernel, dimensions, offset, items, group, waits, list, event);
}
static cl_int copy(cl_command_queue queue, cl_mem buffer, cl_bool blocks, size_t offset, size_t bytes, const void *from,
                   cl_uint waits, const cl_event *list, cl_event *event) {
    be_busy();
    return next->clEnqueueWriteBuffer(queue, buffer, blocks, offset, bytes, from, waits, list, event);
}
static void change(void) { own.clEnqueueNDRangeKernel = launch, own.clEnqueueWriteBuffer = copy; }
#endif

cl_int clGetLayerInfo(unsigned what, size_t size, void *value, size_t *needed) {
    if (value && size >= sizeof(unsigned) && what == 0x4240) *(unsigned *)value = 100;
    if (needed) *needed = sizeof(unsigned);
    return CL_SUCCESS;
}

cl_int clInitLayer(cl_uint entries, const cl_icd_dispatch *target, cl_uint *own_entries, const cl_icd_dispatch **table) {
    for (cl_uint i = 0; i < entries && i < sizeof own / sizeof(void *); i++) ((void **)&own)[i] = ((void **)target)[i];
    next = target;
    change();
    *table = &own, *own_entries = sizeof own / sizeof(void *);
    return CL_SUCCESS;
}
