/* A kernel that takes much power and one that takes little, on two GPUs at the same time.
 *
 *     two_kernels [seconds]        (10)
 *
 * heavy_kernel computes without pause on the first device, light_kernel waits for memory in one thread on the second (on
 * the same one, if there is no other). Both run all the time. Look for:
 *   - the kernels view: GPU-0's joules are heavy_kernel's, GPU-1's light_kernel's: same seconds, different joules;
 *   - the ranks view: the host's functions run while both kernels do, and have the joules of both devices. What a host function
 *     used and what a kernel used are answers to different questions.
 * On the CPU the kernels take turns, and differ in time only.
 */
#include "gpu.h"

__global__ void heavy_kernel(double *x, size_t n, long steps) {
    for (size_t i = first_item(); i < n; i += item_stride()) {
        double value = x[i];
        for (long step = 0; step < steps; step++) value = value * 0.5 + 0.5;
        x[i] = value;
    }
}

/* Follows a chain through memory: every step waits for the one before. */
__global__ void light_kernel(const unsigned *next, unsigned *position, long steps) {
    if (first_item() != 0) return;
    unsigned at = *position;
    for (long step = 0; step < steps; step++) at = next[at];
    *position = at;
}

enum { CHAIN = 1 << 20 };

static size_t n;
static double *x, *gpu_x;
static unsigned *next, *gpu_next, *gpu_position;
static hipStream_t heavy, light;
static int heavy_device, light_device;
static long heavy_steps, light_steps;

static void allocate_heavy(void) {
    n = WHERE[0] == 'G' ? 1 << 19 : 256;
    heavy_steps = WHERE[0] == 'G' ? 100000 : 10000;
    x = (double *)calloc(n, sizeof(double));
    if (!x) exit(1);
    CHECK(hipSetDevice(heavy_device));
    CHECK(hipStreamCreate(&heavy));
    CHECK(hipMalloc(&gpu_x, n * sizeof(double)));
    CHECK(hipMemcpy(gpu_x, x, n * sizeof(double), hipMemcpyHostToDevice));
}

/* One ring of all elements: a step by an odd number goes through all of them before it comes back. */
static void allocate_light(void) {
    light_steps = WHERE[0] == 'G' ? 16384 : CHAIN / 8;
    next = (unsigned *)malloc(CHAIN * sizeof(unsigned));
    if (!next) exit(1);
    for (unsigned i = 0; i < CHAIN; i++) next[i] = (i + 514229u) % CHAIN;
    unsigned position = 0;
    CHECK(hipSetDevice(light_device));
    CHECK(hipStreamCreate(&light));
    CHECK(hipMalloc(&gpu_next, CHAIN * sizeof(unsigned)));
    CHECK(hipMalloc(&gpu_position, sizeof(unsigned)));
    CHECK(hipMemcpy(gpu_next, next, CHAIN * sizeof(unsigned), hipMemcpyHostToDevice));
    CHECK(hipMemcpy(gpu_position, &position, sizeof(unsigned), hipMemcpyHostToDevice));
}

static void launch_both(void) {
    CHECK(hipSetDevice(heavy_device));
    LAUNCH(heavy_kernel, n, heavy, gpu_x, n, heavy_steps);
    CHECK(hipGetLastError());
    CHECK(hipSetDevice(light_device));
    LAUNCH(light_kernel, 1, light, gpu_next, gpu_position, light_steps);
    CHECK(hipGetLastError());
}

static void wait_for_both(void) {
    CHECK(hipStreamSynchronize(heavy));
    CHECK(hipStreamSynchronize(light));
}

static int check(long rounds) {
    unsigned position;
    CHECK(hipMemcpy(x, gpu_x, n * sizeof(double), hipMemcpyDeviceToHost));
    CHECK(hipMemcpy(&position, gpu_position, sizeof(unsigned), hipMemcpyDeviceToHost));
    for (size_t i = 0; i < n; i++)
        if (fabs(x[i] - 1) > 1e-12) return 0;
    unsigned long long all = (unsigned long long)rounds * (unsigned long long)light_steps % CHAIN;
    return position == (unsigned)(all * 514229u % CHAIN);
}

int main(int argc, char **argv) {
    double seconds = argument(argc, argv, 1, "seconds", 10);
    int devices = begin_job(&argc, &argv);
    heavy_device = 2 * rank % devices;
    light_device = (2 * rank + 1) % devices;
    allocate_heavy();
    allocate_light();
    long rounds = 0;
    for (double end = seconds_now() + seconds; rounds == 0 || seconds_now() < end; rounds++) {
        launch_both();
        wait_for_both();
    }
    int right = check(rounds);
    if (rank == 0)
        printf("two_kernels: %d ranks on the %s, heavy on device %d, light on device %d, %ld rounds\n", ranks, WHERE,
               heavy_device, light_device, rounds);
    return end_job("two_kernels", right);
}
