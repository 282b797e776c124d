/* 100,000 open receives of rank 1 from rank 0, an array of receives of which few are complete at a time, and partitioned messages
 * if MPI has them. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
enum { MANY = 100000, SOME = 200, PARTS = 4 };
int main(int c, char **v) {
	int rank, size, value = 7;
	MPI_Init(&c, &v); MPI_Comm_rank(MPI_COMM_WORLD, &rank); MPI_Comm_size(MPI_COMM_WORLD, &size);
	int next = (rank + 1) % size, before = (rank + size - 1) % size;
	int *in = calloc(MANY, sizeof *in);
	MPI_Request *requests = malloc(MANY * sizeof *requests);
	for (int i = 0; i < MANY && rank == 1; i++) MPI_Irecv(&in[i], 1, MPI_INT, before, 1, MPI_COMM_WORLD, &requests[i]);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int i = 0; i < MANY && rank == 0; i++) MPI_Send(&value, 1, MPI_INT, next, 1, MPI_COMM_WORLD);
	if (rank == 1) MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE);
	for (int i = 0; i < MANY && rank == 1; i++) if (in[i] != value) puts("wrong");
	if (rank == 1) {
		int at, count, indices[SOME], left = SOME;
		for (int i = 0; i < SOME; i++) MPI_Irecv(&in[i], 1, MPI_INT, before, 5, MPI_COMM_WORLD, &requests[i]);
		for (; left > SOME / 2; left--) MPI_Waitany(SOME, requests, &at, MPI_STATUS_IGNORE);
		for (; left > SOME / 4; left -= count) MPI_Waitsome(SOME, requests, &count, indices, MPI_STATUSES_IGNORE);
		for (int flag = 0; !flag;) MPI_Testall(SOME, requests, &flag, MPI_STATUSES_IGNORE);
	}
	for (int i = 0; i < SOME && rank == 0; i++) MPI_Send(&value, 1, MPI_INT, next, 5, MPI_COMM_WORLD);
#if MPI_VERSION >= 4
	double parts[PARTS] = {0}, others[PARTS];
	MPI_Psend_init(parts, PARTS, 1, MPI_DOUBLE, next, 2, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
	MPI_Precv_init(others, PARTS, 1, MPI_DOUBLE, before, 2, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[1]);
	for (int i = 0; i < 3; i++) {
		MPI_Startall(2, requests);
		for (int k = 0; k < PARTS; k++) MPI_Pready(k, requests[0]);
		MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
	}
	MPI_Request_free(&requests[0]); MPI_Request_free(&requests[1]);
	MPI_Send_c(parts, 2, MPI_DOUBLE, next, 3, MPI_COMM_WORLD);
	MPI_Recv_c(others, 2, MPI_DOUBLE, before, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	/* The receiving part of this call is not recorded. */
	MPI_Isendrecv(parts, 3, MPI_DOUBLE, next, 4, others, 3, MPI_DOUBLE, before, 4, MPI_COMM_WORLD, &requests[0]);
	MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
	MPI_Barrier_init(MPI_COMM_WORLD, MPI_INFO_NULL, &requests[0]);
	for (int i = 0; i < 2; i++) { MPI_Start(&requests[0]); MPI_Wait(&requests[0], MPI_STATUS_IGNORE); }
	MPI_Request_free(&requests[0]);
#endif
	return MPI_Finalize();
}
