/* One rank is slow before each kind of operation, in a function of its own, and a barrier follows: the others wait for it,
 * directly or through a rank that waits itself. With BUSY, the slow rank computes instead of sleeping. */
#include <mpi.h>
#include <time.h>
#if MPI_VERSION < 4
/* Open MPI 4 has this function of MPI 4 under another name. */
#define MPI_Neighbor_alltoallv_init MPIX_Neighbor_alltoallv_init
int MPIX_Neighbor_alltoallv_init(const void *, const int *, const int *, MPI_Datatype, void *, const int *, const int *, MPI_Datatype, MPI_Comm, MPI_Info, MPI_Request *);
#endif
static void delay(void) __attribute__((no_instrument_function, noinline));
#ifdef BUSY
static void delay(void) {
    struct timespec begun, now;
    volatile double sum = 0;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    do {
        for (int i = 0; i < 50000; i++) sum += 1.0 / (1 + i);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - begun.tv_sec) * 1000000000L + now.tv_nsec - begun.tv_nsec < 400000000);
}
#else
static void delay(void) { struct timespec t = {0, 400000000}; while (nanosleep(&t, &t)) {} }
#endif
/* The largest cause of waiting. */
void slow_to_send(void) { delay(); delay(); }
void slow_to_receive(void) { delay(); }
void slow_to_barrier(void) { delay(); }
void slow_to_allreduce(void) { delay(); }
void slow_to_bcast(void) { delay(); }
void slow_to_reduce(void) { delay(); }
void slow_in_chain(void) { delay(); }
void slow_in_ring(void) { delay(); }
void slow_master(void) { delay(); }
void slow_to_be_found(void) { delay(); }
void slow_in_part(void) { delay(); }
void slow_to_start(void) { delay(); }
void slow_to_fence(void) { delay(); }
void slow_to_post(void) { delay(); }
void slow_to_complete(void) { delay(); }
void slow_neighbour(void) { delay(); }
void slow_in_graph(void) { delay(); }
void slow_in_old_graph(void) { delay(); }
void slow_to_exchange(void) { delay(); }
void slow_to_restart(void) { delay(); }
void slow_to_allgatherv(void) { delay(); }
void slow_to_alltoallw(void) { delay(); }
static int rank, size, number, all[8];
/* On a busy machine, other ranks may leave a barrier late. In this pause they start to wait, before a rank becomes slow. */
static void until_others_wait(void) __attribute__((no_instrument_function, noinline));
static void until_others_wait(void) { struct timespec t = {0, 50000000}; while (nanosleep(&t, &t)) {} }
#define SLOW(function) (until_others_wait(), function())
static void together(void) __attribute__((no_instrument_function));
static void together(void) { MPI_Barrier(MPI_COMM_WORLD); }
int main(int c, char **v) {
    MPI_Comm world = MPI_COMM_WORLD, part, line, graph, old_graph;
    MPI_Win window;
    MPI_Group everyone, others;
    int other;
    int periodic = 0, previous, next, weight = 1, is_complete = 0;
    /* Rank 0 has the neighbour 1, rank 1 has 0 and 2, and rank 2 has 1. */
    int ends[3] = {1, 3, 4}, neighbours[4] = {1, 0, 2, 1}, sent[3] = {0};
    int counts[3] = {1, 1, 1}, offsets[3] = {0, 1, 2}, bytes[3] = {0, sizeof *all, 2 * sizeof *all};
    MPI_Datatype types[3] = {MPI_INT, MPI_INT, MPI_INT};
    MPI_Request request;
    MPI_Init(&c, &v); MPI_Comm_rank(world, &rank); MPI_Comm_size(world, &size);
    MPI_Comm_split(world, rank == 2, rank, &part);
    MPI_Cart_create(world, 1, &size, &periodic, 0, &line);
    MPI_Cart_shift(line, 0, 1, &previous, &next);
    MPI_Dist_graph_create_adjacent(world, rank > 0, &previous, &weight, rank < size - 1, &next, &weight, MPI_INFO_NULL, 0, &graph);
    MPI_Graph_create(world, size, ends, neighbours, 0, &old_graph);
    other = rank == 0;
    MPI_Comm_group(world, &everyone);
    MPI_Group_incl(everyone, 1, &other, &others);
    MPI_Win_create(all, sizeof all, sizeof *all, MPI_INFO_NULL, world, &window);
    together();
    if (rank == 0) { SLOW(slow_to_send); MPI_Send(&number, 1, MPI_INT, 1, 1, world); }
    if (rank == 1) MPI_Recv(&number, 1, MPI_INT, 0, 1, world, MPI_STATUS_IGNORE);
    together();
    if (rank == 0) { SLOW(slow_to_receive); MPI_Recv(&number, 1, MPI_INT, 1, 3, world, MPI_STATUS_IGNORE); }
    if (rank == 1) MPI_Ssend(&number, 1, MPI_INT, 0, 3, world);
    together();
    if (rank == 2) SLOW(slow_to_barrier);
    together();
    if (rank == 1) SLOW(slow_to_allreduce);
    MPI_Allreduce(&number, all, 1, MPI_INT, MPI_SUM, world);
    together();
    if (rank == 2) SLOW(slow_to_bcast);
    MPI_Bcast(&number, 1, MPI_INT, 2, world);
    together();
    if (rank == 1) SLOW(slow_to_reduce);
    MPI_Reduce(&number, all, 1, MPI_INT, MPI_SUM, 0, world);
    together();
    if (rank == 0) SLOW(slow_in_chain);
    if (rank > 0) MPI_Recv(&number, 1, MPI_INT, rank - 1, 4, world, MPI_STATUS_IGNORE);
    if (rank < size - 1) MPI_Send(&number, 1, MPI_INT, rank + 1, 4, world);
    together();
    if (rank == 1) SLOW(slow_in_ring);
    MPI_Sendrecv(&number, 1, MPI_INT, (rank + 1) % size, 5, all, 1, MPI_INT, (rank + size - 1) % size, 5, world, MPI_STATUS_IGNORE);
    together();
    if (rank == 0) for (int i = 1; i < size; i++) { if (i == 1) SLOW(slow_master); MPI_Send(&number, 1, MPI_INT, i, 6, world); }
    else MPI_Recv(&number, 1, MPI_INT, MPI_ANY_SOURCE, 6, world, MPI_STATUS_IGNORE);
    together();
    if (rank == 2) { SLOW(slow_to_be_found); MPI_Send(&number, 1, MPI_INT, 1, 7, world); }
    if (rank == 1) {
        MPI_Status status;
        MPI_Probe(2, 7, world, &status);
        MPI_Recv(&number, 1, MPI_INT, 2, 7, world, MPI_STATUS_IGNORE);
    }
    together();
    if (rank == 0) SLOW(slow_in_part);
    MPI_Allreduce(&number, all, 1, MPI_INT, MPI_SUM, part);
    together();
    if (rank == 1) SLOW(slow_to_start);
    MPI_Iallreduce(&number, all, 1, MPI_INT, MPI_SUM, world, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    together();
    if (rank == 1) SLOW(slow_to_fence);
    MPI_Win_fence(0, window);
    together();
    if (rank == 0) { SLOW(slow_to_post); MPI_Win_post(others, 0, window); MPI_Win_wait(window); }
    if (rank == 1) { MPI_Win_start(others, 0, window); MPI_Win_complete(window); }
    together();
    if (rank == 0) { MPI_Win_post(others, 0, window); MPI_Win_wait(window); }
    if (rank == 1) { MPI_Win_start(others, 0, window); SLOW(slow_to_complete); MPI_Win_complete(window); }
    together();
    if (rank == 0) { MPI_Win_post(others, 0, window); while (!is_complete) MPI_Win_test(window, &is_complete); }
    if (rank == 1) { MPI_Win_start(others, 0, window); MPI_Win_complete(window); }
    MPI_Win_free(&window);
    together();
    if (rank == 2) SLOW(slow_to_exchange);
    MPI_Ineighbor_alltoall(sent, 1, MPI_INT, all, 1, MPI_INT, line, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    together();
    MPI_Neighbor_alltoallv_init(&number, counts, offsets, MPI_INT, all, counts, offsets, MPI_INT, graph, MPI_INFO_NULL, &request);
    for (int i = 0; i < 2; i++) {
        if (rank == 0 && i == 1) SLOW(slow_to_restart);
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Request_free(&request);
    together();
    if (rank == 2) SLOW(slow_neighbour);
    MPI_Neighbor_allgather(&number, 1, MPI_INT, all, 1, MPI_INT, line);
    together();
    if (rank == 0) SLOW(slow_in_graph);
    MPI_Neighbor_alltoallv(&number, counts, offsets, MPI_INT, all, counts, offsets, MPI_INT, graph);
    together();
    if (rank == 1) SLOW(slow_in_old_graph);
    MPI_Neighbor_allgather(&number, 1, MPI_INT, all, 1, MPI_INT, old_graph);
    together();
    if (rank == 2) SLOW(slow_to_allgatherv);
    MPI_Allgatherv(&number, 1, MPI_INT, all, counts, offsets, MPI_INT, world);
    together();
    if (rank == 0) SLOW(slow_to_alltoallw);
    MPI_Alltoallw(sent, counts, bytes, types, all, counts, bytes, types, world);
    together();
    MPI_Finalize();
    return 0;
}
