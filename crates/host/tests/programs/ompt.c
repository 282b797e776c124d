/* Calls a tool as LLVM's OpenMP library does: opens the library that OMP_TOOL_LIBRARIES names, and calls the
 * callbacks that it sets. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef union { uint64_t value; void *ptr; } data;
static void *callbacks[64];

static int set_callback(int which, void *callback) {
	callbacks[which] = callback;
	return 5;
}
static void *lookup(const char *name) { return strcmp(name, "ompt_set_callback") ? NULL : (void *)set_callback; }

struct tool { int (*initialize)(void *(*)(const char *), int, data *); void (*finalize)(data *); data own; };

enum { BEGIN = 1, END = 2, COMPLETE = 1, SWITCH = 7, TASKWAIT_COMPLETE = 8 };

__attribute__((noinline)) static void *code(void) { return __builtin_return_address(0); }
#define parallel_begin(of) ((void (*)(data *, void *, data *, unsigned, int, void *))callbacks[3])(NULL, NULL, of, 2, 1, code())
#define parallel_end(of) ((void (*)(data *, data *, int, void *))callbacks[4])(of, NULL, 1, code())
#define create(task, flags) ((void (*)(data *, void *, data *, int, int, void *))callbacks[5])(NULL, NULL, task, flags, 0, code())
#define schedule(before, how, next) ((void (*)(data *, int, data *))callbacks[6])(before, how, next)
#define implicit(point, of, task, index, flags) \
	((void (*)(int, data *, data *, unsigned, unsigned, int))callbacks[7])(point, of, task, 2, index, flags)
#define waits(kind, point) ((void (*)(int, int, data *, data *, void *))callbacks[16])(kind, point, NULL, NULL, code())
#define target(point) ((void (*)(int, int, int, data *, data *, data *, void *))callbacks[33])(1, point, 0, NULL, NULL, NULL, code())

int main(void) {
	void *library = dlopen(getenv("OMP_TOOL_LIBRARIES"), RTLD_LAZY);
	struct tool *(*start)(unsigned, const char *) = library ? dlsym(library, "ompt_start_tool") : NULL;
	struct tool *tool = start ? start(201611, "LLVM") : NULL;
	if (!tool) return puts("no tool"), 0;
	printf("active %d\n", tool->initialize(lookup, 0, &tool->own));
	data parallel = {0}, initial = {0}, first = {0}, worker = {0}, outer = {0}, inner = {0};
	implicit(BEGIN, NULL, &initial, 1, 1);
	parallel_begin(&parallel);
	implicit(BEGIN, &parallel, &first, 0, 2);
	/* The end of an implicit task has no parallel region. */
	implicit(END, NULL, &first, 0, 2);
	waits(8, BEGIN);
	create(&outer, 4);
	create(&inner, 4 | 0x10000000);
	schedule(&first, SWITCH, &outer);
	waits(5, BEGIN);
	/* An untied task gives up the thread, and continues later. */
	schedule(&outer, SWITCH, &inner);
	schedule(&inner, SWITCH, &outer);
	schedule(&outer, SWITCH, &inner);
	schedule(&inner, COMPLETE, &outer);
	schedule(&outer, TASKWAIT_COMPLETE, &outer);
	waits(5, END);
	schedule(&outer, COMPLETE, &first);
	waits(8, END);
	parallel_end(&parallel);
	implicit(BEGIN, &parallel, &worker, 1, 2);
	waits(3, BEGIN);
	waits(3, END);
	implicit(END, NULL, &worker, 1, 2);
	target(BEGIN);
	target(END);
	implicit(END, NULL, &initial, 1, 1);
	tool->finalize(&tool->own);
	return 0;
}
