/* Uses functions for the first time in a callback of dl_iterate_phdr, which holds the loader's lock, and at the same time in
 * another thread. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#define PLAIN __attribute__((no_instrument_function))

static volatile int walking;
static int (*function)(int);
__attribute__((noinline)) static int known(int x) { return x + walking; }
__attribute__((noinline)) static int of_the_callback(int x) { return x + walking; }

PLAIN static int visit(struct dl_phdr_info *info, size_t size, void *data) {
    (void)info, (void)size, (void)data;
    walking = 1;
    usleep(100000);
    of_the_callback(1);
    return 1;
}
PLAIN static void *meanwhile(void *argument) {
    known(1);
    while (!walking) continue;
    function(1);
    return argument;
}

PLAIN int main(int argc, char **argv) {
    pthread_t thread;
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (!library) return 1;
    known(1);
    function = (int (*)(int))dlsym(library, "of_the_library");
    pthread_create(&thread, NULL, meanwhile, NULL);
    dl_iterate_phdr(visit, NULL);
    pthread_join(thread, NULL);
    puts("done");
    return 0;
}
