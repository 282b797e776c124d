/* Does the actions in its arguments one after the other; each prints its result. main.rs builds this program in many ways. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef WITH_MPI
#include <mpi.h>
#endif
#ifndef RTLD_DEEPBIND
#define RTLD_DEEPBIND 0
#endif
#ifndef __cplusplus
#define C
#else
#define C extern "C"
#endif

#ifdef OWN_HOOKS
static long hooked;
C __attribute__((no_instrument_function)) void __cyg_profile_func_enter(void *f, void *c) { (void)f; (void)c; hooked++; }
C __attribute__((no_instrument_function)) void __cyg_profile_func_exit(void *f, void *c) { (void)f; (void)c; hooked++; }
#endif
#ifdef WEAK
C int MPI_Init(int *, char ***) __attribute__((weak));
C int MPI_Bcast_c(void *, long, void *, int, void *) __attribute__((weak));
C void mpi_init_(int *) __attribute__((weak));
C int roctxRangePushA(const char *) __attribute__((weak));
C void __cyg_profile_func_exit(void *, void *) __attribute__((weak));
#endif

static int rank;
static volatile double sink;
static char *const no_environment[] = {0};
extern char **environ;

__attribute__((noinline)) static void work(int n) { for (int i = 0; i < n * 10000; i++) sink += i; }
__attribute__((noinline)) static int deeper(int n) { if (n <= 0) { work(1); return 1; } return deeper(n - 1) + 1; }
static void *in_thread(void *word) { work(*(int *)word); return word; }

static void threads(int n) {
    pthread_t all[16];
    int amount = 3, started = 0;
    if (n > 16) n = 16;
    for (; started < n; started++) if (pthread_create(&all[started], 0, in_thread, &amount)) break;
    for (int i = 0; i < started; i++) pthread_join(all[i], 0);
    printf("threads %d\n", started);
}

static void wait_for(pid_t child, const char *what) {
    int status = 0;
    if (child < 0) { printf("%s: no child %d\n", what, errno); return; }
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    printf("%s: %d\n", what, WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status));
}

static int caught;
static void on_signal(int number) { caught = number; }

static void names(const char *library) {
    static const char *const all[] = {"MPI_Init", "PMPI_Init", "MPI_Bcast_c", "mpi_init_", "MPI_Session_init", "roctxRangePushA", "nvtxRangePushA", "__cyg_profile_func_enter", "cos"};
    void *handle = *library ? dlopen(library, RTLD_NOW | RTLD_LOCAL) : RTLD_DEFAULT;
    if (*library && !handle) { printf("no %s\n", library); return; }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) printf("%d", dlsym(handle, all[i]) != 0);
    printf(" of %s\n", library);
    if (*library) dlclose(handle);
}

static void deep(void) {
    void *handle = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    if (!handle) { puts("no deep libm"); return; }
    double (*cosine)(double);
    *(void **)&cosine = dlsym(handle, "cos");
    printf("cos %.3f\n", cosine(1.0));
    dlclose(handle);
}

static void surroundings(void) {
    struct rlimit limit;
    sigset_t mask;
    struct sigaction action;
    int number = open("/dev/null", O_RDONLY), blocked = 0, ignored = 0;
    printf("descriptor %d\n", number);
    close(number);
    sigprocmask(SIG_BLOCK, 0, &mask);
    for (int i = 1; i < 65; i++) {
        blocked += sigismember(&mask, i) == 1;
        ignored += sigaction(i, 0, &action) == 0 && action.sa_handler != SIG_DFL;
    }
    getrlimit(RLIMIT_NOFILE, &limit);
    printf("signals %d %d files %ld\n", blocked, ignored, (long)limit.rlim_cur);
}

#ifdef WITH_MPI
static void mpi(const char *what, int argc, char **argv) {
    int value = rank == 0 ? 42 : 0, sum = 0, size = 0;
    if (!strcmp(what, "init")) {
        MPI_Init(&argc, &argv);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_size(MPI_COMM_WORLD, &size);
        if (rank) { fflush(stdout); freopen("/dev/null", "w", stdout); freopen("/dev/null", "w", stderr); }
        printf("ranks %d\n", size);
    } else if (!strcmp(what, "bcast")) {
        printf("bcast %d ", MPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD));
        printf("%d\n", value);
    } else if (!strcmp(what, "pbcast")) {
        printf("pbcast %d ", PMPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD));
        printf("%d\n", value);
    } else if (!strcmp(what, "allreduce")) {
        value = rank + 1;
        printf("allreduce %d ", MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
        printf("%d\n", sum);
    } else if (!strcmp(what, "dlsym")) {
        int (*barrier)(MPI_Comm);
        *(void **)&barrier = dlsym(RTLD_DEFAULT, "MPI_Barrier");
        printf("barrier %d\n", barrier ? barrier(MPI_COMM_WORLD) : -1);
    } else if (!strcmp(what, "finalize")) {
        printf("finalize %d\n", MPI_Finalize());
    }
}
#endif

int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        char *word = argv[i], *after = strchr(word, ':');
        int n = after ? atoi(after + 1) : 0;
        size_t length = after ? (size_t)(after++ - word) : strlen(word);
        if (!after) after = word + length;
#define IS(text) (length == strlen(text) && !strncmp(word, text, length))
        if (IS("out")) puts(after);
        else if (IS("err")) fprintf(stderr, "%s\n", after);
        else if (IS("work")) { work(n); puts("worked"); }
        else if (IS("deeper")) printf("deeper %d\n", deeper(n));
        else if (IS("threads")) threads(n);
        else if (IS("names")) names(after);
        else if (IS("deep")) deep();
        else if (IS("surroundings")) surroundings();
        else if (IS("malloc")) { void *p = malloc((size_t)n << 10); if (p) memset(p, 1, (size_t)n << 10); printf("malloc %d\n", p != 0); free(p); }
        else if (IS("mlockall")) printf("mlockall %d\n", mlockall(MCL_CURRENT | MCL_FUTURE) ? errno : 0);
        else if (IS("catch")) { signal(n, on_signal); raise(n); printf("caught %d\n", caught); }
        else if (IS("raise")) { fflush(0); raise(n); }
        else if (IS("exit")) exit(n);
        else if (IS("_exit")) { fflush(0); _exit(n); }
        else if (IS("abort")) { fflush(0); abort(); }
        else if (IS("fork")) {
            fflush(0);
            pid_t child = fork();
            if (!child) { work(n); puts("in child"); fflush(0); _exit(n % 100); }
            wait_for(child, "fork");
        } else if (IS("vfork")) {
            char *const words[] = {argv[0], (char *)"out:after vfork", (char *)"exit:9", 0};
            fflush(0);
            pid_t child = vfork();
            if (!child) { execve("/proc/self/exe", words, environ); _exit(126); }
            wait_for(child, "vfork");
        } else if (IS("empty")) {
            char *const words[] = {argv[0], (char *)"out:without environment", (char *)"work:3", (char *)"exit:8", 0};
            fflush(0);
            pid_t child = fork();
            if (!child) { execve("/proc/self/exe", words, no_environment); _exit(126); }
            wait_for(child, "empty");
        } else if (IS("exec")) {
            char *words[64];
            int count = 0;
            words[count++] = argv[0];
            for (int j = i + 1; j < argc && count < 63; j++) words[count++] = argv[j];
            words[count] = 0;
            fflush(0);
            execve("/proc/self/exe", words, n ? no_environment : environ);
            puts("no exec");
        }
#ifdef WEAK
        else if (IS("weak")) printf("weak %d%d%d%d%d\n", MPI_Init != 0, MPI_Bcast_c != 0, mpi_init_ != 0, roctxRangePushA != 0, __cyg_profile_func_exit != 0);
#endif
#ifdef OWN_HOOKS
        else if (IS("hooks")) { long before = hooked; deeper(3); printf("hooks %ld\n", hooked - before); }
#endif
#ifdef WITH_MPI
        else if (IS("mpi")) mpi(after, argc, argv);
#endif
        else printf("no %s\n", word);
        fflush(stdout);
    }
    return argc % 7;
}
