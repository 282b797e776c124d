/* ampere's own interface, for C and C++: marks regions and ranges, and counts units of work.
 *
 *     #include <ampere.h>
 *     ampere_region_begin("solve");
 *     ampere_work("steps", 100);
 *     ampere_region_end("solve");
 *
 * There is nothing to link. Without `ampere run`, each call costs a comparison. The functions may be called by any thread at
 * any time, before MPI_Init and after MPI_Finalize, too. The names are copied. Regions of a thread nest: an end also ends the
 * regions that began inside, and an end without a begin does nothing. Ranges may overlap, and end on another thread: they are
 * counted and timed, but have no energy of their own.
 *
 * The first call looks for ampere's library, which `ampere run` names in AMPERE_INTERFACE. In a program that is statically
 * linked, the calls do nothing; its linker may warn of dlopen. The interface does not change: a program need not be compiled
 * again for another version of ampere. */
#ifndef AMPERE_H
#define AMPERE_H

#include <stdlib.h>
#if defined(__GNUC__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The functions of ampere's library. Further ones may follow. */
struct ampere_functions {
	void (*region_begin)(const char *name);
	void (*region_end)(const char *name);
	void (*mark)(const char *name);
	void (*work)(const char *name, double units);
	unsigned long long (*range_start)(const char *name);
	void (*range_end)(unsigned long long range);
};

/* Keeps the functions of this header from being recorded. Otherwise they would contain the regions that they begin. */
#ifdef __GNUC__
#define AMPERE_NOT_RECORDED __attribute__((no_instrument_function))
#else
#define AMPERE_NOT_RECORDED
#endif

#if defined(__GNUC__) && defined(__linux__)

/* Weak references: a program that is linked without them does without ampere. */
extern void *dlopen(const char *file, int mode) __attribute__((weak));
extern void *dlsym(void *__restrict__ handle, const char *__restrict__ name) __attribute__((weak));

/* The library's functions; `ampere_none` if there is no library, and null before the first call. Each program or library that
 * uses this header has its own variables. */
__attribute__((weak, visibility("hidden"))) const struct ampere_functions *ampere_found;
__attribute__((weak, visibility("hidden"))) struct ampere_functions ampere_none;
/* Whether the library has ranges: its first versions had only four functions. */
__attribute__((weak, visibility("hidden"))) int ampere_has_ranges;

__attribute__((weak, visibility("hidden"), noinline, cold, no_instrument_function)) const struct ampere_functions *ampere_find(void) {
	enum { AMPERE_LAZY = 1, AMPERE_AT_BASE = 7 };
	const struct ampere_functions *found = 0;
	const char *file = getenv("AMPERE_INTERFACE");
	/* This is the address of the loader. A statically linked program has none, and must not open libraries. */
	int is_dynamic = getauxval(AMPERE_AT_BASE) != 0;
	void *library = file && *file && is_dynamic && dlopen && dlsym ? dlopen(file, AMPERE_LAZY) : 0;
	if (library) {
		/* ISO C does not convert the result of dlsym to a function. */
		union {
			void *symbol;
			const struct ampere_functions *(*call)(unsigned version);
			unsigned (*functions)(void);
		} get;
		get.symbol = dlsym(library, "ampere_interface");
		if (get.symbol) found = get.call(1);
		get.symbol = dlsym(library, "ampere_interface_functions");
		if (get.symbol && get.functions() >= 6) __atomic_store_n(&ampere_has_ranges, 1, __ATOMIC_RELAXED);
	}
	if (!found) found = &ampere_none;
	__atomic_store_n(&ampere_found, found, __ATOMIC_RELEASE);
	return found;
}

AMPERE_NOT_RECORDED static __inline__ const struct ampere_functions *ampere_functions_or_none(void) {
	const struct ampere_functions *found = __atomic_load_n(&ampere_found, __ATOMIC_ACQUIRE);
	return __builtin_expect(!found, 0) ? ampere_find() : found;
}

#define AMPERE_CALL(function, arguments)                                          \
	do {                                                                          \
		const struct ampere_functions *ampere_table_ = ampere_functions_or_none(); \
		if (ampere_table_ != &ampere_none) ampere_table_->function arguments;      \
	} while (0)

#define AMPERE_RANGE_CALL(call)                                                                     \
	do {                                                                                            \
		const struct ampere_functions *ampere_table_ = ampere_functions_or_none();                   \
		if (ampere_table_ != &ampere_none && __atomic_load_n(&ampere_has_ranges, __ATOMIC_RELAXED)) call; \
	} while (0)

#else /* ampere runs on Linux. */
#define AMPERE_CALL(function, arguments) ((void)0)
#define AMPERE_RANGE_CALL(call) ((void)0)
#endif

/* Begins a region of the calling thread. */
AMPERE_NOT_RECORDED static __inline__ void ampere_region_begin(const char *name) { AMPERE_CALL(region_begin, (name)); (void)name; }

/* Ends the innermost open region of this name, and all regions that began inside. */
AMPERE_NOT_RECORDED static __inline__ void ampere_region_end(const char *name) { AMPERE_CALL(region_end, (name)); (void)name; }

/* Marks a moment: a region that ends at once. */
AMPERE_NOT_RECORDED static __inline__ void ampere_mark(const char *name) { AMPERE_CALL(mark, (name)); (void)name; }

/* Counts units of work that were done, such as time steps. They are finite and more than 0. */
AMPERE_NOT_RECORDED static __inline__ void ampere_work(const char *name, double units) {
	AMPERE_CALL(work, (name, units));
	(void)name;
	(void)units;
}

/* Starts a range, which may overlap others, and returns its number for the end; 0 without ampere. */
AMPERE_NOT_RECORDED static __inline__ unsigned long long ampere_range_start(const char *name) {
	unsigned long long range = 0;
	AMPERE_RANGE_CALL(range = ampere_table_->range_start(name));
	(void)name;
	return range;
}

/* Ends a range, on any thread. */
AMPERE_NOT_RECORDED static __inline__ void ampere_range_end(unsigned long long range) {
	AMPERE_RANGE_CALL(ampere_table_->range_end(range));
	(void)range;
}

#ifdef __cplusplus
}
#endif
#endif
