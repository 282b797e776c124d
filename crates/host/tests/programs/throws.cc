// An exception thrown by a user's reduction passes through MPI_Reduce_local and the wrapper around it.
#include <mpi.h>
#include <cstdio>

static void throws(void *, void *, int *, MPI_Datatype *) { throw 1; }

int main(int argc, char **argv) {
    MPI_Op op;
    int in = 1, out = 2, size = 0;
    MPI_Init(&argc, &argv);
    MPI_Op_create(throws, 1, &op);
    try {
        MPI_Reduce_local(&in, &out, 1, MPI_INT, op);
    } catch (int) {
        std::printf("caught, then ");
    }
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    std::printf("%d\n", size);
    MPI_Finalize();
    return 0;
}
