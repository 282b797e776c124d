/* c = a + b, again and again: about the least that a GPU program can do.
 *
 *     vector_add [seconds] [elements]        (5 s, 4 Mi elements)
 *
 * Each round copies in, adds, copies out. Look for:
 *   - the ranks view: most of a rank's time, and so of the joules, is in copy_in and copy_out, not in add;
 *   - the kernels view: the kernel vector_add_kernel has few joules, because it runs a small part of the time, and its rate
 *     in watts is "below resolution" if it is shorter than the counter's period.
 */
#include "gpu.h"

__global__ void vector_add_kernel(const double *a, const double *b, double *c, size_t n) {
    for (size_t i = first_item(); i < n; i += item_stride()) c[i] = a[i] + b[i];
}

static size_t n;
static double *a, *b, *c;             /* on the host */
static double *gpu_a, *gpu_b, *gpu_c; /* on the device */

static void allocate(void) {
    size_t bytes = n * sizeof(double);
    a = (double *)malloc(bytes), b = (double *)malloc(bytes), c = (double *)malloc(bytes);
    if (!a || !b || !c) {
        fprintf(stderr, "vector_add: no memory for %zu elements\n", n);
        exit(1);
    }
    CHECK(hipMalloc(&gpu_a, bytes));
    CHECK(hipMalloc(&gpu_b, bytes));
    CHECK(hipMalloc(&gpu_c, bytes));
    for (size_t i = 0; i < n; i++) a[i] = (double)i, b[i] = 0.5 * (double)(i % 1000);
}

static void copy_in(void) {
    CHECK(hipMemcpy(gpu_a, a, n * sizeof(double), hipMemcpyHostToDevice));
    CHECK(hipMemcpy(gpu_b, b, n * sizeof(double), hipMemcpyHostToDevice));
}

static void add(void) {
    LAUNCH(vector_add_kernel, n, 0, gpu_a, gpu_b, gpu_c, n);
    CHECK(hipGetLastError());
    CHECK(hipDeviceSynchronize());
}

static void copy_out(void) { CHECK(hipMemcpy(c, gpu_c, n * sizeof(double), hipMemcpyDeviceToHost)); }

static int check(void) {
    for (size_t i = 0; i < n; i++)
        if (c[i] != (double)i + 0.5 * (double)(i % 1000)) return 0;
    return 1;
}

int main(int argc, char **argv) {
    double seconds = argument(argc, argv, 1, "seconds", 5);
    n = (size_t)ceil(argument(argc, argv, 2, "elements", 4 << 20));
    begin_job(&argc, &argv);
    allocate();
    long rounds = 0;
    for (double end = seconds_now() + seconds; rounds == 0 || seconds_now() < end; rounds++) {
        copy_in();
        add();
        copy_out();
    }
    int right = check();
    if (rank == 0) printf("vector_add: %d ranks on the %s, %zu elements, %ld rounds each\n", ranks, WHERE, n, rounds);
    return end_job("vector_add", right);
}
