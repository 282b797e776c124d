/* The yardstick of the attribution engine: the least that attribution by call stack must do with the events of
 * bench/src/engine.rs. It has a stack for each rank, and at each event it adds the time since the one before to the innermost
 * frame. It does not handle joules, call paths, or the number of ranks that share the device. */
#include <stdint.h>
#include <stdlib.h>

enum { DEPTH = 20 };

struct rank {
    uint64_t since;
    uint32_t depth, stack[DEPTH];
    uint64_t ticks[DEPTH], calls[DEPTH], idle;
};

uint64_t least_engine(uint64_t ranks, uint64_t events)
{
    struct rank *all = calloc(ranks, sizeof *all);
    uint64_t time = 0, sum = 0;
    if (!all)
        return 0;
    for (uint64_t round = 0; round < events / ranks; round++) {
        uint32_t step = round % (2 * DEPTH);
        for (struct rank *rank = all; rank < all + ranks; rank++) {
            time += 10;
            *(rank->depth ? &rank->ticks[rank->stack[rank->depth - 1]] : &rank->idle) += time - rank->since;
            rank->since = time;
            if (step < DEPTH) {
                rank->stack[rank->depth++] = step;
                rank->calls[step]++;
            } else {
                rank->depth--;
            }
        }
    }
    for (struct rank *rank = all; rank < all + ranks; rank++)
        for (int region = 0; region < DEPTH; region++)
            sum += rank->ticks[region] + rank->calls[region];
    free(all);
    return sum;
}
