/* The yardstick of the event path: a substrate plugin that does as little as possible with an event. It stores 16 bytes
 * in memory that another process could read, and the position. Nothing reads them, so it never checks for room. It has a single
 * ring, and is therefore only for programs with one thread. The declarations are those of Score-P 8.4's plugin interface, which
 * crates/scorep-abi checks.
 *
 * With -DLOSSLESS, another process reads all events, and the program waits if the ring is full. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define RECORDS (1u << 19) /* 8 MiB, as the ring of a main thread */
enum { ENTER_REGION = 4, EXIT_REGION = 5, EVENTS = 83, RECORDING_ENABLED = 0 };

struct record { uint64_t time, what; };

typedef void event(void *location, uint64_t time, uint32_t region, uint64_t *metrics);

struct info {
    uint32_t version;
    int (*init)(void);
    void (*unused[12])(void);
    uint32_t (*get_event_functions)(int mode, event ***functions);
    void (*more_unused[102])(void);
};
_Static_assert(sizeof(struct info) == 936, "SCOREP_SubstratePluginInfo");

static struct record *ring;
static _Atomic uint64_t *position;

#ifdef LOSSLESS
static _Atomic uint64_t *read_to;
static uint64_t limit;

static void wait_for_room(uint64_t at)
{
    if (at < limit)
        return;
    while (at >= (limit = atomic_load_explicit(read_to, memory_order_acquire) + RECORDS))
        usleep(100);
}

static void start_reader(void)
{
    read_to = position + 64;
    pid_t parent = getpid();
    if (fork() != 0)
        return;
    for (uint64_t at = 0, sum = 0; getppid() == parent; usleep(1000)) {
        for (uint64_t to = atomic_load_explicit(position, memory_order_acquire); at < to; at++)
            sum += ring[at % RECORDS].time ^ ring[at % RECORDS].what;
        *(volatile uint64_t *)(read_to + 8) = sum;
        atomic_store_explicit(read_to, at, memory_order_release);
    }
    _exit(0);
}
#else
static void wait_for_room(uint64_t at) { (void)at; }
static void start_reader(void) {}
#endif

static inline void store(uint64_t time, uint64_t what)
{
    uint64_t at = atomic_load_explicit(position, memory_order_relaxed);
    wait_for_room(at);
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
    start_reader();
    return 0;
}

static uint32_t get_event_functions(int mode, event ***functions)
{
    static event *recording[EVENTS] = {[ENTER_REGION] = enter, [EXIT_REGION] = leave}, *nothing[EVENTS];
    *functions = mode == RECORDING_ENABLED ? recording : nothing;
    return EVENTS;
}

/* The entry point for Score-P. */
struct info SCOREP_SubstratePlugin_least_get_info(void)
{
    return (struct info){.version = 3, .init = init, .get_event_functions = get_event_functions};
}

struct info SCOREP_SubstratePlugin_lossless_get_info(void)
{
    return SCOREP_SubstratePlugin_least_get_info();
}

/* The embedded host looks for a plugin of this name. */
struct info SCOREP_SubstratePlugin_ampere_get_info(void)
{
    return SCOREP_SubstratePlugin_least_get_info();
}
