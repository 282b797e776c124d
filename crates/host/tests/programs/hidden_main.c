/* Loads a module that uses MPI, as an interpreter would: the MPI library is not added to the global scope. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv) {
    void *module = dlopen(argc > 1 ? argv[1] : "", RTLD_NOW | RTLD_LOCAL);
    if (!module) return 1;
    int (*use_mpi)(void) = (int (*)(void))dlsym(module, "use_mpi");
    printf("%d\n", use_mpi());
    return 0;
}
