/* Ends without MPI_Finalize, in one of two ways. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Barrier(MPI_COMM_WORLD);
    if (argc > 1 && !strcmp(argv[1], "abort")) MPI_Abort(MPI_COMM_WORLD, 42);
    exit(0);
}
