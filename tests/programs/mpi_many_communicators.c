/* Rank 0 sends rank 1 two messages in each of many communicators that exist at once. */
#include <mpi.h>
enum { MANY = 300 };
int main(int c, char **v) {
	static MPI_Comm all[MANY];
	int rank, value = 7;
	MPI_Init(&c, &v); MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	for (int i = 0; i < MANY; i++) MPI_Comm_dup(MPI_COMM_WORLD, &all[i]);
	for (int k = 0; k < 2; k++)
		for (int i = 0; i < MANY; i++)
			if (rank == 0) MPI_Send(&value, 1, MPI_INT, 1, 1, all[i]);
			else MPI_Recv(&value, 1, MPI_INT, 0, 1, all[i], MPI_STATUS_IGNORE);
	for (int i = 0; i < MANY; i++) MPI_Comm_free(&all[i]);
	return MPI_Finalize();
}
