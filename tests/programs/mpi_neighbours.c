/* Blocking, non-blocking and persistent collectives among neighbours: on a line of ranks, and on a graph in which each rank sends
 * to the next two. A persistent one among all ranks comes last. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#if MPI_VERSION < 4
/* Open MPI 4 has these functions of MPI 4 under other names. */
#define MPI_Allreduce_init MPIX_Allreduce_init
#define MPI_Neighbor_allgather_init MPIX_Neighbor_allgather_init
#define MPI_Neighbor_allgatherv_init MPIX_Neighbor_allgatherv_init
#define MPI_Neighbor_alltoall_init MPIX_Neighbor_alltoall_init
#define MPI_Neighbor_alltoallv_init MPIX_Neighbor_alltoallv_init
#define MPI_Neighbor_alltoallw_init MPIX_Neighbor_alltoallw_init
int MPIX_Allreduce_init(const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm, MPI_Info, MPI_Request *);
int MPIX_Neighbor_allgather_init(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm, MPI_Info, MPI_Request *);
int MPIX_Neighbor_allgatherv_init(const void *, int, MPI_Datatype, void *, const int *, const int *, MPI_Datatype, MPI_Comm, MPI_Info, MPI_Request *);
int MPIX_Neighbor_alltoall_init(const void *, int, MPI_Datatype, void *, int, MPI_Datatype, MPI_Comm, MPI_Info, MPI_Request *);
int MPIX_Neighbor_alltoallv_init(const void *, const int *, const int *, MPI_Datatype, void *, const int *, const int *, MPI_Datatype, MPI_Comm, MPI_Info, MPI_Request *);
int MPIX_Neighbor_alltoallw_init(const void *, const int *, const MPI_Aint *, const MPI_Datatype *, void *, const int *, const MPI_Aint *, const MPI_Datatype *, MPI_Comm, MPI_Info, MPI_Request *);
#endif
enum { OPERATIONS = 5, TIMES = 3 };
static int fail(int line) { printf("failed at line %d\n", line); MPI_Abort(MPI_COMM_WORLD, 1); return 0; }
#define CHECK(what) ((what) || fail(__LINE__))
int main(int c, char **v) {
    int rank, size, flag, index, some, is_periodic = 0;
    MPI_Comm line, graph, copy;
    MPI_Request r[OPERATIONS], one;
    MPI_Status status;
    MPI_Init(&c, &v); MPI_Comm_rank(MPI_COMM_WORLD, &rank); MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &is_periodic, 0, &line);
    int from[2] = {(rank + size - 1) % size, (rank + size - 2) % size}, to[2] = {(rank + 1) % size, (rank + 2) % size};
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 2, from, MPI_UNWEIGHTED, 2, to, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph);
    int out[16], in[OPERATIONS][16], sizes[2] = {from[0] + 1, from[1] + 1}, places[2] = {0, 8}, sent[2] = {3, 4};
    MPI_Aint bytes[2] = {0, 8 * sizeof *out};
    MPI_Datatype types[2] = {MPI_INT, MPI_SHORT};
    for (int i = 0; i < 16; i++) out[i] = 100 * rank + i;
    for (int i = 0; i < TIMES; i++) {
        MPI_Neighbor_alltoall(out, 1, MPI_INT, in, 1, MPI_INT, line);
        MPI_Ineighbor_allgather(out, 1, MPI_INT, in, 1, MPI_INT, line, &one);
        MPI_Wait(&one, i ? &status : MPI_STATUS_IGNORE);
        CHECK(one == MPI_REQUEST_NULL && (rank == 0 || in[0][0] == 100 * (rank - 1)));
        MPI_Ineighbor_alltoall(out, 2, MPI_INT, in, 2, MPI_INT, line, &one);
        for (flag = 0; !flag;) MPI_Test(&one, &flag, MPI_STATUS_IGNORE);
        MPI_Ineighbor_allgatherv(out, rank + 1, MPI_INT, in[0], sizes, places, MPI_INT, graph, &r[0]);
        MPI_Ineighbor_alltoallv(out, sent, places, MPI_INT, in[1], sent, places, MPI_INT, graph, &r[1]);
        MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
        CHECK(in[0][8] == 100 * from[1] && in[1][2] == 100 * from[0] + 2 && in[1][8] == 100 * from[1] + 8);
        MPI_Ineighbor_alltoallw(out, sent, bytes, types, in, sent, bytes, types, graph, &one);
        for (flag = 0; !flag;) MPI_Request_get_status(one, &flag, &status);
        MPI_Wait(&one, &status);
        MPI_Ineighbor_alltoall(out, 5, MPI_INT, in, 5, MPI_INT, graph, &one);
        MPI_Waitany(1, &one, &index, &status);
        CHECK(index == 0 && in[0][5] == 100 * from[1] + 5);
        /* This communicator is freed before the operation completes. The next one, with other neighbours, may get its handle. */
        MPI_Comm_dup(i % 2 ? graph : line, &copy);
        MPI_Ineighbor_alltoall(out, 6, MPI_INT, in, 6, MPI_INT, copy, &one);
        MPI_Comm_free(&copy);
        MPI_Waitsome(1, &one, &some, &index, MPI_STATUSES_IGNORE);
    }
    MPI_Neighbor_allgather_init(out, 1, MPI_INT, in[0], 1, MPI_INT, graph, MPI_INFO_NULL, &r[0]);
    MPI_Neighbor_allgatherv_init(out, rank + 1, MPI_INT, in[1], sizes, places, MPI_INT, graph, MPI_INFO_NULL, &r[1]);
    MPI_Neighbor_alltoall_init(out, 2, MPI_INT, in[2], 2, MPI_INT, graph, MPI_INFO_NULL, &r[2]);
    MPI_Neighbor_alltoallv_init(out, sent, places, MPI_INT, in[3], sent, places, MPI_INT, graph, MPI_INFO_NULL, &r[3]);
    MPI_Neighbor_alltoallw_init(out, sent, bytes, types, in[4], sent, bytes, types, graph, MPI_INFO_NULL, &r[4]);
    for (int i = 0; i < TIMES; i++) {
        out[0] = 100 * rank + i;
        MPI_Startall(OPERATIONS, r);
        MPI_Waitall(OPERATIONS, r, MPI_STATUSES_IGNORE);
        CHECK(in[0][1] == 100 * from[1] + i && in[1][0] == 100 * from[0] + i && in[4][0] == 100 * from[0] + i);
    }
    for (int k = 0; k < OPERATIONS; k++) {
        MPI_Start(&r[k]);
        for (flag = 0; !flag;) MPI_Test(&r[k], &flag, &status);
        /* The request is inactive now. */
        MPI_Wait(&r[k], &status);
        MPI_Request_free(&r[k]);
    }
    MPI_Comm_free(&line); MPI_Comm_free(&graph);
    MPI_Allreduce_init(out, in, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD, MPI_INFO_NULL, &one);
    for (int i = 0; i < TIMES; i++) { MPI_Start(&one); MPI_Wait(&one, &status); }
    MPI_Request_free(&one);
    MPI_Finalize();
    return 0;
}
