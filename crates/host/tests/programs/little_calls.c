/* Calls a little MPI library (little_mpi.c), and prints the results. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

int MPI_Init(int *, char ***);
int MPI_Finalize(void);
int MPI_Barrier(int);
int PMPI_Barrier(int);
int MPI_Send(const void *, int, int, int, int, int);
int MPI_Bcast_c(void *, long, int, int, int) __attribute__((weak));

/* The address of a function in static data, and the same address at run time. */
int (*volatile in_data)(int) = MPI_Barrier;

int main(int argc, char **argv) {
	if (MPI_Init(&argc, &argv)) return 3;
	for (int i = 0; i < 3; i++) MPI_Barrier(1);
	PMPI_Barrier(1);
	in_data(1);
	int sent = MPI_Send("", 5, 0, 0, 0, 1);
	long value = 0;
	int has_count = MPI_Bcast_c != NULL;
	if (has_count) MPI_Bcast_c(&value, 1L << 40, 0, 0, 1);
	int is_same = dlsym(RTLD_DEFAULT, "MPI_Barrier") == (void *)in_data;
	printf("sent %d, count %d %ld, same %d, absent %d\n", sent, has_count, value, is_same, dlsym(RTLD_DEFAULT, "MPI_Nothing") == NULL);
	return MPI_Finalize();
}
