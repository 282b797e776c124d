/* C = A B in double precision, on two streams at once.
 *
 *     dgemm [seconds] [rows]        (5 s, 2048 rows; 256 on the CPU)
 *
 * Each stream has matrices of its own. Look for:
 *   - the kernels view: HIP[0:0] and HIP[0:1], two streams of one device. While both run a kernel its power is shared evenly
 *     between them, so each has about half of the joules, whatever their kernels do;
 *   - the ranks view: the host only waits, in wait_for_both.
 */
#include "gpu.h"

__global__ void dgemm_kernel(const double *a, const double *b, double *c, size_t n) {
    for (size_t i = first_item(); i < n * n; i += item_stride()) {
        size_t row = i / n, column = i % n;
        double sum = 0;
        for (size_t k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + column];
        c[i] = sum;
    }
}

enum { STREAMS = 2 };

struct product {
    hipStream_t stream;
    double *a, *b, *c;             /* on the host */
    double *gpu_a, *gpu_b, *gpu_c; /* on the device */
};

static size_t n;
static product products[STREAMS];

/* A's columns grow as B's rows shrink, so that every element of C is known: n (row + 1) (column + 2 + stream). */
static void allocate(product *p, int stream) {
    size_t bytes = n * n * sizeof(double);
    p->a = (double *)malloc(bytes), p->b = (double *)malloc(bytes), p->c = (double *)malloc(bytes);
    if (!p->a || !p->b || !p->c) {
        fprintf(stderr, "dgemm: no memory for matrices of %zu rows\n", n);
        exit(1);
    }
    for (size_t i = 0; i < n * n; i++) {
        size_t row = i / n, column = i % n;
        p->a[i] = (double)(row + 1) * (double)(column + 1);
        p->b[i] = (double)(column + 2 + stream) / (double)(row + 1);
    }
    CHECK(hipStreamCreate(&p->stream));
    CHECK(hipMalloc(&p->gpu_a, bytes));
    CHECK(hipMalloc(&p->gpu_b, bytes));
    CHECK(hipMalloc(&p->gpu_c, bytes));
    CHECK(hipMemcpyAsync(p->gpu_a, p->a, bytes, hipMemcpyHostToDevice, p->stream));
    CHECK(hipMemcpyAsync(p->gpu_b, p->b, bytes, hipMemcpyHostToDevice, p->stream));
}

static void multiply_on_both(void) {
    for (product &p : products) {
        LAUNCH(dgemm_kernel, n * n, p.stream, p.gpu_a, p.gpu_b, p.gpu_c, n);
        CHECK(hipGetLastError());
    }
}

static void wait_for_both(void) {
    for (product &p : products) CHECK(hipStreamSynchronize(p.stream));
}

static void fetch(void) {
    for (product &p : products)
        CHECK(hipMemcpyAsync(p.c, p.gpu_c, n * n * sizeof(double), hipMemcpyDeviceToHost, p.stream));
}

static int check(void) {
    for (int stream = 0; stream < STREAMS; stream++)
        for (size_t i = 0; i < n * n; i++) {
            double expected = (double)n * (double)(i / n + 1) * (double)(i % n + 2 + stream);
            if (fabs(products[stream].c[i] - expected) > 1e-9 * expected) return 0;
        }
    return 1;
}

int main(int argc, char **argv) {
    double seconds = argument(argc, argv, 1, "seconds", 5);
    n = (size_t)ceil(argument(argc, argv, 2, "rows", WHERE[0] == 'G' ? 2048 : 256));
    begin_job(&argc, &argv);
    for (int stream = 0; stream < STREAMS; stream++) allocate(&products[stream], stream);
    long rounds = 0;
    for (double end = seconds_now() + seconds; rounds == 0 || seconds_now() < end; rounds++) {
        multiply_on_both();
        wait_for_both();
    }
    fetch();
    wait_for_both();
    int right = check();
    if (rank == 0)
        printf("dgemm: %d ranks on the %s, %zu rows, %ld products each on %d streams\n", ranks, WHERE, n, rounds, STREAMS);
    return end_job("dgemm", right);
}
