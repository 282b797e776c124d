/* A small MPI program whose functions differ in how they use the machine, to watch with ampere while it runs.
 *
 *     stencil [seconds [iterations]]        (20 seconds without an argument; it ends earlier after this many iterations)
 *
 * Each rank relaxes its strip of a heated plate. Rank 0 has more rows than the others, so the others wait for it:
 *
 *     main
 *       simulate
 *         step                 the work of one iteration
 *           relax              heavy: floating point over the whole strip
 *             relax_block
 *           exchange_halo      MPI_Sendrecv with both neighbours
 *         residual             MPI_Allreduce: where the fast ranks wait for rank 0
 *           sum_block
 *         checkpoint           light: waits as for a slow file system, MPI_Gather
 */
#include <mpi.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { WIDTH = 2048, BLOCK = 12, ROWS_MIN = 24, ITERATIONS_PER_CHECK = 10, CHECKS_PER_CHECKPOINT = 10 };

static int rank, size, rows;
static double *now, *then;

/* A macro: a function would be instrumented, too, and dominate everything. */
#define row(plate, i) ((plate) + (size_t)(i) * WIDTH)

static void relax_block(int first) {
    for (int i = first; i < first + BLOCK; i++) {
        const double *up = row(now, i - 1), *here = row(now, i), *down = row(now, i + 1);
        double *out = row(then, i);
        for (int j = 1; j < WIDTH - 1; j++) {
            double mean = 0.25 * (up[j] + down[j] + here[j - 1] + here[j + 1]);
            out[j] = here[j] + 0.95 * (mean - here[j]) / sqrt(1.0 + 1e-6 * mean * mean);
        }
    }
}

static void relax(void) {
    for (int i = 1; i <= rows; i += BLOCK) relax_block(i);
    double *swap = now;
    now = then;
    then = swap;
}

static void exchange_halo(void) {
    int up = rank > 0 ? rank - 1 : MPI_PROC_NULL, down = rank < size - 1 ? rank + 1 : MPI_PROC_NULL;
    MPI_Sendrecv(row(now, 1), WIDTH, MPI_DOUBLE, up, 0, row(now, rows + 1), WIDTH, MPI_DOUBLE, down, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(row(now, rows), WIDTH, MPI_DOUBLE, down, 1, row(now, 0), WIDTH, MPI_DOUBLE, up, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void step(void) {
    exchange_halo();
    relax();
}

static double sum_block(int first) {
    double sum = 0;
    for (int i = first; i < first + BLOCK; i++)
        for (int j = 1; j < WIDTH - 1; j++) sum += fabs(row(now, i)[j] - row(then, i)[j]);
    return sum;
}

/* Returns how much the plate still changes, summed over all ranks. Sets the longest elapsed time of all ranks, so that all
 * ranks stop after the same iteration although their clocks differ. */
static double residual(double elapsed_s, double *elapsed_max_s) {
    double mine[2] = {0, elapsed_s}, sum, all;
    for (int i = 1; i <= rows; i += BLOCK) mine[0] += sum_block(i);
    MPI_Allreduce(&mine[0], &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&mine[1], &all, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    *elapsed_max_s = all;
    return sum;
}

static void checkpoint(void) {
    double warmest = 0, *all = rank == 0 ? malloc(sizeof(double) * size) : NULL;
    struct timespec slow_disk = {0, 100 * 1000 * 1000};
    for (int j = 0; j < WIDTH; j++) warmest = fmax(warmest, row(now, rows / 2)[j]);
    MPI_Gather(&warmest, 1, MPI_DOUBLE, all, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    nanosleep(&slow_disk, NULL);
    free(all);
}

static long simulate(double seconds, long iterations_max, double *change) {
    double start = MPI_Wtime(), elapsed = 0;
    long iterations = 0;
    for (int check = 1; elapsed < seconds && iterations < iterations_max; check++) {
        for (int i = 0; i < ITERATIONS_PER_CHECK; i++, iterations++) step();
        *change = residual(MPI_Wtime() - start, &elapsed);
        if (check % CHECKS_PER_CHECKPOINT == 0) checkpoint();
    }
    return iterations;
}

static void heat(void) {
    size_t bytes = sizeof(double) * (rows + 2) * WIDTH;
    now = malloc(bytes);
    then = malloc(bytes);
    memset(now, 0, bytes);
    if (rank == 0)
        for (int j = 0; j < WIDTH; j++) row(now, 0)[j] = 100;
    memcpy(then, now, bytes);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    double seconds = argc > 1 ? atof(argv[1]) : 20, change = 0;
    long iterations_max = argc > 2 ? atol(argv[2]) : LONG_MAX;
    rows = rank == 0 ? 3 * ROWS_MIN : ROWS_MIN;
    heat();
    double start = MPI_Wtime();
    long iterations = simulate(seconds, iterations_max, &change);
    if (rank == 0)
        printf("stencil: %d ranks, %ld iterations in %.1f s, last change %.3g\n", size, iterations, MPI_Wtime() - start, change);
    free(now);
    free(then);
    MPI_Finalize();
    return 0;
}
