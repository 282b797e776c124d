/* Ends without MPI_Finalize, in one of three ways. */
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static void aborts(int number) {
    (void)number;
    MPI_Abort(MPI_COMM_WORLD, 42);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Barrier(MPI_COMM_WORLD);
    if (argc > 1 && !strcmp(argv[1], "abort")) MPI_Abort(MPI_COMM_WORLD, 42);
    if (argc > 1 && !strcmp(argv[1], "abort in a handler")) signal(SIGUSR1, aborts), raise(SIGUSR1);
    exit(0);
}
