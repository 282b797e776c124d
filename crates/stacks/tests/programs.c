/* The programs that the tests sample: `programs NAME`. Functions that are not static have names in every build. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

volatile double result;
volatile char *keep;

double cpu(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

/* If the CPU is absent or not allowed, the thread stays where it is. */
void run_on(int cpu) {
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET(cpu, &only);
    sched_setaffinity(0, sizeof only, &only);
}

__attribute__((noipa)) void work(double seconds) {
    double end = cpu() + seconds;
    while (cpu() < end)
        for (int i = 1; i < 20000; i++) result += sqrt(i);
}

__attribute__((noipa)) void other(double seconds) {
    double end = cpu() + seconds;
    while (cpu() < end)
        for (int i = 1; i < 20000; i++) result += sqrt(i);
}

/* Each call takes `bytes` of the stack. */
__attribute__((noipa)) void deep(int depth, int bytes, double seconds) {
    char *space = alloca(bytes);
    memset(space, depth, bytes);
    keep = space;
    if (depth == 0) work(seconds);
    else deep(depth - 1, bytes, seconds);
    result += space[bytes / 2];
}

/* A frame that is aligned more than the stack: its address is not a register plus an offset. */
__attribute__((noipa)) void aligned(double seconds) {
    char space[256] __attribute__((aligned(128)));
    memset(space, 1, sizeof space);
    keep = space;
    work(seconds);
    result += space[7];
}

/* Both of these are inlined. */
static inline __attribute__((always_inline)) void innermost(void) {
    for (int i = 1; i < 20000; i++) result += sqrt(i);
}
static inline __attribute__((always_inline)) void between(double seconds) {
    double end = cpu() + seconds;
    while (cpu() < end) innermost();
}
__attribute__((noipa)) void around(double seconds) { between(seconds); result += 1; }

void *thread(void *seconds) {
    work(*(double *)seconds);
    return NULL;
}

pthread_barrier_t go;
void *waiting(void *seconds) {
    pthread_barrier_wait(&go);
    work(*(double *)seconds);
    return NULL;
}

void *starting(void *seconds) {
    pthread_t threads[10];
    for (int i = 0; i < 10; i++, usleep(300)) pthread_create(&threads[i], NULL, thread, seconds);
    for (int i = 0; i < 10; i++) pthread_join(threads[i], NULL);
    return NULL;
}

void on_signal(int number) {
    (void)number;
    other(0.1);
    result += 1;
}

/* Works in short pieces. */
void *switching(void *pieces) {
    for (int i = 0; i < *(int *)pieces; i++, usleep(200)) work(0.0005);
    return NULL;
}

double cpu_of_process(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

/* Four threads that are switched often, and 50 that live for less than a millisecond; prints the CPU seconds. */
void switched(void) {
    int many = 300, one = 1;
    pthread_t threads[4], brief;
    double before = cpu_of_process();
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, switching, &many);
    for (int i = 0; i < 50; i++) {
        pthread_create(&brief, NULL, switching, &one);
        pthread_join(brief, NULL);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    printf("%.9f\n", cpu_of_process() - before);
    fflush(stdout);
}

sigjmp_buf before;
void jump(int number) {
    (void)number;
    siglongjmp(before, 1);
}

ucontext_t main_context, coroutine_context;
void coroutine(void) {
    for (;;) {
        other(0.02);
        swapcontext(&coroutine_context, &main_context);
    }
}

void on_other_stack(int on_it) {
    stack_t stack = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = on_it ? SA_ONSTACK : 0};
    sigaltstack(&stack, NULL);
    sigaction(SIGUSR1, &action, NULL);
    for (int i = 0; i < 2; i++) {
        work(0.05);
        raise(SIGUSR1);
    }
}

int main(int count, char **arguments) {
    const char *what = count > 1 ? arguments[1] : "";
    double seconds = 0.2;
    if (!strcmp(what, "work")) work(seconds);
    else if (!strcmp(what, "two")) { work(0.3); other(0.1); }
    else if (!strcmp(what, "moves")) { run_on(0); work(0.3); run_on(1); other(0.1); }
    else if (!strcmp(what, "deep")) deep(30, 64, seconds);
    else if (!strcmp(what, "deeper")) deep(30, 6000, seconds);
    else if (!strcmp(what, "aligned")) aligned(seconds);
    else if (!strcmp(what, "inlined")) around(seconds);
    else if (!strcmp(what, "at_once")) return 7;
    else if (!strcmp(what, "signal")) on_other_stack(0);
    else if (!strcmp(what, "other_stack")) on_other_stack(1);
    else if (!strcmp(what, "threads")) {
        pthread_t threads[3];
        for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, thread, &seconds);
        for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    } else if (!strcmp(what, "already")) {
        pthread_t threads[4];
        seconds = 0.1;
        pthread_barrier_init(&go, NULL, 4);
        for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, waiting, &seconds);
        puts("");
        fflush(stdout);
        getchar();
        pthread_barrier_wait(&go);
        pthread_create(&threads[3], NULL, thread, &seconds);
        for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
        if (fork() == 0) other(seconds);
        else wait(NULL);
    } else if (!strcmp(what, "switched")) {
        for (int i = 0; i < 3; i++) {
            printf(".");
            fflush(stdout);
            if (read(0, &count, 1) < 1) break;
            switched();
        }
    } else if (!strcmp(what, "starting")) {
        pthread_t threads[4];
        double none = 0;
        seconds = 0.05;
        pthread_barrier_init(&go, NULL, 201);
        for (int i = 0; i < 200; i++) pthread_create(&threads[0], NULL, waiting, &none);
        puts("");
        fflush(stdout);
        for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, starting, &seconds);
        for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
        pthread_barrier_wait(&go);
    } else if (!strcmp(what, "fork")) {
        if (fork() == 0) {
            other(seconds);
            execl(arguments[0], "programs", "work", (char *)NULL);
        }
        wait(NULL);
        deep(3, 64, seconds);
    } else if (!strcmp(what, "loaded")) {
        work(0.05);
        void (*loaded)(double) = (void (*)(double))dlsym(dlopen(arguments[2], RTLD_NOW), "loaded");
        loaded(seconds);
        result += 1;
    } else if (!strcmp(what, "jump")) {
        struct sigaction action = {.sa_handler = jump};
        sigaction(SIGUSR1, &action, NULL);
        for (volatile int i = 0; i < 20; i++)
            if (sigsetjmp(before, 1) == 0) { other(0.01); raise(SIGUSR1); }
            else work(0.01);
    } else if (!strcmp(what, "coroutine")) {
        getcontext(&coroutine_context);
        coroutine_context.uc_stack.ss_sp = malloc(1 << 16);
        coroutine_context.uc_stack.ss_size = 1 << 16;
        makecontext(&coroutine_context, coroutine, 0);
        for (int i = 0; i < 5; i++) { work(0.02); swapcontext(&main_context, &coroutine_context); }
    }
    result += 1;
    return 0;
}
