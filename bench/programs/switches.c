// Threads that are switched often. "pair ROUNDS WORK": two threads on one CPU wake each other through pipes; one adds WORK
// numbers in each round. Prints the CPU time of the process. "sleepers PROCESSES SECONDS": processes that wake a thousand times a
// second.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int there[2], back[2];

static void *answer(void *unused) {
    char byte;
    while (read(there[0], &byte, 1) == 1 && write(back[1], &byte, 1) == 1) {}
    return NULL;
}

__attribute__((noinline)) static void work(long numbers) {
    volatile double sum = 0;
    for (long i = 0; i < numbers; i++) sum += i;
}

static int pair(long rounds, long numbers) {
    cpu_set_t cpu;
    CPU_ZERO(&cpu);
    CPU_SET(sched_getcpu(), &cpu);
    pthread_t other;
    if (sched_setaffinity(0, sizeof cpu, &cpu) || pipe(there) || pipe(back)) return 1;
    if (pthread_create(&other, NULL, answer, NULL)) return 1;
    char byte = 0;
    for (long i = 0; i < rounds; i++) {
        work(numbers);
        if (write(there[1], &byte, 1) != 1 || read(back[0], &byte, 1) != 1) return 1;
    }
    close(there[1]);
    pthread_join(other, NULL);
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    printf("%.6f\n", used.ru_utime.tv_sec + used.ru_stime.tv_sec + 1e-6 * (used.ru_utime.tv_usec + used.ru_stime.tv_usec));
    return 0;
}

static void sleeper(long seconds) {
    prctl(PR_SET_TIMERSLACK, 1000UL);
    struct timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    for (long i = 0; i < 1000 * seconds; i++) {
        next.tv_nsec += 1000000;
        if (next.tv_nsec >= 1000000000) next.tv_sec++, next.tv_nsec -= 1000000000;
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
        work(1000);
    }
}

int main(int count, char **words) {
    if (count != 4) return 2;
    long first = atol(words[2]), second = atol(words[3]);
    if (!strcmp(words[1], "pair")) return pair(first, second);
    for (long i = 0; i < first; i++)
        if (fork() == 0) return sleeper(second), 0;
    while (wait(NULL) > 0) {}
    return 0;
}
