/* Counts its calls in a file that a test can read afterwards, whatever happens to the process, and then ends or fails in one of
 * the ways in which programs do. It is built with -DWITH_MPI and without, and with -finstrument-functions.
 *
 *     counting FAULT STEPS [WHO AT [PAUSE]]    the fault happens in rank WHO (default 0) after AT (default STEPS / 2) steps
 *
 * After PAUSE steps, rank 0 makes the file `waits` and waits until there is a file `go`.
 *
 * `calls.<rank>` has the number of calls of step() that have returned, as 64 bits. It is written through a mapping, so that it
 * survives a killed process. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef WITH_MPI
#include <mpi.h>
#endif

#define PLAIN __attribute__((no_instrument_function))
#define CALLED __attribute__((noinline))

static volatile uint64_t *done;
static int rank, size = 1;
static char **arguments;

/* A step takes about 20 microseconds, so that these calls never fill half of a ring. */
CALLED void step(void) { for (volatile int i = 0; i < 25000; i++); }
CALLED void in_thread(void) { usleep(1000); }
CALLED void after_exec(void) { step(); }
CALLED void late_1(void) { step(); }
CALLED void late_2(void) { step(); }
CALLED void late_3(void) { step(); }

/* The name is as long as those of nested templates in C++. */
#define TEN(x) x x x x x x x x x x
CALLED void late_long(void) __asm__("L_" TEN(TEN(TEN(TEN("nnnnnn")))));
CALLED void late_long(void) { step(); }

PLAIN static void one_step(void) { step(); ++*done; }

PLAIN static volatile uint64_t *counter(const char *name) {
    int file = open(name, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, 4096)) { perror(name); exit(99); }
    void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    return at;
}

static int calls_in_thread;

PLAIN static void *go_on(void *calls) {
    while (__atomic_load_n(&calls_in_thread, __ATOMIC_SEQ_CST) < *(int *)calls) {
        in_thread();
        __atomic_fetch_add(&calls_in_thread, 1, __ATOMIC_SEQ_CST);
    }
    return NULL;
}

/* The last thread calls this, after the main thread has ended. */
PLAIN static void *outlive(void *calls) {
    go_on(calls);
    puts("the thread is the last");
    return NULL;
}

/* All threads run at the same time, because the location of a thread that has ended is used again for the next one. */
static pthread_mutex_t all_are_there = PTHREAD_MUTEX_INITIALIZER;
static int there;

