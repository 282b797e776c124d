/* Busy, idle, busy, idle: a square wave of power, to see how fast a counter is and how far it lags.
 *
 *     square_wave [period in seconds] [duration in seconds]        (1, 10)
 *
 * Half of each period the device is busy with a kernel, half of it idle. Standard output has a line for each edge, when the
 * device became busy (rise) and when it was idle again (fall), by two clocks, in nanoseconds:
 *
 *     edge rise <CLOCK_MONOTONIC> <CLOCK_REALTIME>
 *     edge fall <CLOCK_MONOTONIC> <CLOCK_REALTIME>
 *
 * and nothing else begins with "edge". Compare with the counter's samples in ampere's trace. Look for:
 *   - delay: joules of idle_phase above the idle power come from the counter's lag; [[device]] delay in ampere.toml corrects it;
 *   - aliasing: with a period near the counter's own (1 to 100 ms) or below, each sample has both phases in it: their watts
 *     approach each other, resolved joules go to 0, and ampere shows "below resolution".
 */
#include "gpu.h"

/* x = x/2 + 1/2 goes to 1 and stays there: work of any length with a known result. */
__global__ void burn(double *x, size_t n, long steps) {
    for (size_t i = first_item(); i < n; i += item_stride()) {
        double value = x[i];
        for (long step = 0; step < steps; step++) value = value * 0.5 + 0.5;
        x[i] = value;
    }
}

static size_t n;
static long steps = 1000;
static double *x, *gpu_x;
static double half_s;

/* Allocates an element for each thread: enough threads for all units of any GPU. */
static void allocate(void) {
    n = WHERE[0] == 'G' ? 1 << 19 : 64;
    x = (double *)calloc(n, sizeof(double));
    if (!x) exit(1);
    CHECK(hipMalloc(&gpu_x, n * sizeof(double)));
    CHECK(hipMemcpy(gpu_x, x, n * sizeof(double), hipMemcpyHostToDevice));
}

static void one_burn(void) {
    LAUNCH(burn, n, 0, gpu_x, n, steps);
    CHECK(hipGetLastError());
    CHECK(hipDeviceSynchronize());
}

/* Chooses the number of steps so that a launch takes a hundredth of a phase, which is the precision of the edges. */
static void find_steps(void) {
    one_burn(); /* the first one loads the code */
    double begin = seconds_now();
    one_burn();
    double took = seconds_now() - begin;
    double wanted = 1000 * (half_s / 100) / (took > 1e-7 ? took : 1e-7);
    steps = wanted < 100 ? 100 : wanted > 1e8 ? 100000000 : (long)wanted;
}

static void edge(const char *which) {
    long long monotonic = nanoseconds(CLOCK_MONOTONIC), realtime = nanoseconds(CLOCK_REALTIME);
    if (rank == 0) printf("edge %s %lld %lld\n", which, monotonic, realtime);
}

static void busy_phase(double until) {
    while (seconds_now() < until) one_burn();
}

static void idle_phase(double until) {
    struct timespec t;
    t.tv_sec = (time_t)until;
    t.tv_nsec = (long)((until - (double)t.tv_sec) * 1e9);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) != 0) {}
}

static int check(void) {
    CHECK(hipMemcpy(x, gpu_x, n * sizeof(double), hipMemcpyDeviceToHost));
    for (size_t i = 0; i < n; i++)
        if (fabs(x[i] - 1) > 1e-12) return 0;
    return 1;
}

int main(int argc, char **argv) {
    half_s = argument(argc, argv, 1, "period", 1) / 2;
    double duration = argument(argc, argv, 2, "duration", 10);
    begin_job(&argc, &argv);
    allocate();
    find_steps();
    long periods = (long)(duration / (2 * half_s));
    if (periods < 1) periods = 1;
    /* Phases end at times that were fixed at the beginning, so that errors do not add up. */
    double begin = seconds_now();
    for (long period = 0; period < periods; period++) {
        edge("rise");
        busy_phase(begin + (double)(2 * period + 1) * half_s);
        edge("fall");
        idle_phase(begin + (double)(2 * period + 2) * half_s);
    }
    int right = check();
    if (rank == 0) printf("square_wave: %d ranks on the %s, %ld periods of %g s\n", ranks, WHERE, periods, 2 * half_s);
    return end_job("square_wave", right);
}
