/* Checks what a careless host would change: errno, and where a thread is cancelled. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PLAIN __attribute__((no_instrument_function))

static volatile int go;
__attribute__((noinline)) static int first_of_all(void) { return errno; }
__attribute__((noinline)) static int another(void) { return errno; }
__attribute__((noinline)) static int of_the_thread(int x) { return x + go; }

/* The cancellation request is pending when the host is first entered in this thread. */
PLAIN static void *is_cancelled(void *argument) {
    while (!go) continue;
    of_the_thread(1);
    pause();
    return argument;
}

PLAIN int main(int argc, char **argv) {
    int first = -1, second = -1;
    void *result = NULL;
    pthread_t thread;
    if (argc > 1 && !strcmp(argv[1], "errno")) {
        errno = EDOM;
        first = first_of_all();
        errno = ERANGE;
        second = another();
        printf("errno %s\n", first == EDOM && second == ERANGE ? "stays" : "changes");
        return 0;
    }
    if (argc > 1) first_of_all();
    pthread_create(&thread, NULL, is_cancelled, NULL);
    pthread_cancel(thread);
    go = 1;
    pthread_join(thread, &result);
    printf("%s\n", result == PTHREAD_CANCELED ? "cancelled, as asked" : "not cancelled");
    another();
    return 0;
}
