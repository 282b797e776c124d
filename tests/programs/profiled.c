/* Functions that Score-P finds by its own marks, by those of the compiler, only by unwinding, and only by samples. */
#include <mpi.h>
#include <scorep/SCOREP_User.h>

static volatile double sink;
#define PLAIN __attribute__((noinline)) static

PLAIN void spin(int n) {
    double sum = 0;
    for (int i = 1; i < n; i++)
        sum += 1.0 / i;
    sink = sum;
}
PLAIN void helper(int n) {
    spin(n);
    spin(n);
}
PLAIN void marked(int n) {
    SCOREP_USER_REGION_DEFINE(region);
    SCOREP_USER_REGION_BEGIN(region, "marked", SCOREP_USER_REGION_TYPE_FUNCTION);
    spin(n);
    helper(n / 4);
    SCOREP_USER_REGION_END(region);
}
PLAIN void between(int n) {
    helper(n);
    marked(n);
    spin(n);
    marked(n / 2);
}
PLAIN int deep(int levels, int n) {
    if (levels > 0)
        return deep(levels - 1, n) + 1;
    spin(n);
    return sink > 0;
}
#ifdef _OPENMP
PLAIN long fibonacci(int n) {
    long a, b;
    if (n < 12)
        return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
#ifdef TASKS
#pragma omp task shared(a)
#endif
    {
        a = fibonacci(n - 1);
        marked(50000);
    }
#ifdef TASKS
#pragma omp task shared(b)
#endif
    b = fibonacci(n - 2);
#ifdef TASKS
#pragma omp taskwait
#endif
    return a + b;
}
PLAIN void threads(void) {
#pragma omp parallel num_threads(2)
    {
#pragma omp for
        for (int i = 0; i < 8; i++)
            between(100000);
#pragma omp single
        fibonacci(17);
    }
}
#endif

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    for (int i = 0; i < 10; i++) {
        SCOREP_USER_REGION_DEFINE(region);
        SCOREP_USER_REGION_BEGIN(region, "round", SCOREP_USER_REGION_TYPE_LOOP);
        between(1000000);
        deep(20, 1000000);
#ifdef _OPENMP
        threads();
#endif
        MPI_Barrier(MPI_COMM_WORLD);
        SCOREP_USER_REGION_END(region);
#ifdef SWITCHED
        SCOREP_RECORDING_OFF();
        between(200000);
        SCOREP_RECORDING_ON();
#endif
        spin(1000000);
    }
    MPI_Finalize();
    return 0;
}
