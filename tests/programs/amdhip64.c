/* A stand-in for libamdhip64.so whose GPUs run nothing: each stream's commands take the time that the program asks for.
 *
 * Like the real HIP, it registers with librocprofiler-register.so. If that is not installed, it does that library's work
 * itself. The table of functions is that of tests/stand-ins/rocprofiler. A kernel's first argument is a struct work.
 *
 * STAND_IN_GPUS is the number of GPUs: stream I belongs to GPU I modulo this number. STAND_IN_PLAY is the directory that has the
 * times of readings (tests/stand-ins/scripted-counters/src/played.rs). STAND_IN_LAUNCH_US keeps the thread of a launch or copy
 * busy for this many microseconds of CPU time, so that samples are taken in it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "hip.h"

enum { GET_LAST_ERROR = 1, MALLOC, FREE, MEMCPY, LAUNCH, STREAM_SYNC, DEVICE_SYNC, RESET };
enum { KIND_COPY = 10, KIND_KERNEL = 11 };
enum { STREAMS_MAX = 64, KERNELS_MAX = 64, FIRST_AGENT = 101 };

struct command {
	int kind, operation;
	uint64_t agent, queue, kernel, ticket, start, end;
	/* Readings between which a played kernel begins and ends. */
	double from, to;
};

static uint64_t no_begin(int operation) { return (void)operation, 0; }
static void no_end(int operation, uint64_t number) { (void)operation, (void)number; }
static uint64_t no_load(const char *name) { return (void)name, 0; }
static uint64_t no_put(int kind, int operation) { return (void)kind, (void)operation, 0; }
static void no_done(const struct command *command) { (void)command; }

static struct table {
	uint64_t (*begin)(int);
	void (*end)(int, uint64_t);
	uint64_t (*load)(const char *);
	uint64_t (*put)(int, int);
	void (*done)(const struct command *);
} table = {no_begin, no_end, no_load, no_put, no_done};

typedef int set_table(const char *, uint64_t, uint64_t, void **, uint64_t);

/* Does what rocprofiler-register does. */
static void register_table(void **tables) {
	const char *tools = getenv("ROCP_TOOL_LIBRARIES");
	if (!(tools && *tools) && !dlsym(RTLD_DEFAULT, "rocprofiler_configure")) return;
	set_table *set = (set_table *)dlsym(RTLD_DEFAULT, "rocprofiler_set_api_table");
	if (!set) {
		void *library = dlopen("librocprofiler-sdk.so", RTLD_GLOBAL | RTLD_LAZY);
		set = library ? (set_table *)dlsym(library, "rocprofiler_set_api_table") : NULL;
	}
	if (!set) {
		fprintf(stderr, "rocprofiler_set_api_table not found. Tried to dlopen librocprofiler-sdk.so\n");
		abort();
	}
	set("hip", 60200, 0, tables, 1);
}

static struct kernel {
	const void *function;
	const char *name;
	uint64_t number;
} kernels[KERNELS_MAX];
static unsigned kernel_count;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stream {
	uint64_t end, agent;
	struct command *waiting;
	/* The number of commands whose records are in the tool's buffers is `done`. */
	size_t first, count, room, done;
} streams[STREAMS_MAX];
static unsigned stream_count = 1;

static uint64_t read_clock(clockid_t clock) {
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static uint64_t now(void) { return read_clock(CLOCK_BOOTTIME); }

static void sleep_until(uint64_t time) {
	struct timespec t = {time / 1000000000, time % 1000000000};
	while (clock_nanosleep(CLOCK_BOOTTIME, TIMER_ABSTIME, &t, NULL)) {}
}

/* The time of a place between two readings of a GPU's counter; 0 if that is not yet known. The time of the last reading may
 * still change. */
static uint64_t time_at(uint64_t agent, double place) {
	char path[4096];
	uint64_t times[3] = {0};
	snprintf(path, sizeof path, "%s/times.%d", getenv("STAND_IN_PLAY"), (int)agent - FIRST_AGENT);
	FILE *file = fopen(path, "r");
	if (!file) return 0;
	int is_known = !fseek(file, (long)place * 8, SEEK_SET) && fread(times, 8, 3, file) == 3;
	fclose(file);
	return is_known ? times[0] + (uint64_t)((place - (long)place) * (times[1] - times[0])) : 0;
}

/* Takes a command that has ended. If none has, returns the time when the next one ends. */
static uint64_t take(struct command *taken) {
	uint64_t time = now(), next = time + 1000000;
	for (unsigned i = 0; i < stream_count; i++) {
		struct stream *stream = &streams[i];
		if (!stream->count) continue;
		struct command *command = &stream->waiting[stream->first % stream->room];
		if (command->to > 0) {
			command->start = time_at(command->agent, command->from);
			command->end = time_at(command->agent, command->to);
			if (!command->end) continue;
		}
		/* A record may contain wrong times, but it is delivered at the right time. */
		uint64_t end = command->end > command->start ? command->end : command->start;
		if (end <= time) {
			*taken = *command;
			stream->first++, stream->count--;
			return 0;
		}
		if (end < next) next = end;
	}
	return next;
}

static void *complete(void *unused) {
	for (;;) {
		struct command command;
		pthread_mutex_lock(&lock);
		uint64_t next = take(&command);
		pthread_mutex_unlock(&lock);
		if (next) {
			sleep_until(next);
			continue;
		}
		table.done(&command);
		pthread_mutex_lock(&lock);
		streams[command.queue - 1].done++;
		pthread_mutex_unlock(&lock);
	}
	return unused;
}

static void initialise(void) {
	void *tables[] = {&table};
	void *library = dlopen("librocprofiler-register.so.0", RTLD_LAZY);
	int (*registers)(const char *, void *, uint32_t, void **, uint64_t, uint64_t *) =
		library ? (int (*)(const char *, void *, uint32_t, void **, uint64_t, uint64_t *))dlsym(library, "rocprofiler_register_library_api_table") : NULL;
	uint64_t id = 0;
	if (registers) registers("hip", NULL, 60200, tables, 1, &id);
	else register_table(tables);
	int gpus = getenv("STAND_IN_GPUS") ? atoi(getenv("STAND_IN_GPUS")) : 1;
	for (unsigned i = 0; i < STREAMS_MAX; i++) {
		streams[i].agent = FIRST_AGENT + i % gpus;
		streams[i].room = 1 << 16;
	}
	pthread_t thread;
	pthread_create(&thread, NULL, complete, NULL);
}

static void start(void) {
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, initialise);
}

