/* Does what ITT's static part does: opens the library that INTEL_LIBITTNOTIFY64 names, has it set the functions of its table, and
 * calls those that are set. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct id { unsigned long long parts[3]; };
struct domain { volatile int flags; const char *name; void *wide; int extra; void *more; struct domain *next; };
struct string { const char *text; void *wide; int extra; void *more; struct string *next; };
struct function { const char *name; void **called; void *first, *own; int group; };
struct global {
	unsigned char magic[8];
	unsigned long major, minor, build;
	volatile long is_initialized, has_mutex, count;
	pthread_mutex_t mutex;
	void *library, *error_handler;
	const char **paths;
	struct function *functions;
};

static void first(void) {}
static void own(void) {}
static void (*task_begin)(const struct domain *, struct id, struct id, struct string *) = (void *)first;
static void (*task_begin_fn)(const struct domain *, struct id, struct id, void *) = (void *)first;
static void (*task_end)(const struct domain *) = (void *)first;
static void (*begin_overlapped)(const struct domain *, struct id, struct id, struct string *) = (void *)first;
static void (*end_overlapped)(const struct domain *, struct id) = (void *)first;
static void (*region_begin)(const struct domain *, struct id, struct id, struct string *) = (void *)first;
static void (*region_end)(const struct domain *, struct id) = (void *)first;
static void (*frame_begin)(void) = first, (*pause)(void) = first;
static struct domain *(*domain_create)(const char *) = (void *)first;
static struct string *(*string_handle_create)(const char *) = (void *)first;

static struct function functions[] = {
	{"__itt_domain_create", (void **)&domain_create, first, own, 1},
	{"__itt_string_handle_create", (void **)&string_handle_create, first, own, 1},
	{"__itt_pause", (void **)&pause, first, own, 1},
	{"__itt_task_begin", (void **)&task_begin, first, NULL, 1},
	{"__itt_frame_begin_v3", (void **)&frame_begin, first, NULL, 1},
	{"__itt_task_begin_fn", (void **)&task_begin_fn, first, NULL, 1},
	{"__itt_task_end", (void **)&task_end, first, NULL, 1},
	{"__itt_task_begin_overlapped", (void **)&begin_overlapped, first, NULL, 1},
	{"__itt_task_end_overlapped", (void **)&end_overlapped, first, NULL, 1},
	{"__itt_region_begin", (void **)&region_begin, first, NULL, 1},
	{"__itt_region_end", (void **)&region_end, first, NULL, 1},
	{NULL, NULL, NULL, NULL, 0},
};

int main(int count, char **words) {
	struct global global = {{0xED, 0xAB, 0xAB, 0xEC, 0x0D, 0xEE, 0xDA, 0x30}, 3, 24, count > 1 ? atol(words[1]) : 20151119};
	global.functions = functions;
	void *library = dlopen(getenv("INTEL_LIBITTNOTIFY64"), RTLD_LAZY);
	void (*init)(struct global *, int) = library ? dlsym(library, "__itt_api_init") : NULL;
	if (!init) return 3;
	init(&global, 1);
	if (task_begin == (void *)first) return 4;
	/* This domain and this string were made before the library was opened. */
	struct domain one = {1, "one"}, *two = domain_create("two");
	struct string step = {"step"}, *load = string_handle_create("load");
	printf("%d %d %d ", frame_begin == NULL, pause == own, domain_create("two") == two);
	printf("%d %s %s\n", two->flags, two->name, load->text);
	struct id none = {{0}};
	task_end(&one);
	for (int round = 0; round < 2; round++) {
		task_begin(&one, none, none, &step);
		task_begin(two, none, none, load);
		task_begin_fn(two, none, none, (void *)main);
		task_end(two);
		task_end(two);
		task_end(&one);
	}
	/* Two that overlap, with one number in two domains, and one that does not end. */
	struct id number = {{7}}, other = {{7, 1}};
	begin_overlapped(&one, number, none, load);
	region_begin(two, number, none, &step);
	begin_overlapped(two, other, none, load);
	end_overlapped(&one, number);
	region_end(two, number);
	region_end(two, number);
	task_begin(NULL, none, none, NULL);
	task_end(NULL);
	return 0;
}
