/* The yardstick of the event path: a substrate plugin that does the least that can be done with an event, which is to store
 * 16 bytes in memory that another process could read, and the position. Nobody reads it, so it never looks for room, and it
 * has a single ring: it is for programs of one thread. The declarations are those of Score-P 8.4's plugin interface, which
 * crates/scorep-abi checks. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#define RECORDS (1u << 19) /* 8 MiB, as the ring of a main thread */
enum { ENTER_REGION = 4, EXIT_REGION = 5, EVENTS = 83, RECORDING_ENABLED = 0 };

struct record { uint64_t time, what; };

typedef void event(void *location, uint64_t time, uint32_t region, uint64_t *metrics);

struct info {
    uint32_t version;
    int (*init)(void);
    void (*not_needed[12])(void);
    uint32_t (*get_event_functions)(int mode, event ***functions);
    void (*nor_these[102])(void);
};
_Static_assert(sizeof(struct info) == 936, "SCOREP_SubstratePluginInfo");

static struct record *ring;
static _Atomic uint64_t *position;

static inline void store(uint64_t time, uint64_t what)
{
    uint64_t at = atomic_load_explicit(position, memory_order_relaxed);
    ring[at % RECORDS] = (struct record){time, what};
    atomic_store_explicit(position, at + 1, memory_order_release);
}

static void enter(void *location, uint64_t time, uint32_t region, uint64_t *metrics)
{
    store(time, region);
}

static void leave(void *location, uint64_t time, uint32_t region, uint64_t *metrics)
{
    store(time, region | 1ull << 32);
}

static int init(void)
{
    size_t bytes = 4096 + RECORDS * sizeof(struct record);
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 1;
    position = (_Atomic uint64_t *)memory;
    ring = (struct record *)(memory + 4096);
    return 0;
}

static uint32_t get_event_functions(int mode, event ***functions)
{
    static event *recording[EVENTS] = {[ENTER_REGION] = enter, [EXIT_REGION] = leave}, *nothing[EVENTS];
    *functions = mode == RECORDING_ENABLED ? recording : nothing;
    return EVENTS;
}

/* For Score-P. */
struct info SCOREP_SubstratePlugin_least_get_info(void)
{
    return (struct info){.version = 3, .init = init, .get_event_functions = get_event_functions};
}

/* For the embedded host, which asks for a plugin of this name. */
struct info SCOREP_SubstratePlugin_ampere_get_info(void)
{
    return SCOREP_SubstratePlugin_least_get_info();
}
