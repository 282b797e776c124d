/* Measures calls of an empty function. Prints nanoseconds per call, by the wall clock and by the process' CPU time. */
#include <stdio.h>
#include <time.h>

#define CALLS 20000000

volatile long sink;

static double now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return 1e9 * time.tv_sec + time.tv_nsec;
}

__attribute__((noinline)) void leaf(long i) { sink += i; }

__attribute__((noinline)) void loop(void)
{
    for (long i = 0; i < CALLS; i++)
        leaf(i);
}

int main(void)
{
    double wall = now(CLOCK_MONOTONIC), cpu = now(CLOCK_PROCESS_CPUTIME_ID);
    loop();
    printf("%.6f ", (now(CLOCK_MONOTONIC) - wall) / CALLS);
    printf("%.6f\n", (now(CLOCK_PROCESS_CPUTIME_ID) - cpu) / CALLS);
    return 0;
}
