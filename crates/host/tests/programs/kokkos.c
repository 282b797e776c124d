/* Calls the hooks of a tool as Kokkos does: opens the library that KOKKOS_TOOLS_LIBS names, and looks up each hook. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct space { char name[64]; };
struct settings { _Bool requires_global_fencing, padding[255]; };

static void *library;
static void (*init)(int, uint64_t, uint32_t, void *), (*finalize)(void);
static void (*begin_for)(const char *, uint32_t, uint64_t *), (*end_for)(uint64_t);
static void (*begin_reduce)(const char *, uint32_t, uint64_t *), (*end_reduce)(uint64_t);
static void (*begin_scan)(const char *, uint32_t, uint64_t *), (*end_scan)(uint64_t);
static void (*begin_fence)(const char *, uint32_t, uint64_t *), (*end_fence)(uint64_t);
static void (*push)(const char *), (*pop)(void);
static void (*begin_copy)(struct space, const char *, const void *, struct space, const char *, const void *, uint64_t);
static void (*end_copy)(void);
static void (*create_section)(const char *, uint32_t *), (*destroy_section)(uint32_t);
static void (*start_section)(uint32_t), (*stop_section)(uint32_t);
static void (*request_settings)(uint32_t, struct settings *);

static void *find(const char *name) {
	void *hook = library ? dlsym(library, name) : NULL;
	printf("%s %d\n", name + strlen("kokkosp_"), hook != NULL);
	return hook;
}

static int load(void) {
	const char *path = getenv("KOKKOS_TOOLS_LIBS");
	library = path && *path ? dlopen(path, RTLD_NOW | RTLD_GLOBAL) : NULL;
	if (path && *path && !library) printf("Unable to load: %s\n", dlerror());
	begin_scan = find("kokkosp_begin_parallel_scan");
	begin_for = find("kokkosp_begin_parallel_for");
	begin_reduce = find("kokkosp_begin_parallel_reduce");
	end_scan = find("kokkosp_end_parallel_scan");
	end_for = find("kokkosp_end_parallel_for");
	end_reduce = find("kokkosp_end_parallel_reduce");
	init = find("kokkosp_init_library");
	finalize = find("kokkosp_finalize_library");
	push = find("kokkosp_push_profile_region");
	pop = find("kokkosp_pop_profile_region");
	begin_copy = find("kokkosp_begin_deep_copy");
	end_copy = find("kokkosp_end_deep_copy");
	begin_fence = find("kokkosp_begin_fence");
	end_fence = find("kokkosp_end_fence");
	create_section = find("kokkosp_create_profile_section");
	destroy_section = find("kokkosp_destroy_profile_section");
	start_section = find("kokkosp_start_profile_section");
	stop_section = find("kokkosp_stop_profile_section");
	request_settings = find("kokkosp_request_tool_settings");
	struct settings settings = {1, {0}};
	if (init) init(0, 20240906, 0, NULL);
	if (request_settings) request_settings(1, &settings);
	printf("fencing %d\n", settings.requires_global_fencing);
	return push != NULL;
}

static void kernel(const char *name) {
	uint64_t id = 99;
	begin_for(name, 0, &id);
	end_for(id);
}

static void *ends_elsewhere(void *unused) {
	pop();
	end_for(1);
	kernel("in a thread");
	return unused;
}

/* Two sections that overlap; the first one runs twice. */
static void sections(void) {
	uint32_t io = 9, net = 9;
	create_section("io", &io);
	create_section("net", &net);
	start_section(io);
	start_section(net);
	stop_section(io);
	stop_section(net);
	start_section(io);
	stop_section(io);
	if (destroy_section) destroy_section(io);
	printf("sections %d\n", io != net);
}

static void work(void) {
	uint64_t id = 0, fence = 0;
	struct space host = {"Host"}, cuda = {"Cuda"};
	push("step");
	kernel("axpy");
	if (begin_reduce) {
		begin_reduce("dot", 0, &id);
		begin_fence("dot: fence", 0, &fence);
		end_fence(fence);
		end_reduce(id);
		begin_scan("sum", 0, &id);
		end_scan(id);
		begin_copy(cuda, "x", NULL, host, "x_mirror", NULL, 8);
		end_copy();
	}
	pop();
	if (create_section) sections();
}

/* What a program should not do. */
static void bad(void) {
	uint64_t id;
	pop();
	end_for(7);
	/* A kernel is open while its region ends. */
	push("outer");
	begin_for("crossing", 0, &id);
	pop();
	end_for(id);
	push(NULL);
	push("");
	pop(), pop();
	push("left open");
	pthread_t thread;
	pthread_create(&thread, NULL, ends_elsewhere, NULL);
	pthread_join(thread, NULL);
	pop();
	for (int i = 0; i < 100000; i++) {
		char *name = malloc(24);
		snprintf(name, 24, "name %d", i);
		push(name);
		memset(name, '#', 23);
		free(name);
		pop();
	}
	fflush(stdout);
	if (fork() == 0) {
		kernel("in the child");
		_exit(0);
	}
	wait(NULL);
}

static void at_the_end(void) { kernel("after the end"); }

int main(int count, char **words) {
	if (!load()) return 0;
	if (count > 1 && !strcmp(words[1], "bad"))
		atexit(at_the_end), kernel("first"), bad();
	else
		work();
	if (finalize) finalize();
	return 0;
}
