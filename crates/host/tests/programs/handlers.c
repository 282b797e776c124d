/* Receives signals at arbitrary moments, even during events of the host. The handlers have events of their own, or jump out of
 * the code that they interrupted. Prints the number of calls. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#define PLAIN __attribute__((no_instrument_function))

static sigjmp_buf buffer;
static volatile long calls, handled;
static long jumps;

__attribute__((noinline)) static void counted(void) { calls++; }
__attribute__((noinline)) static void in_the_handler(void) { handled++; }
__attribute__((noinline)) static void afterwards(void) { calls++; }

PLAIN static void handles(int number) {
    (void)number;
    in_the_handler();
}
PLAIN static void jumps_out(int number) {
    (void)number;
    siglongjmp(buffer, 1);
}
PLAIN static void every(int microseconds, int first) {
    struct itimerval time = {{0, microseconds}, {0, first}};
    setitimer(ITIMER_REAL, &time, NULL);
}
PLAIN __attribute__((noinline)) static void work(void) {
    for (;;) counted();
}

PLAIN static void *first_in_a_handler(void *argument) {
    for (int i = 0; i < 5; i++) raise(SIGUSR1);
    return argument;
}

PLAIN int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    struct sigaction action = {0};
    counted();
    // "new": the first call of this function is in the handler.
    if (strcmp(what, "new")) in_the_handler();
    if (!strcmp(what, "thread")) {
        pthread_t thread;
        signal(SIGUSR1, handles);
        pthread_create(&thread, NULL, first_in_a_handler, NULL);
        pthread_join(thread, NULL);
    } else if (!strcmp(what, "jump")) {
        action.sa_handler = jumps_out;
        sigaction(SIGALRM, &action, NULL);
        for (int i = 0; i < 100; i++) {
            if (sigsetjmp(buffer, 1) == 0) {
                every(0, 500 + 37 * i % 100);
                work();
            }
            jumps++;
        }
        for (int i = 0; i < 1000; i++) afterwards();
    } else {
        action.sa_handler = handles;
        if (!strcmp(what, "alternate") || !strcmp(what, "new")) {
            stack_t own = {.ss_sp = malloc(65536), .ss_size = 65536};
            sigaltstack(&own, NULL);
            action.sa_flags = SA_ONSTACK;
        }
        sigaction(SIGALRM, &action, NULL);
        every(50, 50);
        while (handled < 3000) counted();
        every(0, 0);
    }
    printf("%ld\n", calls + handled);
    return 0;
}
