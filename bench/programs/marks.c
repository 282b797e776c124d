/* Measures a mark, which is one push or pop of a Kokkos region; the name is copied afresh each time, as real programs do. Prints
 * nanoseconds per mark. Usage: marks [REGIONS [MARKS_PER_SECOND]] */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return 1e9 * time.tv_sec + time.tv_nsec;
}

int main(int count, char **words)
{
    const char *path = getenv("KOKKOS_TOOLS_LIBS");
    void *library = path && *path ? dlopen(path, RTLD_NOW | RTLD_GLOBAL) : NULL;
    void (*volatile push)(const char *) = library ? dlsym(library, "kokkosp_push_profile_region") : NULL;
    void (*volatile pop)(void) = library ? dlsym(library, "kokkosp_pop_profile_region") : NULL;
    long regions = count > 1 ? atol(words[1]) : 2000000;
    double rate = count > 2 ? atof(words[2]) : 0, spent = 0;
    for (long i = 0; i < regions; i += 100) {
        double begun = now();
        for (int j = 0; j < 100; j++) {
            char name[48] = "Solver::apply_boundary_conditions";
            if (push)
                push(name);
            if (pop)
                pop();
        }
        spent += now() - begun;
        /* 100 regions are 200 marks */
        while (rate && now() - begun < 1e9 * 200 / rate)
            ;
    }
    printf("%.3f\n", spent / regions / 2);
    return 0;
}
