/* backtrace() from inside an MPI call reaches main through the wrapper. */
#define _GNU_SOURCE
#include <execinfo.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static int found;

static void takes_backtrace(void *in, void *out, int *count, MPI_Datatype *type) {
    void *frames[64];
    int n = backtrace(frames, 64);
    char **names = backtrace_symbols(frames, n);
    for (int i = 0; i < n; i++) found |= strstr(names[i], "(main+") != NULL;
    (void)in, (void)out, (void)count, (void)type;
}

int main(int argc, char **argv) {
    MPI_Op op;
    int in = 1, out = 2;
    MPI_Init(&argc, &argv);
    MPI_Op_create(takes_backtrace, 1, &op);
    MPI_Reduce_local(&in, &out, 1, MPI_INT, op);
    printf("main %s\n", found ? "found" : "lost");
    MPI_Finalize();
    return 0;
}
