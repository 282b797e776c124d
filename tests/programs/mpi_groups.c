/* Messages and collectives between two groups of ranks: 0 and 1, and the others in reverse order. */
#include <mpi.h>
#define SIZE 5
static int rank, size, out[64], in[64], ones[SIZE] = {1, 1, 1, 1, 1}, counts[SIZE], places[SIZE] = {0, 8, 16, 24, 32};
/* Each rank of one group sends to rank 0 of the other group, by each kind of call. Then the groups change roles. */
static void messages(MPI_Comm between, int own) {
	MPI_Request requests[SIZE], persistent;
	MPI_Message message;
	MPI_Status status;
	int number;
	for (int way = 0; way < 2; way++) {
		int sends = way == (rank < 2), others = rank < 2 ? size - 2 : 2;
		if (sends) {
			MPI_Send(out, 1 + own, MPI_INT, 0, 1, between);
			MPI_Isend(out, 2, MPI_INT, 0, 2, between, requests);
			MPI_Wait(requests, MPI_STATUS_IGNORE);
			MPI_Send_init(out, 3, MPI_INT, 0, 3, between, &persistent);
			MPI_Start(&persistent);
			MPI_Wait(&persistent, MPI_STATUS_IGNORE);
			MPI_Request_free(&persistent);
			MPI_Send(out, 4, MPI_INT, 0, 4, between);
			MPI_Send(out, 5, MPI_INT, MPI_PROC_NULL, 5, between);
		} else if (own == 0) {
			for (int i = 0; i < others; i++) MPI_Recv(in, 64, MPI_INT, MPI_ANY_SOURCE, 1, between, i ? &status : MPI_STATUS_IGNORE);
			for (int i = 0; i < others; i++) MPI_Irecv(in + 8 * i, 8, MPI_INT, i, 2, between, requests + i);
			MPI_Waitall(others, requests, MPI_STATUSES_IGNORE);
			MPI_Recv_init(in, 8, MPI_INT, MPI_ANY_SOURCE, 3, between, &persistent);
			for (int i = 0; i < others; i++) { MPI_Start(&persistent); MPI_Wait(&persistent, MPI_STATUS_IGNORE); }
			MPI_Request_free(&persistent);
			for (int i = 0; i < others; i++) {
				MPI_Mprobe(MPI_ANY_SOURCE, 4, between, &message, &status);
				if (i) MPI_Mrecv(in, 8, MPI_INT, &message, MPI_STATUS_IGNORE);
				else { MPI_Imrecv(in, 8, MPI_INT, &message, requests); MPI_Wait(requests, MPI_STATUS_IGNORE); }
			}
		}
	}
	MPI_Sendrecv(out, 1, MPI_INT, own < 2 ? own : MPI_PROC_NULL, 6, in, 8, MPI_INT, own < 2 ? own : MPI_PROC_NULL, 6, between, MPI_STATUS_IGNORE);
}
/* `root` is what this rank passes as the root, which is rank 1 of the first group. Arguments that MPI ignores have invalid
 * values. */
static void collectives(MPI_Comm between, int root) {
	MPI_Request request;
	void *nothing = 0;
	int is_root = root == MPI_ROOT, is_other = root >= 0, parts = is_root ? 4 : -1;
	MPI_Datatype to = is_root ? MPI_INT : MPI_DATATYPE_NULL, from = is_other ? MPI_INT : MPI_DATATYPE_NULL;
	int sent = is_other ? 4 : -1;
	for (int i = 0; i < SIZE; i++) counts[i] = 1 + i;
	MPI_Barrier(between);
	MPI_Allreduce(out, in, 3, MPI_INT, MPI_SUM, between);
	MPI_Allgather(out, 2, MPI_INT, in, 2, MPI_INT, between);
	MPI_Alltoall(out, 2, MPI_INT, in, 2, MPI_INT, between);
	MPI_Bcast(is_root || is_other ? out : nothing, is_root || is_other ? 8 : 0, MPI_INT, root, between);
	MPI_Gather(is_other ? out : nothing, sent, from, is_root ? in : nothing, parts, to, root, between);
	MPI_Gatherv(is_other ? out : nothing, is_other ? counts[0] : -1, from, is_root ? in : nothing, is_root ? ones : nothing, is_root ? places : nothing, to, root, between);
	MPI_Scatter(is_root ? out : nothing, parts, to, is_other ? in : nothing, sent, from, root, between);
	MPI_Reduce(out, is_root ? in : nothing, 4, MPI_INT, MPI_SUM, root, between);
	MPI_Ibarrier(between, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	MPI_Ibcast(out, 8, MPI_INT, root, between, &request);
	MPI_Wait(&request, MPI_STATUS_IGNORE);
	for (int i = 0; i < SIZE; i++) counts[i] = 6 / (rank < 2 ? 2 : size - 2);
	MPI_Reduce_scatter(out, in, counts, MPI_INT, MPI_SUM, between);
	MPI_Reduce_scatter_block(out, in, counts[0], MPI_INT, MPI_SUM, between);
}
int main(int c, char **v) {
	MPI_Comm half, between, twice, merged;
	int own;
	MPI_Init(&c, &v);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	MPI_Comm_split(MPI_COMM_WORLD, rank < 2, rank < 2 ? rank : -rank, &half);
	MPI_Comm_rank(half, &own);
	MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, rank < 2 ? size - 1 : 0, 9, &between);
	messages(between, own);
	collectives(between, rank == 1 ? MPI_ROOT : rank == 0 ? MPI_PROC_NULL : 1);
	MPI_Comm_dup(between, &twice);
	MPI_Barrier(twice);
	MPI_Comm_free(&twice);
	MPI_Intercomm_merge(between, rank < 2, &merged);
	MPI_Barrier(merged);
	MPI_Comm_free(&between);
	return MPI_Finalize();
}
