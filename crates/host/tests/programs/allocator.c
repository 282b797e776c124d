/* A program with its own allocator, compiled with instrumentation: hooks run inside malloc, with its lock held. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char memory[64 << 20];
static size_t next;
static int locked;

__attribute__((noinline)) static void lock(void) {
    if (locked++) {
        static const char text[] = "the allocator was called from inside itself\n";
        fwrite(text, 1, sizeof text - 1, stderr);
        abort();
    }
}
__attribute__((noinline)) static void unlock(void) {
    locked--;
}
void *malloc(size_t size) {
    lock();
    size_t *block = (size_t *)(memory + next);
    next += (size + 31) / 16 * 16;
    *block = size;
    unlock();
    return (char *)block + 16;
}
void free(void *block) {
    (void)block;
}
void *calloc(size_t n, size_t size) {
    return malloc(n * size);
}
void *realloc(void *old, size_t size) {
    void *block = malloc(size);
    if (old) memcpy(block, old, size);
    return block;
}
int main(void) {
    char *text = malloc(100);
    strcpy(text, "own allocator");
    puts(text);
    return 0;
}
