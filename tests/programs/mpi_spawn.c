/* Starts two more ranks of itself. The ranks of each MPI_COMM_WORLD send in a ring, and each of the first two ranks sends to one
 * of the new ranks. */
#include <mpi.h>
static void ring(void) {
	int rank, size;
	double out = 1, in;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Sendrecv(&out, 1, MPI_DOUBLE, (rank + 1) % size, 6, &in, 1, MPI_DOUBLE, (rank + size - 1) % size, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}
int main(int c, char **v) {
	int rank;
	double value = 1;
	MPI_Comm parent, other;
	MPI_Init(&c, &v);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_get_parent(&parent);
	other = parent;
	if (parent == MPI_COMM_NULL) MPI_Comm_spawn(v[0], MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other, MPI_ERRCODES_IGNORE);
	ring();
	if (parent != MPI_COMM_NULL) MPI_Recv(&value, 1, MPI_DOUBLE, rank, 5, other, MPI_STATUS_IGNORE);
	else if (rank < 2) MPI_Send(&value, 1, MPI_DOUBLE, rank, 5, other);
	MPI_Barrier(other);
	MPI_Comm_disconnect(&other);
	return MPI_Finalize();
}