PLAIN static void *nothing(void *unused) {
    in_thread();
    __atomic_fetch_add(&there, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_lock(&all_are_there);
    pthread_mutex_unlock(&all_are_there);
    return unused;
}

PLAIN static void all_threads(int count) {
    pthread_t threads[64];
    int made = 0;
    there = 0;
    pthread_mutex_lock(&all_are_there);
    for (int i = 0; i < count; i++) made += !pthread_create(&threads[made], NULL, nothing, NULL);
    while (__atomic_load_n(&there, __ATOMIC_SEQ_CST) < made) usleep(100);
    pthread_mutex_unlock(&all_are_there);
    for (int i = 0; i < made; i++) pthread_join(threads[i], NULL);
}

PLAIN static void *raw_exit(void *unused) {
    in_thread();
    syscall(SYS_exit, 0);
    return unused;
}

PLAIN static void crash(int number) { (void)number; write(1, "handled\n", 8); _exit(6); }

/* The program truncates a file that it has mapped. */
PLAIN static void own_bus_error(void) {
    int file = open("own", O_RDWR | O_CREAT, 0600);
    if (ftruncate(file, 8192)) exit(98);
    volatile char *at = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (ftruncate(file, 0)) exit(98);
    at[5000] = 1;
    puts("not reached");
}

PLAIN static void wait_for(const char *name) { while (access(name, F_OK)) usleep(500); }

PLAIN static void fault(const char *name) {
    if (!strcmp(name, "kill")) raise(SIGKILL);
    if (!strcmp(name, "abort")) abort();
    if (!strcmp(name, "_exit")) _exit(3);
    if (!strcmp(name, "exit")) exit(3);
    if (!strcmp(name, "segv")) *(volatile int *)8 = 1;
    if (!strcmp(name, "bus")) own_bus_error();
    if (!strcmp(name, "bus-handled")) { signal(SIGBUS, crash); own_bus_error(); }
    if (!strcmp(name, "bus-sent")) raise(SIGBUS);
#ifdef WITH_MPI
    if (!strcmp(name, "mpi-abort")) MPI_Abort(MPI_COMM_WORLD, 4);
#endif
    if (!strcmp(name, "exec")) {
        fflush(stdout);
        execl("/proc/self/exe", arguments[0], "execed", "100", (char *)NULL);
    }
    if (!strcmp(name, "fork")) {
        fflush(stdout);
        pid_t child = fork();
        if (!child) {
            done = counter("calls.child");
            for (int i = 0; i < 2000; i++) one_step();
            all_threads(2);
            exit(0); /* this runs the handlers that the parent has registered */
        }
        for (int i = 0; i < 500; i++) one_step();
        int status;
        waitpid(child, &status, 0);
        printf("child %d\n", WEXITSTATUS(status));
    }
    if (!strcmp(name, "children")) {
        /* The children are measured as separate processes. */
        fflush(stdout);
        char command[4096];
        snprintf(command, sizeof command, "'%s' child 200; '%s' child 200", arguments[0], arguments[0]);
        printf("children %d\n", system(command));
    }
    if (!strcmp(name, "dlclose")) {
        char line[4096], path[4096] = "";
        FILE *maps = fopen("/proc/self/maps", "r");
        while (fgets(line, sizeof line, maps))
            if (strstr(line, "libscorep_substrate_ampere.so")) sscanf(strchr(line, '/'), "%4095[^\n]", path);
        fclose(maps);
        void *plugin = path[0] ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
        for (int i = 0; i < 4 && plugin; i++) dlclose(plugin);
        if (plugin) fclose(fopen("closed", "w"));
    }
    if (!strcmp(name, "close-all")) {
        for (int file = 2; file < 1024; file++) close(file);
        /* Code that used these descriptors before must not write to the new files. */
        for (int i = 0; i < 64; i++) {
            int own = open("mine", O_RDWR | O_CREAT | O_APPEND, 0600);
            if (write(own, "mine\n", 5) != 5) exit(97);
        }
        late_1(); late_2();
        all_threads(2);
        late_3();
    }
    if (!strcmp(name, "few-files")) {
        struct rlimit few = {8, 8};
        setrlimit(RLIMIT_NOFILE, &few);
        while (open("/dev/null", O_RDONLY) >= 0) {}
        late_1(); late_2(); late_3();
        all_threads(4);
    }
    if (!strcmp(name, "no-memory")) {
        struct rlimit now = {0, 0};
        getrlimit(RLIMIT_AS, &now);
        now.rlim_cur = 1;
        setrlimit(RLIMIT_AS, &now);
        size_t taken = 0;
        for (size_t bytes = 1 << 20; bytes >= 16; bytes /= 2) while (malloc(bytes)) taken += bytes;
        late_1(); late_2(); late_3(); late_long();
        (void)taken;
    }
    if (!strcmp(name, "raw-exit")) {
        /* This bypasses the C library, and leaves the thread without a stack. */
        size_t bytes = 1 << 20;
        void *stack = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        pthread_attr_t on_it;
        pthread_attr_init(&on_it);
        pthread_attr_setstack(&on_it, stack, bytes);
        pthread_t thread;
        pthread_create(&thread, &on_it, raw_exit, NULL);
        pthread_join(thread, NULL);
        munmap(stack, bytes);
    }
    if (!strcmp(name, "threads")) all_threads(40);
}

int main(int argc, char **argv) {
    arguments = argv;
    const char *name = argc > 1 ? argv[1] : "none";
    long steps = argc > 2 ? atol(argv[2]) : 1000;
    int who = argc > 3 ? atoi(argv[3]) : 0;
    long at = argc > 4 ? atol(argv[4]) : steps / 2;
    long pause = argc > 5 ? atol(argv[5]) : -1;
#ifdef WITH_MPI
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
#endif
    char file[64];
    snprintf(file, sizeof file, strcmp(name, "child") ? "calls.%d" : "calls.own.%d", rank);
    done = counter(strcmp(name, "execed") ? file : "calls.execed");
    for (long i = 0; i < steps; i++) {
        if (i == at && rank == who) fault(name);
        if (i == pause && rank == 0) { fclose(fopen("waits", "w")); wait_for("go"); }
        if (!strcmp(name, "execed")) after_exec();
        one_step();
#ifdef WITH_MPI
        int sum;
        if (i % 500 == 0) MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
#endif
    }
#ifdef WITH_MPI
    MPI_Finalize();
#endif
    if (rank == 0) printf("done %ld\n", steps);
    static int calls = 200, many_calls = 1000000;
    static pthread_t thread;
    if (!strcmp(name, "outlive")) {
        pthread_create(&thread, NULL, outlive, &calls);
        pthread_exit(NULL);
    }
    if (!strcmp(name, "running-threads")) {
        pthread_create(&thread, NULL, go_on, &many_calls);
        while (__atomic_load_n(&calls_in_thread, __ATOMIC_SEQ_CST) < 50) usleep(100);
    }
    return 0;
}
