/* A module that uses the little MPI library. */
int MPI_Init(int *, char ***);
int MPI_Finalize(void);
int MPI_Barrier(int);
int PMPI_Barrier(int);

int one_step(void) {
	MPI_Barrier(1);
	return 7;
}

int work(void) {
	MPI_Init(0, 0);
	one_step();
	PMPI_Barrier(1);
	MPI_Barrier(1);
	return MPI_Finalize();
}
