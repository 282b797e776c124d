/* Threads that send to and receive from the other rank at the same time; each completes the receives of its neighbour. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
enum { THREADS = 4, MESSAGES = 200 };
static int rank;
static MPI_Request receives[THREADS][MESSAGES];
static int received[THREADS][MESSAGES];
static pthread_barrier_t all;
static void *work(void *of) {
	int own = (int)(long)of, other = (own + 1) % THREADS, value = own;
	MPI_Request sends[MESSAGES];
	for (int i = 0; i < MESSAGES; i++) MPI_Irecv(&received[own][i], 1, MPI_INT, 1 - rank, own, MPI_COMM_WORLD, &receives[own][i]);
	pthread_barrier_wait(&all);
	for (int i = 0; i < MESSAGES; i++) MPI_Isend(&value, 1, MPI_INT, 1 - rank, own, MPI_COMM_WORLD, &sends[i]);
	for (int i = 0; i < MESSAGES; i++) MPI_Wait(&receives[other][i], MPI_STATUS_IGNORE);
	MPI_Waitall(MESSAGES, sends, MPI_STATUSES_IGNORE);
	return NULL;
}
int main(int c, char **v) {
	int provided;
	pthread_t threads[THREADS];
	MPI_Init_thread(&c, &v, MPI_THREAD_MULTIPLE, &provided);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	pthread_barrier_init(&all, NULL, THREADS);
	if (provided < MPI_THREAD_MULTIPLE) puts("no threads");
	else for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void *)i);
	for (int i = 0; i < THREADS && provided == MPI_THREAD_MULTIPLE; i++) pthread_join(threads[i], NULL);
	for (int t = 0; t < THREADS && provided == MPI_THREAD_MULTIPLE; t++)
		for (int i = 0; i < MESSAGES; i++) if (received[t][i] != t) puts("wrong");
	return MPI_Finalize();
}
