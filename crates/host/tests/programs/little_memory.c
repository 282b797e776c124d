/* Has a hundred thousand functions with long names, and uses one for the first time when there is little memory left. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#define PLAIN __attribute__((no_instrument_function))
#define LONG "_as_long_as_the_names_of_templates_are_which_say_all_their_parameters_and_those_of_these_and_so_on_and_on"

__asm__(".text\n"
        ".altmacro\n"
        ".macro one n\n"
        ".type function" LONG "_\\n, @function\n"
        "function" LONG "_\\n: .byte 0x90\n"
        ".size function" LONG "_\\n, 1\n"
        ".endm\n"
        ".set i, 0\n"
        ".rept 100000\n"
        "one %i\n"
        ".set i, i + 1\n"
        ".endr\n");

__attribute__((noinline)) static int before(int x) { return x + 1; }
__attribute__((noinline)) static int after(int x) { return x + 1; }

static volatile int limited;
PLAIN static void *works(void *argument) {
    while (!limited) continue;
    for (int i = 0; i < 1000; i++) before(i);
    return argument;
}

/* Limits memory to the given number of KiB more than now. If the number is negative, the main thread is measured before, and
 * another thread starts under the limit. */
PLAIN int main(int argc, char **argv) {
    struct rlimit limit;
    pthread_t thread;
    long pages = 0, kibibytes = argc > 1 ? atol(argv[1]) : 0;
    FILE *file;
    if (kibibytes < 0) before(1);
    if (kibibytes < 0) pthread_create(&thread, NULL, works, NULL);
    file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld", &pages) != 1) return 1;
    fclose(file);
    limit.rlim_cur = limit.rlim_max = (rlim_t)pages * 4096 + (rlim_t)labs(kibibytes) * 1024;
    if (setrlimit(RLIMIT_AS, &limit)) return 1;
    limited = 1;
    if (kibibytes < 0) pthread_join(thread, NULL);
    printf("%d\n", after(before(1)));
    return 0;
}
