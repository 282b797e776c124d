/* Measures the nanoseconds of an MPI call that does next to nothing. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    const int calls = 20000000;
    int rank, sum = 0;
    MPI_Init(&argc, &argv);
    double begun = MPI_Wtime();
    for (int call = 0; call < calls; call++) {
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        sum += rank;
    }
    double seconds = MPI_Wtime() - begun;
    MPI_Finalize();
    printf("%g %d\n", seconds * 1e9 / calls, sum);
    return 0;
}
