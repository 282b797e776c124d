/* A preloaded library that ends the process with a message if it allocates or frees memory, takes a lock, or calls syscall(),
 * while that is forbidden. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>
#include <stdlib.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

enum { NOTHING, EVERYTHING, ALL_BUT_SYSTEM_CALLS };
/* What the thread must not do now; main.rs sets it. */
static __thread int forbidden __attribute__((tls_model("initial-exec")));
static int (*real_lock)(pthread_mutex_t *);
static long (*real_syscall)(long, ...);

__attribute__((constructor)) static void begin(void) {
    real_lock = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_lock");
    real_syscall = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
}

int *ampere_test_forbidden(void) { return &forbidden; }

static void look(const char *what) {
    if (forbidden != NOTHING) {
        forbidden = NOTHING;
        ssize_t ignored = write(2, what, strlen(what));
        (void)ignored;
        abort();
    }
}

void *malloc(size_t n) { look("the event path calls malloc\n"); return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { look("the event path calls calloc\n"); return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { look("the event path calls realloc\n"); return __libc_realloc(p, n); }
void *memalign(size_t a, size_t n) { look("the event path calls memalign\n"); return __libc_memalign(a, n); }
void *aligned_alloc(size_t a, size_t n) { look("the event path calls aligned_alloc\n"); return __libc_memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) {
    look("the event path calls posix_memalign\n");
    *p = __libc_memalign(a, n);
    return *p ? 0 : 12;
}
void free(void *p) { look("the event path calls free\n"); __libc_free(p); }
int pthread_mutex_lock(pthread_mutex_t *m) {
    look("the event path locks\n");
    return real_lock(m);
}
/* Rust's locks wait with this call. */
long syscall(long n, ...) {
    if (forbidden != ALL_BUT_SYSTEM_CALLS)
        look("the event path makes a system call\n");
    va_list all;
    va_start(all, n);
    long a = va_arg(all, long), b = va_arg(all, long), c = va_arg(all, long);
    long d = va_arg(all, long), e = va_arg(all, long), f = va_arg(all, long);
    va_end(all);
    return real_syscall(n, a, b, c, d, e, f);
}
