/* Another tool that is preloaded and counts calls, as Darshan does. */
#include <stdio.h>

int PMPI_Barrier(int);
static int count;

int MPI_Barrier(int communicator) {
	count++;
	return PMPI_Barrier(communicator);
}

__attribute__((destructor)) static void end(void) { printf("tool %d\n", count); }
