/* Threads that leave several frames at once, or end inside of them. The program is instrumented and counts its own calls.
 *
 * frames MS    a signal handler repeatedly leaves the interrupted functions by siglongjmp
 * reuse N      N threads leave their functions like this and end; each is followed by a thread with 1000 calls of `later`
 * keys         destructors of thread keys, which were made after all others, make calls
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PLAIN __attribute__((no_instrument_function))
#define OWN __attribute__((noinline)) static

static volatile long calls;
static __thread sigjmp_buf before;
static volatile int may_jump, stop;
static pthread_t jumping;
static pthread_key_t key;

OWN void leaf(void) { __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED); }
OWN void twice(void) { leaf(); leaf(); }
OWN void some(int count) { for (int i = 0; i < count; i++) { leaf(); twice(); } }
OWN void later(void) { leaf(); }

PLAIN static void leave(int signal) {
    (void)signal;
    if (may_jump) {
        may_jump = 0;
        siglongjmp(before, 1);
    }
}

PLAIN static void *pound(void *unused) {
    for (uint32_t random = 12345; !stop;) {
        random = random * 1664525u + 1013904223u;
        for (volatile unsigned i = 0; i < 200 + (random >> 20); i++) {
        }
        pthread_kill(jumping, SIGUSR1);
    }
    return unused;
}

OWN void until_left(void) {
    if (!sigsetjmp(before, 1)) {
        may_jump = 1;
        for (int i = 0;; i++) {
            some(i & 63);
        }
    }
}

PLAIN static void frames(int milliseconds) {
    struct timespec begun, now;
    pthread_t pounder;
    jumping = pthread_self();
    some(1);
    pthread_create(&pounder, NULL, pound, NULL);
    clock_gettime(CLOCK_MONOTONIC, &begun);
    do {
        until_left();
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - begun.tv_sec) * 1000 + (now.tv_nsec - begun.tv_nsec) / 1000000 < milliseconds);
    stop = 1;
    pthread_join(pounder, NULL);
}

PLAIN static void *leaves_and_ends(void *unused) {
    if (!sigsetjmp(before, 1)) {
        may_jump = 1;
        for (;;) {
            leaf();
        }
    }
    return unused;
}

PLAIN static void *deeper(void *unused) {
    char room[3000]; /* the calls are deeper in the stack than those of the thread before */
    __asm__ volatile("" ::"r"(room) : "memory");
    for (int i = 0; i < 1000; i++) {
        later();
    }
    return unused;
}

PLAIN static void reuse(int threads) {
    uint32_t random = 1;
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        may_jump = 0;
        pthread_create(&thread, NULL, leaves_and_ends, NULL);
        while (!may_jump) {
            usleep(50);
        }
        random = random * 1664525u + 1013904223u;
        usleep(100 + (random >> 26));
        pthread_kill(thread, SIGUSR1);
        pthread_join(thread, NULL);
        pthread_create(&thread, NULL, deeper, NULL);
        pthread_join(thread, NULL);
    }
}

static void destroy(void *unused) { (void)unused; later(); }
static void *has_a_key(void *unused) {
    later();
    pthread_setspecific(key, &key);
    return unused;
}

PLAIN static void keys(void) {
    later();
    pthread_key_create(&key, destroy);
    for (int i = 0; i < 5; i++) {
        pthread_t thread;
        pthread_create(&thread, NULL, has_a_key, NULL);
        pthread_join(thread, NULL);
    }
}

PLAIN int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    int number = argc > 2 ? atoi(argv[2]) : 0;
    signal(SIGUSR1, leave);
    if (!strcmp(mode, "frames")) {
        frames(number);
    } else if (!strcmp(mode, "reuse")) {
        reuse(number);
    } else if (!strcmp(mode, "keys")) {
        keys();
    }
    printf("%ld\n", calls);
    return 7;
}
