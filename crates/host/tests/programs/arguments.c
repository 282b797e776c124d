/* Functions with many arguments, whose results show whether every one of them arrived. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, size, errors;
#define CHECK(c) do { if (!(c)) { errors++; fprintf(stderr, "rank %d: %s is false\n", rank, #c); } } while (0)

__attribute__((noinline)) static void sendrecv(void) {
    int next = (rank + 1) % size, previous = (rank + size - 1) % size, in = -1, out = rank * 10;
    MPI_Status status;
    MPI_Sendrecv(&out, 1, MPI_INT, next, 5, &in, 1, MPI_INT, previous, 5, MPI_COMM_WORLD, &status);
    CHECK(in == previous * 10 && status.MPI_SOURCE == previous && status.MPI_TAG == 5);
}

static void alltoallw(void) {
    int *out = malloc(sizeof(int) * size), *in = calloc(size, sizeof(int)), *counts = malloc(sizeof(int) * size),
        *places = malloc(sizeof(int) * size);
    MPI_Datatype *types = malloc(sizeof(MPI_Datatype) * size);
    for (int i = 0; i < size; i++) out[i] = rank * 100 + i, counts[i] = 1, places[i] = i * sizeof(int), types[i] = MPI_INT;
    MPI_Request request;
    MPI_Ialltoallw(out, counts, places, types, in, counts, places, types, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < size; i++) CHECK(in[i] == i * 100 + rank);
    free(out), free(in), free(counts), free(places), free(types);
}

static void neighbors(void) {
    int dims[1] = {size}, periods[1] = {1}, out[2] = {rank * 2, rank * 2 + 1}, in[2] = {-1, -1}, counts[2] = {1, 1};
    MPI_Aint places[2] = {0, sizeof(int)};
    MPI_Datatype types[2] = {MPI_INT, MPI_INT};
    MPI_Comm ring;
    MPI_Request request;
    MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &ring);
    MPI_Ineighbor_alltoallw(out, counts, places, types, in, counts, places, types, ring, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    int previous = (rank + size - 1) % size, next = (rank + 1) % size;
    if (size > 2) CHECK(in[0] == previous * 2 + 1 && in[1] == next * 2);
    MPI_Comm_free(&ring);
}

static void accumulate(void) {
    int *memory, add = rank + 1, old = -1;
    MPI_Win window;
    MPI_Request request;
    MPI_Win_allocate(sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    *memory = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
    MPI_Rget_accumulate(&add, 1, MPI_INT, &old, 1, MPI_INT, 0, 0, 1, MPI_INT, MPI_SUM, window, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Win_unlock(0, window);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(old >= 0);
    if (rank == 0) {
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
        CHECK(*memory == size * (size + 1) / 2);
        MPI_Win_unlock(0, window);
    }
    MPI_Win_free(&window);
}

static void darray(void) {
    int sizes[2] = {4 * size, 4}, distributions[2] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_BLOCK},
        arguments[2] = {MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG}, processes[2] = {size, 1}, bytes;
    MPI_Datatype type;
    MPI_Type_create_darray(size, rank, 2, sizes, distributions, arguments, processes, MPI_ORDER_C, MPI_DOUBLE, &type);
    MPI_Type_size(type, &bytes);
    CHECK(bytes == 4 * 4 * 8);
    MPI_Type_free(&type);
}

int main(int argc, char **argv) {
    int provided, sum = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < 3; i++) sendrecv();
    alltoallw();
    neighbors();
    accumulate();
    darray();
    MPI_Allreduce(&errors, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("errors %d of %d ranks\n", sum, size);
    MPI_Finalize();
    return sum != 0;
}
