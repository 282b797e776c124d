// An exception thrown by a user's reduction passes through MPI_Reduce_local and the wrapper around it. Another reduction calls
// MPI and returns.
#include <mpi.h>
#include <cstdio>

static void throws(void *, void *, int *, MPI_Datatype *) { throw 1; }
static void asks(void *, void *, int *, MPI_Datatype *) {
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
}

// Its call is deeper in the stack than those of main.
__attribute__((noinline)) static int deeper() {
    volatile char room[3000];
    int size = 0;
    room[0] = 0;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size + room[0];
}

int main(int argc, char **argv) {
    MPI_Op op, other;
    int in = 1, out = 2, size = 0;
    MPI_Init(&argc, &argv);
    MPI_Op_create(throws, 1, &op);
    try {
        MPI_Reduce_local(&in, &out, 1, MPI_INT, op);
    } catch (int) {
        std::printf("caught, then ");
    }
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Op_create(asks, 1, &other);
    MPI_Reduce_local(&in, &out, 1, MPI_INT, other);
    try {
        MPI_Reduce_local(&in, &out, 1, MPI_INT, op);
    } catch (int) {
        size = deeper();
    }
    std::printf("%d\n", size);
    MPI_Finalize();
    return 0;
}
