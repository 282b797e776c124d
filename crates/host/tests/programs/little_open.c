/* Opens one object. Usage: little_open handle|module|deepbind|threads|namespace PATH */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int barrier(int);
static const char *path;

/* Calls MPI's functions through a handle of its library. */
static int by_handle(int mode) {
	void *mpi = dlopen(path, mode);
	if (!mpi) return puts(dlerror()), 1;
	int (*init)(int *, char ***) = (int (*)(int *, char ***))dlsym(mpi, "MPI_Init");
	const char *error = dlerror();
	if (error) return puts(error), 1;
	init(0, 0);
	for (int i = 0; i < 3; i++) ((barrier *)dlsym(mpi, i ? "MPI_Barrier" : "PMPI_Barrier"))(1);
	int is_absent = dlsym(mpi, "MPI_Ibarrier") == NULL;
	printf("absent %d %s\n", is_absent, strstr(dlerror(), "undefined symbol: MPI_Ibarrier") ? "said" : "not said");
	printf("default %d\n", dlsym(RTLD_DEFAULT, "MPI_Barrier") != NULL);
	return ((int (*)(void))dlsym(mpi, "MPI_Finalize"))();
}

/* Calls a function of a module that is linked with MPI. */
static int by_module(int mode) {
	void *module = dlopen(path, mode);
	if (!module) return puts(dlerror()), 1;
	printf("%d\n", ((int (*)(void))dlsym(module, "work"))());
	return 0;
}

static void *loop(void *failures) {
	for (int i = 0; i < 300; i++) {
		void *module = dlopen(path, i & 1 ? RTLD_NOW : RTLD_LAZY);
		int (*work)(void) = module ? (int (*)(void))dlsym(module, "one_step") : NULL;
		if (!work || work() != 7) ++*(int *)failures;
		if (module) dlclose(module);
	}
	return NULL;
}

static int by_threads(void) {
	pthread_t threads[4];
	int failures[4] = {0};
	for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, loop, &failures[i]);
	for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
	printf("failures %d\n", failures[0] + failures[1] + failures[2] + failures[3]);
	return 0;
}

static int by_namespace(void) {
	void *module = dlmopen(LM_ID_NEWLM, path, RTLD_NOW);
	if (!module) return puts(dlerror()), 1;
	printf("%d\n", ((int (*)(void))dlsym(module, "work"))());
	return 0;
}

int main(int argc, char **argv) {
	if (argc < 3) return 2;
	path = argv[2];
	if (!strcmp(argv[1], "handle")) return by_handle(RTLD_NOW | RTLD_LOCAL);
	if (!strcmp(argv[1], "module")) return by_module(RTLD_LAZY);
	if (!strcmp(argv[1], "deepbind")) return by_module(RTLD_NOW | RTLD_DEEPBIND);
	if (!strcmp(argv[1], "threads")) return by_threads();
	return by_namespace();
}
