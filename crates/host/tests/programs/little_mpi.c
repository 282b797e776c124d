/* A library with a few of MPI's functions, as MPI libraries have them. With -DWITH_COUNT there is MPI_Bcast_c; with -DWITH_IFUNC,
 * MPI_Barrier is chosen when it is bound. With -DWORLD=HANDLE it does not look like MPICH: its MPI_COMM_WORLD has this value, and
 * it faults for any other. With -DWITH_ABI it has MPI's standard binary interface; with -DWITH_WORLD, Open MPI's MPI_COMM_WORLD.
 * With -DSIZE=COUNT, there are COUNT ranks. */
#include <stddef.h>
#include <stdint.h>

#ifndef WORLD
#define WORLD 0x44000000
int MPIR_Dup_fn(void) { return 0; }
#endif

#ifndef SIZE
#define SIZE 1
#endif

static int up, down;
#define MPI(name, ...)                                                           \
	int PMPI_##name(__VA_ARGS__);                                                \
	int MPI_##name(__VA_ARGS__) __attribute__((weak, alias("PMPI_" #name)));     \
	int PMPI_##name(__VA_ARGS__)

MPI(Init, int *argc, char ***argv) { (void)argc, (void)argv; up = 1; return 0; }
MPI(Finalize, void) { down = 1; return 0; }
MPI(Initialized, int *flag) { *flag = up; return 0; }
MPI(Finalized, int *flag) { *flag = down; return 0; }
static void check(void *communicator) { if ((uintptr_t)communicator != WORLD) __builtin_trap(); }
MPI(Comm_rank, void *communicator, int *rank) { check(communicator); *rank = 0; return 0; }
MPI(Comm_size, void *communicator, int *size) { check(communicator); *size = SIZE; return 0; }
MPI(Comm_get_parent, void **parent) { *parent = (void *)(uintptr_t)(WORLD == 0x44000000 ? 0x04000000 : WORLD - 1); return 0; }
MPI(Comm_remote_size, void *communicator, int *size) { check(communicator); *size = 1; return 0; }
#ifdef WITH_ABI
MPI(Abi_get_version, int *major, int *minor) { *major = 1; *minor = 0; return 0; }
#endif
MPI(Send, const void *what, int count, int type, int to, int tag, int communicator) {
	(void)what, (void)type, (void)to, (void)tag, (void)communicator;
	return count;
}
#ifdef WITH_COUNT
MPI(Bcast_c, void *what, long count, int type, int root, int communicator) {
	(void)type, (void)root, (void)communicator;
	*(long *)what = count;
	return 0;
}
#endif
#ifdef WITH_IFUNC
static int barrier(int communicator) { (void)communicator; return 0; }
static void *choose(void) { return barrier; }
int MPI_Barrier(int) __attribute__((ifunc("choose")));
int PMPI_Barrier(int communicator) { return barrier(communicator); }
#else
MPI(Barrier, int communicator) { (void)communicator; return 0; }
#endif
