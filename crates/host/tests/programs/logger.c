/* A substrate plugin that writes every call to it into $LOGGER_DIR/<pid>.log, for the tests. It describes the interface by plain
 * arrays, so that no Score-P header is needed; the numbers are those of crates/scorep-abi. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct { uint32_t version; void *function[116]; } info_t;
_Static_assert(sizeof(info_t) == 936, "size of SCOREP_SubstratePluginInfo");
enum { INIT, ASSIGN_ID, INIT_MPP, FINALIZE, CREATE, ACTIVATE, DEACTIVATE, DELETE, PRE_UNIFY, WRITE_DATA,
       TASK_CREATE, TASK_COMPLETE, NEW_DEFINITION, GET_EVENTS, SET_CALLBACKS, GET_REQUIREMENT, DUMP_MANIFEST };

static void *const *cb; /* indices: offset / 8 in crates/scorep-abi/src/lib.rs */
static FILE *out;
static int quiet;
static _Atomic long entered;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
#define LOG(...) do { pthread_mutex_lock(&mutex); fprintf(out, __VA_ARGS__); fflush(out); pthread_mutex_unlock(&mutex); } while (0)

static const char *str(const char *s) { return s ? s : "-"; }
static const char *name_of(uint32_t h) { return str(((const char *(*)(uint32_t))cb[33])(h)); }
static unsigned id_of(const void *l) { return l ? ((uint32_t(*)(const void *))cb[16])(l) : 0; }
static const char *location_name(const void *l) { return str(((const char *(*)(const void *))cb[15])(l)); }

static int init(void) {
    char path[4096];
    const char *dir = getenv("LOGGER_DIR"), *fail = getenv("LOGGER_FAIL");
    if (fail && *fail) return 7;
    quiet = getenv("LOGGER_QUIET") != NULL;
    snprintf(path, sizeof path, "%s/%d.log", dir ? dir : ".", (int)getpid());
    out = fopen(path, "w");
    if (!out) return 1;
    LOG("init\n");
    return 0;
}
static void assign_id(size_t id) { LOG("assign_id %zu\n", id); }
static void init_mpp(void) {
    LOG("init_mpp %d/%d\n", ((int (*)(void))cb[2])(), ((int (*)(void))cb[1])());
}
static void finalize(void) {
    if (quiet) LOG("entered %ld\n", entered);
    LOG("finalize\n");
}
static void create(const void *l, const void *p) {
    ((void (*)(const void *, size_t, void *))cb[18])(l, 0, (void *)(uintptr_t)(id_of(l) + 100));
    LOG("create_location %u '%s' parent=%s\n", id_of(l), location_name(l), p ? location_name(p) : "NULL");
}
static void activate(const void *l, const void *p, uint32_t f) { (void)p; (void)f; LOG("activate %u\n", id_of(l)); }
static void deactivate(const void *l, const void *p) {
    uintptr_t data = (uintptr_t)((void *(*)(const void *, size_t))cb[19])(l, 0);
    (void)p;
    LOG("deactivate %u data=%s\n", id_of(l), data == id_of(l) + 100 ? "ok" : "LOST");
}
static void delete(const void *l) { LOG("delete_location %u\n", id_of(l)); }
static void new_definition(uint32_t h, int type) {
    if (type != 11) return;
    LOG("region %u '%s' canonical='%s' file='%s' line=%u type=%d paradigm=%d\n", h, name_of(h),
            str(((const char *(*)(uint32_t))cb[34])(h)), str(((const char *(*)(uint32_t))cb[35])(h)),
            ((uint32_t(*)(uint32_t))cb[36])(h), ((int (*)(uint32_t))cb[38])(h), ((int (*)(uint32_t))cb[39])(h));
}
static void enter(void *l, uint64_t t, uint32_t r, uint64_t *m) {
    (void)m;
    entered++;
    if (!quiet) LOG("enter %u %llu '%s'\n", id_of(l), (unsigned long long)t, name_of(r));
}
static void leave(void *l, uint64_t t, uint32_t r, uint64_t *m) {
    (void)m;
    if (!quiet) LOG("exit %u %llu '%s'\n", id_of(l), (unsigned long long)t, name_of(r));
}
static void program_begin(void *l, uint64_t t, uint32_t n, uint32_t na, uint32_t *a, uint32_t r, uint64_t p, uint64_t tid) {
    (void)n; (void)na; (void)a;
    LOG("program_begin %u %llu '%s' pid=%s tid=%s\n", id_of(l), (unsigned long long)t, name_of(r), p == (uint64_t)getpid() ? "ok" : "WRONG",
        tid == (uint64_t)gettid() ? "ok" : "WRONG");
}
static void program_end(void *l, uint64_t t, int64_t s, uint32_t r) {
    (void)r;
    LOG("program_end %u %llu status=%lld\n", id_of(l), (unsigned long long)t, (long long)s);
}
void ampere_missed_calls(void *l, uint64_t calls) {
    if (l) LOG("missed %u %llu\n", id_of(l), (unsigned long long)calls);
    else LOG("missed - %llu\n", (unsigned long long)calls);
}
static void *on[83], *off[83];
static uint32_t get_events(int mode, void ***f) {
    LOG("get_event_functions %d\n", mode);
    if (mode == 0) {
        on[4] = enter, on[5] = leave, on[63] = program_begin, on[64] = program_end;
        *f = on;
        return 81;
    }
    *f = off;
    return 4;
}
static void set_callbacks(void *const *c, size_t size) { cb = c; LOG("set_callbacks %zu\n", size); }

info_t SCOREP_SubstratePlugin_ampere_get_info(void) {
    info_t i;
    memset(&i, 0, sizeof i);
    i.version = 3;
    i.function[INIT] = init, i.function[ASSIGN_ID] = assign_id, i.function[INIT_MPP] = init_mpp;
    i.function[FINALIZE] = finalize, i.function[CREATE] = create, i.function[ACTIVATE] = activate;
    i.function[DEACTIVATE] = deactivate, i.function[DELETE] = delete, i.function[NEW_DEFINITION] = new_definition;
    i.function[GET_EVENTS] = get_events, i.function[SET_CALLBACKS] = set_callbacks;
    return i;
}
