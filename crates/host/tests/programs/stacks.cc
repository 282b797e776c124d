// Records its first events where there is little stack: in a thread with the smallest possible stack, in a handler on a stack of
// its own, and in a function whose name is deeply nested.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <sys/mman.h>

#define PLAIN __attribute__((no_instrument_function))

template <class T> struct Nested {};
template <int N> struct Deep { using type = Nested<typename Deep<N - 1>::type>; };
template <> struct Deep<0> { using type = int; };

__attribute__((noinline)) static int known(int x) { asm volatile(""); return x + 1; }
__attribute__((noinline)) static int of_the_thread(int x) { asm volatile(""); return x + 1; }
__attribute__((noinline)) static int of_the_handler(int x) { asm volatile(""); return x + 1; }
template <class T> __attribute__((noinline)) int deeply_named(T *) { asm volatile(""); return 2; }

PLAIN static void *small(void *) { return (void *)(long)(of_the_thread(1)); }
PLAIN static void *deep(void *) { return (void *)(long)(deeply_named((Deep<45>::type *)nullptr)); }
PLAIN static void handles(int) { of_the_handler(known(1)); }

PLAIN static void run(void *(*body)(void *), size_t bytes) {
    pthread_attr_t attributes;
    pthread_t thread;
    void *result = nullptr;
    pthread_attr_init(&attributes);
#if defined __aarch64__
    // The C library accepts no smaller stack there.
    if (bytes < 131072) bytes = 131072;
#endif
    if (pthread_attr_setstacksize(&attributes, bytes) || pthread_create(&thread, &attributes, body, nullptr)) abort();
    pthread_join(thread, &result);
    if ((long)result != 2) abort();
}

PLAIN int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    // "start": the first event of the process is in a thread.
    if (strcmp(what, "start")) known(1);
    if (!strcmp(what, "handler")) {
        const size_t bytes = 4096;
        char *stack = (char *)mmap(nullptr, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        stack_t own = {};
        struct sigaction action = {};
        mprotect(stack, bytes, PROT_NONE);
        own.ss_sp = stack + bytes, own.ss_size = bytes;
        action.sa_handler = handles, action.sa_flags = SA_ONSTACK;
        if (sigaltstack(&own, nullptr) || sigaction(SIGUSR1, &action, nullptr)) return puts("no such stack"), 0;
        raise(SIGUSR1);
    } else {
        run(small, 16384);
        run(deep, 65536);
    }
    puts("done");
}
