/* The start of the preloaded library.
 *
 * It works in programs that use glibc. In any other program, and where ampere is switched off, it does nothing. */
#include "stub.h"

/* These references may stay unresolved: C libraries other than glibc lack the last one. */
__attribute__((weak)) int dl_iterate_phdr(visit *, void *);
__attribute__((weak)) int dladdr(const void *, void *);
__attribute__((weak)) unsigned long getauxval(unsigned long);
__attribute__((weak)) const char *gnu_get_libc_version(void);

/* AddressSanitizer's library refuses to be loaded after another library, unless its default options allow that. It gets them
 * from the first function of this name. This library exports only this name and the one in rocm.c. */
__attribute__((weak, visibility("default"))) const char *__asan_default_options(void) { return "verify_asan_link_order=0"; }

/* Finds the C library and this library. */
static int find_own(struct info *info, size_t size, void *data) {
	struct object object;
	(void)size;
	++*(unsigned *)data;
	if (!read_object(&object, info)) return 0;
	uintptr_t libc = (uintptr_t)gnu_get_libc_version, own = (uintptr_t)&stub;
	if (object.start <= libc && libc < object.end) {
		stub.libc_start = object.start;
		/* The C library's own functions, even if the program defines others of these names. */
		stub.iterate = (int (*)(visit *, void *))defined_in(&object, "dl_iterate_phdr");
		stub.address = (int (*)(const void *, void *))defined_in(&object, "dladdr");
	} else if (object.start <= own && own < object.end) {
		stub.base = object.base;
		stub.is_late = stub.libc_start != 0;
		size_t n = length(object.name);
		for (size_t i = 0; i <= n && n < sizeof stub.path; i++) stub.path[i] = object.name[i];
	}
	return 0;
}

/* This library is DIRECTORY/ampere-preload/PLATFORM/FILE, and the host is in DIRECTORY. */
static int find_host(void) {
	static const char name[] = "libampere_host.so";
	size_t end = length(stub.path);
	for (int level = 0; level < 3; level++) {
		while (end && stub.path[end - 1] != '/') end--;
		if (!end) return 0;
		if (level < 2) end--;
	}
	if (end + sizeof name > sizeof stub.host) return 0;
	for (size_t i = 0; i < end; i++) stub.host[i] = stub.path[i];
	for (size_t i = 0; i < sizeof name; i++) stub.host[end + i] = name[i];
	return 1;
}

const char *value_of(char **environment, const char *name) {
	for (; environment && *environment; environment++)
		if (begins_with(*environment, name) && (*environment)[length(name)] == '=') return *environment + length(name) + 1;
	return NULL;
}

static int find_functions(void) {
	for (int which = 0; which < LOCALS; which++) stub.real[which] = definition_of(local_names[which], 1).address;
	stub.environment = definition_of("environ", 1).address;
	stub.error = (char *(*)(void))definition_of("dlerror", 1).address;
	stub.error_number = (int *(*)(void))definition_of("__errno_location", 1).address;
	wrap_calls();
	wrap_programs();
	return stub.real[DLSYM] && stub.real[DLOPEN] && stub.environment && stub.error && stub.error_number;
}

/* Whether Score-P measures this process, or ThreadSanitizer checks it, which would report the host's own accesses as races. */
static int is_host_unwanted(void) {
	static const char *const names[] = {"SCOREP_InitMeasurement", "SCOREP_Location_GetId", "__tsan_init"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (definition_of(names[i], 1).address) return 1;
	return 0;
}

/* Prepares this library, and measures the process unless ampere is switched off. */
static int prepare(void) {
	if (!gnu_get_libc_version || !dl_iterate_phdr || !dladdr || !getauxval) return 0;
	stub.process = SYSTEM(SYS_getpid, 0, 0, 0, 0);
	stub.page = getauxval(AT_PAGESZ);
	dl_iterate_phdr(find_own, &stub.start_count);
	/* Before glibc 2.34, dladdr is in libdl, as dlopen and dlsym are. A program that does not load libdl at its start is not
	 * measured. */
	if (stub.iterate && !stub.address) stub.address = (int (*)(const void *, void *))definition_of("dladdr", 1).address;
	if (stub.is_late || !stub.iterate || !stub.address || !find_functions()) return 0;
	const char *off = value_of(*stub.environment, "AMPERE_DISABLE");
	if (off && *off && !is_equal(off, "0")) return 1;
	if (!find_host()) return 1;
	stub.session = value_of(*stub.environment, "AMPERE_SESSION");
	stub.shared_memory = value_of(*stub.environment, "AMPERE_SHM");
	if (is_host_unwanted()) stub.host_state = HOST_REFUSED;
	treat_new_objects();
	return 1;
}

int start_once(void) {
	static enum { NOT_STARTED, STARTED, FAILED } state;
	if (state == NOT_STARTED) {
		state = FAILED;
		if (prepare()) state = STARTED;
	}
	return state == STARTED;
}

__attribute__((constructor)) static void start(void) { start_once(); }
