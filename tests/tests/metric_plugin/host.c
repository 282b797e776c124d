/* Imitates Score-P for a metric plugin: it loads libampere_plugin.so, requests metrics, measures for a while, and takes the
 * values. It was written from the description of the interface, so that it checks the plugin's layouts as well.
 *
 *     host usual|no-calls|odd|fork SECONDS tsc|ns|us PATTERN...
 *
 * It prints for each metric: name | description | mode type base exponent unit | timestamps of start, end | time value ...
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct { char *name, *description; int mode, value_type, base; int64_t exponent; char *unit; } properties;
typedef struct { uint64_t timestamp, value; } pair;
typedef struct {
    uint32_t plugin_version;
    int run_per, sync;
    uint64_t delta_t;
    int32_t (*initialize)(void);
    void (*finalize)(void);
    properties *(*get_event_info)(char *);
    int32_t (*add_counter)(char *);
    uint64_t (*get_current_value)(int32_t);
    bool (*get_optional_value)(int32_t, uint64_t *);
    void (*set_clock_function)(uint64_t (*)(void));
    uint64_t (*get_all_values)(int32_t, pair **);
    void (*synchronize)(bool, int);
    uint64_t reserved[92];
} info;

static const char *clock_name;

static uint64_t now(void) {
    struct timespec t;
    if (!strcmp(clock_name, "tsc")) {
#if defined __aarch64__
        uint64_t ticks;
        __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
        return ticks;
#else
        return __builtin_ia32_rdtsc();
#endif
    }
    clock_gettime(strcmp(clock_name, "us") ? CLOCK_MONOTONIC : CLOCK_REALTIME, &t);
    uint64_t ns = t.tv_sec * 1000000000ull + t.tv_nsec;
    return strcmp(clock_name, "us") ? ns : ns / 1000;
}

static void fail(const char *what) {
    fprintf(stderr, "host: %s\n", what);
    exit(3);
}

static void busy(double seconds) {
    struct timespec begin, t;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    do clock_gettime(CLOCK_MONOTONIC, &t);
    while (t.tv_sec - begin.tv_sec + (t.tv_nsec - begin.tv_nsec) / 1e9 < seconds);
}

/* Calls that no Score-P makes, and which must not do any harm. */
static void odd_calls(info *plugin) {
    pair *list = (pair *)1;
    if (plugin->add_counter(NULL) >= 0 || plugin->add_counter("nothing of the kind") >= 0) fail("a number for nothing");
    if (plugin->get_all_values(-1, &list) != 0 || list != NULL) fail("values of nothing");
    if (plugin->get_all_values(1 << 30, &list) != 0 || plugin->get_all_values(0, NULL) != 0) fail("values of nothing");
    if (plugin->get_event_info(NULL) == NULL || plugin->get_event_info("") == NULL) fail("NULL ends a Score-P");
    if (plugin->get_event_info("\xff\xfe*") == NULL) fail("NULL ends a Score-P");
    plugin->synchronize(true, 77);
}

int main(int argc, char **argv) {
    if (argc < 4) fail("usage");
    const char *scenario = argv[1];
    double seconds = atof(argv[2]);
    clock_name = argv[3];
    void *library = dlopen("libampere_plugin.so", RTLD_NOW);
    if (!library) fail(dlerror());
    info (*get_info)(void) = dlsym(library, "SCOREP_MetricPlugin_ampere_plugin_get_info");
    if (!get_info) fail(dlerror());
    info plugin = get_info();
    if (plugin.plugin_version != 1 || plugin.run_per != 2 || plugin.sync != 3) fail("another kind of plugin");
    for (int i = 0; i < 92; i++)
        if (plugin.reserved[i]) fail("a reserved field is not zero");
    if (!strcmp(scenario, "odd")) odd_calls(&plugin);
    plugin.set_clock_function(now);
    if (plugin.initialize() != 0) fail("initialize");
    if (!strcmp(scenario, "odd")) odd_calls(&plugin);

    static properties all[64];
    properties *arrays[64];
    int count = 0, taken = argc - 4;
    for (int i = 0; i < taken; i++) {
        arrays[i] = plugin.get_event_info(argv[4 + i]);
        for (properties *p = arrays[i]; p->name; p++) all[count++] = *p;
    }
    int32_t ids[64];
    for (int i = 0; i < count; i++)
        if ((ids[i] = plugin.add_counter(all[i].name)) < 0) fail("add_counter");
    if (!strcmp(scenario, "no-calls")) {
        plugin.synchronize(true, 2);
        plugin.finalize();
        return 0;
    }
    uint64_t begin = now();
    plugin.synchronize(true, 0);
    if (!strcmp(scenario, "fork")) {
        pid_t child = fork();
        if (child == 0) { /* A child that continues has no metrics, and takes none from its parent. */
            pair *list;
            plugin.synchronize(true, 2);
            if (plugin.get_all_values(ids[0], &list) != 0) fail("values in a child");
            plugin.finalize();
            _exit(0);
        }
        int status;
        waitpid(child, &status, 0);
        if (status) fail("the child failed");
    }
    busy(seconds);
    plugin.synchronize(true, 2);
    uint64_t end = now();
    for (int i = 0; i < count; i++) {
        pair *list;
        uint64_t length = plugin.get_all_values(ids[i], &list);
        printf("%s|%s|%d %d %d %ld %s|%lu %lu|", all[i].name, all[i].description, all[i].mode, all[i].value_type, all[i].base,
               (long)all[i].exponent, all[i].unit, begin, end);
        for (uint64_t at = 0; at < length; at++) printf("%lu %lu ", list[at].timestamp, list[at].value);
        printf("\n");
        free(list);
    }
    plugin.finalize();
    for (int i = 0; i < count; i++) {
        free(all[i].name);
        free(all[i].description);
        free(all[i].unit);
    }
    for (int i = 0; i < taken; i++)
        if (arrays[i]->name) free(arrays[i]);
    dlclose(library); /* A thread of the plugin would crash now. */
    return 0;
}
