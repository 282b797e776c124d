/* Measures the nanoseconds of an MPI_Send of 8 bytes whose receive has been started: the median of batches. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define BATCH 1000
#define BATCHES 1000

static int compare(const void *a, const void *b)
{
    double first = *(const double *)a, second = *(const double *)b;
    return (first > second) - (first < second);
}

int main(int argc, char **argv)
{
    static double sent, received[BATCH], seconds[BATCHES];
    static MPI_Request requests[BATCH];
    MPI_Init(&argc, &argv);
    for (int batch = 0; batch < BATCHES; batch++) {
        for (int i = 0; i < BATCH; i++)
            MPI_Irecv(&received[i], 8, MPI_BYTE, 0, 0, MPI_COMM_SELF, &requests[i]);
        double begun = MPI_Wtime();
        for (int i = 0; i < BATCH; i++)
            MPI_Send(&sent, 8, MPI_BYTE, 0, 0, MPI_COMM_SELF);
        seconds[batch] = MPI_Wtime() - begun;
        MPI_Waitall(BATCH, requests, MPI_STATUSES_IGNORE);
    }
    MPI_Finalize();
    qsort(seconds, BATCHES, sizeof seconds[0], compare);
    printf("%g\n", seconds[BATCHES / 2] * 1e9 / BATCH);
    return 0;
}
