/* rocprofiler_set_api_table: rocprofiler-register calls the first function of this name when a ROCm runtime starts in a process
 * for which ROCP_TOOL_LIBRARIES is set.
 *
 * Without this function, rocprofiler-register looks for rocprofiler-sdk and aborts the program if there is none: some packages of
 * ROCm, such as those for Python, contain only rocprofiler-register. A library with kernels starts the runtime even before this
 * library's own start function has run. */
#include "stub.h"

typedef int set_api_table(const char *, uint64_t, uint64_t, void **, uint64_t);

enum { LAZY = 1, NOLOAD = 4, GLOBAL = 0x100 };

/* Opens the file of this name that is next to the caller's object. */
static void *open_next_to(const void *caller, const char *name, void *(*open)(const char *, int)) {
	/* What dladdr gives: the object's path and base, and a symbol's name and address. */
	struct {
		const char *path;
		void *base;
		const char *symbol;
		void *address;
	} object;
	char path[1024];
	if (!stub.address(caller, &object) || !object.path) return NULL;
	size_t folder = (size_t)(file_name(object.path) - object.path), end = length(name);
	if (folder + end >= sizeof path) return NULL;
	for (size_t i = 0; i < folder; i++) path[i] = object.path[i];
	for (size_t i = 0; i <= end; i++) path[folder + i] = name[i];
	return open(path, GLOBAL | LAZY);
}

/* The real function, or null. The places are those where rocprofiler-register looks. */
static set_api_table *find_real(const void *caller) {
	void *(*open)(const char *, int) = (void *(*)(const char *, int))stub.real[DLOPEN];
	void *(*find)(void *, const char *) = (void *(*)(void *, const char *))stub.real[DLSYM];
	const char *path = value_of(*stub.environment, "ROCPROFILER_REGISTER_LIBRARY");
	if (!path || !*path) path = "librocprofiler-sdk.so";
	void *library = open(path, NOLOAD | LAZY);
	if (!library) library = open(path, GLOBAL | LAZY);
	if (!library) library = open_next_to(caller, file_name(path), open);
	set_api_table *real = library ? (set_api_table *)find(library, "rocprofiler_set_api_table") : NULL;
	if (!real) stub.error();
	/* The library will open tools and look up their functions. It is treated first, with all objects opened so far, so that it
	 * calls our wrappers of dlopen and dlsym. */
	if (real && stub.host[0]) treat_new_objects();
	return real;
}

__attribute__((visibility("default"))) int rocprofiler_set_api_table(const char *name, uint64_t version, uint64_t instance, void **tables, uint64_t count) {
	if (!start_once()) return 0;
	set_api_table *real = find_real(__builtin_return_address(0));
	if (real && real != rocprofiler_set_api_table) return real(name, version, instance, tables, count);
	note('k');
	return 0;
}
