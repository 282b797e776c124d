/* Calls instrumented functions, static ones too, and does one of several things that a host has to survive. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile long sink;
static jmp_buf buffer;

__attribute__((noinline)) static long leaf(long i) {
    return sink += i;
}
__attribute__((noinline)) long middle(long n) {
    for (long i = 0; i < n; i++) leaf(i);
    return sink;
}
__attribute__((noinline)) static void jumps(void) {
    leaf(1);
    longjmp(buffer, 1);
}
__attribute__((noinline)) static void deep(long n) {
    if (n > 0) deep(n - 1);
    sink++;
}
static void *worker(void *argument) {
    middle((long)argument);
    return NULL;
}
static void *leaves_frames_open(void *argument) {
    leaf(1);
    pthread_exit(argument);
}
__attribute__((noinline)) static void only_in_the_handler(void) {
    sink++;
}
/* Waits until the main thread has ended: from then on the kernel does not provide the program's path. */
__attribute__((no_instrument_function)) static void *late(void *argument) {
    char path[8];
    for (int i = 0; i < 1000 && readlink("/proc/self/exe", path, sizeof path) > 0; i++) usleep(1000);
    only_in_the_handler();
    return argument;
}
static void handler(int number) {
    (void)number;
    leaf(1);
    only_in_the_handler();
}
static void exits(int number) {
    (void)number;
    exit(0);
}
__attribute__((constructor)) static void before_main(void) {
    leaf(1);
}
__attribute__((destructor)) static void after_main(void) {
    leaf(1);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    middle(3);
    if (!strcmp(what, "threads")) {
        pthread_t thread[2];
        for (long i = 0; i < 2; i++) pthread_create(&thread[i], NULL, worker, (void *)(i + 1));
        for (long i = 0; i < 2; i++) pthread_join(thread[i], NULL);
        pthread_create(&thread[0], NULL, leaves_frames_open, NULL);
        pthread_join(thread[0], NULL);
    } else if (!strcmp(what, "jump")) {
        if (setjmp(buffer) == 0) jumps();
        leaf(2);
    } else if (!strcmp(what, "deep")) {
        deep(70000);
        leaf(2);
    } else if (!strcmp(what, "fork")) {
        pid_t child = fork();
        if (child == 0) {
            middle(5);
            exit(0);
        }
        waitpid(child, NULL, 0);
        leaf(2);
    } else if (!strcmp(what, "exec")) {
        pid_t child = fork();
        if (child == 0) {
            execl(argv[0], argv[0], (char *)NULL);
            _exit(1);
        }
        waitpid(child, NULL, 0);
    } else if (!strcmp(what, "signal")) {
        signal(SIGUSR1, handler);
        raise(SIGUSR1);
        leaf(2);
    } else if (!strcmp(what, "exit")) {
        exit(0);
    } else if (!strcmp(what, "exit_in_handler")) {
        signal(SIGUSR1, exits);
        raise(SIGUSR1);
    } else if (!strcmp(what, "pthread_exit")) {
        pthread_t thread;
        pthread_create(&thread, NULL, worker, (void *)2);
        pthread_exit(NULL);
    } else if (!strcmp(what, "late")) {
        pthread_t thread;
        pthread_create(&thread, NULL, late, NULL);
        pthread_exit(NULL);
    } else if (!strcmp(what, "crowd")) {
        for (int round = 0; round < 30; round++) {
            pthread_t thread[10];
            for (int i = 0; i < 10; i++) pthread_create(&thread[i], NULL, i % 2 ? worker : leaves_frames_open, (void *)2);
            for (int i = 0; i < 10; i++) pthread_join(thread[i], NULL);
        }
    } else if (!strcmp(what, "ending")) {
        /* Threads that end while the process does. */
        for (long i = 0; i < 50; i++) {
            pthread_t thread;
            pthread_create(&thread, NULL, worker, (void *)(i * 200));
            pthread_detach(thread);
        }
    } else if (!strcmp(what, "running")) {
        /* A thread that is still working when the process ends. */
        pthread_t thread;
        pthread_create(&thread, NULL, worker, (void *)1000000000000);
        usleep(50000);
    }
    printf("done %s\n", what);
    return 0;
}
