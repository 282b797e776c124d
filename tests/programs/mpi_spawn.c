/* Starts two more ranks of itself, JOBS times in turn. The ranks of each MPI_COMM_WORLD send in a ring, each of the first two
 * ranks sends to one of the new ranks and gets an answer, and the ranks of both programs together send in a ring. */
#include <mpi.h>
#ifndef JOBS
#define JOBS 1
#endif
static void ring(MPI_Comm all, int tag) {
	int rank, size;
	double out = 1, in;
	MPI_Comm_rank(all, &rank);
	MPI_Comm_size(all, &size);
	MPI_Sendrecv(&out, 1, MPI_DOUBLE, (rank + 1) % size, tag, &in, 1, MPI_DOUBLE, (rank + size - 1) % size, tag, all, MPI_STATUS_IGNORE);
}
static void talk(MPI_Comm other, int is_new) {
	int rank;
	double value = 1;
	MPI_Comm both;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	if (is_new) {
		MPI_Recv(&value, 1, MPI_DOUBLE, rank, 5, other, MPI_STATUS_IGNORE);
		MPI_Send(&value, 1, MPI_DOUBLE, rank, 4, other);
	} else if (rank < 2) {
		MPI_Send(&value, 1, MPI_DOUBLE, rank, 5, other);
		MPI_Recv(&value, 1, MPI_DOUBLE, rank, 4, other, MPI_STATUS_IGNORE);
	}
	MPI_Barrier(other);
	MPI_Intercomm_merge(other, is_new, &both);
	ring(both, 7);
	MPI_Comm_free(&both);
	MPI_Comm_disconnect(&other);
}
int main(int c, char **v) {
	MPI_Comm other;
	MPI_Init(&c, &v);
	MPI_Comm_get_parent(&other);
	ring(MPI_COMM_WORLD, 6);
	if (other != MPI_COMM_NULL) talk(other, 1);
	else for (int job = 0; job < JOBS; job++) {
		MPI_Comm_spawn(v[0], MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &other, MPI_ERRCODES_IGNORE);
		talk(other, 0);
	}
	return MPI_Finalize();
}
