/* MPI from several threads at once, where the library allows it; the same message pattern in every thread. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>

enum { THREADS = 4, ROUNDS = 200 };

static int rank, size, errors;

static void *ring(void *argument) {
    int tag = (int)(long)argument, next = (rank + 1) % size, previous = (rank + size - 1) % size;
    for (int i = 0; i < ROUNDS; i++) {
        int out = rank * 1000 + i, in = -1;
        MPI_Sendrecv(&out, 1, MPI_INT, next, tag, &in, 1, MPI_INT, previous, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (in != previous * 1000 + i) __atomic_add_fetch(&errors, 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

int main(int argc, char **argv) {
    int provided, sum = 0;
    pthread_t thread[THREADS];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (provided == MPI_THREAD_MULTIPLE) {
        for (long i = 0; i < THREADS; i++) pthread_create(&thread[i], NULL, ring, (void *)i);
        for (long i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    }
    MPI_Reduce(&errors, &sum, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("errors %d threads %d\n", sum, provided == MPI_THREAD_MULTIPLE);
    MPI_Finalize();
    return 0;
}