static void enqueue(struct stream *stream, struct command command, struct work work) {
	enum odd odd = work.odd;
	const char *busy = getenv("STAND_IN_LAUNCH_US");
	if (busy) {
		uint64_t end = read_clock(CLOCK_THREAD_CPUTIME_ID) + atoi(busy) * 1000ull;
		while (read_clock(CLOCK_THREAD_CPUTIME_ID) < end) {}
	}
	command.ticket = table.put(command.kind, command.operation);
	for (;;) {
		pthread_mutex_lock(&lock);
		if (stream->count < stream->room) break;
		pthread_mutex_unlock(&lock);
		sleep_until(now() + 100000);
	}
	if (!stream->waiting) stream->waiting = malloc(stream->room * sizeof *stream->waiting);
	uint64_t time = now();
	command.start = odd == OVERLAPS || stream->end < time ? time : stream->end;
	command.end = command.start + (uint64_t)(work.seconds * 1e9);
	command.agent = stream->agent;
	command.queue = stream - streams + 1;
	command.from = work.begin;
	command.to = work.end;
	if (command.end > stream->end) stream->end = command.end;
	if (odd == NEGATIVE) {
		uint64_t end = command.end;
		command.end = command.start;
		command.start = end;
	}
	if (odd != WITHOUT_RECORD) stream->waiting[(stream->first + stream->count++) % stream->room] = command;
	pthread_mutex_unlock(&lock);
}

int hipInit(unsigned flags) {
	start();
	return (int)flags;
}

void __hipRegisterFunction(void **modules, const void *function, char *device_function, const char *name, unsigned limit, void *a, void *b, void *c, void *d, int *e) {
	(void)modules, (void)device_function, (void)limit, (void)a, (void)b, (void)c, (void)d, (void)e;
	kernels[kernel_count++] = (struct kernel){function, name, 0};
}

int hipLaunchKernel(const void *function, struct dim3 grid, struct dim3 block, void **arguments, size_t shared, void *stream) {
	(void)grid, (void)block, (void)shared;
	start();
	uint64_t call = table.begin(LAUNCH);
	struct work work = *(struct work *)arguments[0];
	struct command command = {.kind = KIND_KERNEL};
	for (unsigned i = 0; i < kernel_count; i++) {
		if (kernels[i].function != function) continue;
		if (!kernels[i].number) kernels[i].number = table.load(kernels[i].name);
		command.kernel = kernels[i].number;
	}
	if (work.odd == CRASHES) *(volatile int *)8 = 1;
	enqueue(stream ? stream : streams, command, work);
	table.end(LAUNCH, call);
	return 0;
}

int hipMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) {
	start();
	uint64_t call = table.begin(MEMCPY);
	memcpy(to, from, bytes);
	enqueue(stream ? stream : streams, (struct command){.kind = KIND_COPY, .operation = kind == 2 ? 3 : 2}, (struct work){.seconds = bytes * 1e-9});
	table.end(MEMCPY, call);
	return 0;
}

int hipMalloc(void **memory, size_t bytes) {
	start();
	uint64_t call = table.begin(MALLOC);
	*memory = malloc(bytes);
	table.end(MALLOC, call);
	return 0;
}

int hipFree(void *memory) {
	uint64_t call = table.begin(FREE);
	free(memory);
	table.end(FREE, call);
	return 0;
}

int hipStreamCreate(void **stream) {
	start();
	*stream = &streams[stream_count++];
	return 0;
}

/* When this returns, the records of all earlier commands are in the tool's buffers, however busy the machine is. */
static void wait_for(struct stream *stream) {
	pthread_mutex_lock(&lock);
	size_t all = stream->first + stream->count;
	pthread_mutex_unlock(&lock);
	sleep_until(stream->end);
	for (int waits = 1; waits;) {
		pthread_mutex_lock(&lock);
		waits = stream->done < all;
		pthread_mutex_unlock(&lock);
		if (waits) sleep_until(now() + 1000000);
	}
}

int hipStreamSynchronize(void *stream) {
	uint64_t call = table.begin(STREAM_SYNC);
	wait_for(stream ? stream : streams);
	table.end(STREAM_SYNC, call);
	return 0;
}

static void wait_for_all(void) {
	for (unsigned i = 0; i < stream_count; i++) wait_for(&streams[i]);
}

int hipDeviceSynchronize(void) {
	start();
	uint64_t call = table.begin(DEVICE_SYNC);
	wait_for_all();
	table.end(DEVICE_SYNC, call);
	return 0;
}

/* Resets the device: its streams are gone, and new ones may be made. */
int hipDeviceReset(void) {
	uint64_t call = table.begin(RESET);
	wait_for_all();
	table.end(RESET, call);
	return 0;
}
