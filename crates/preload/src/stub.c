/* The start of the preloaded library, and when it loads the host.
 *
 * It works in programs that use glibc. In any other program, and where ampere is switched off, it does nothing.
 *
 * Objects are treated when the program starts, and again when it asks for a function of an object that it has opened. The
 * record of treated objects changes only under the loader's own lock, which dl_iterate_phdr takes: we have no lock that could
 * be waited for. */
#include "stub.h"

struct stub stub;

/* These references may stay unresolved: other C libraries lack the last one. */
__attribute__((weak)) int dl_iterate_phdr(visit *, void *);
__attribute__((weak)) int dladdr(const void *, void *);
__attribute__((weak)) const char *gnu_get_libc_version(void);

/* The host's record of a thread (crates/host/src/preloaded.rs). It is here because a library that is loaded at the start takes
 * nothing from the little room for thread-local storage that the loader keeps for later libraries. */
static __thread long slot[4] __attribute__((tls_model("initial-exec"), aligned(16)));

/* What this library gives to the host. */
struct offer {
	long slot_offset;
	void (*treat_new_objects)(void);
};

/* AddressSanitizer's library refuses to be loaded after another library, unless its default options allow that: it gets them
 * from the first function of this name. This is the only name that this library exports. */
__attribute__((weak, visibility("default"))) const char *__asan_default_options(void) { return "verify_asan_link_order=0"; }

/* The loader's objects at one moment. */
struct snapshot {
	unsigned long long adds, subs;
	unsigned count;
	int is_changed;
};

static int count_one(struct info *info, size_t size, void *count) {
	(void)info, (void)size;
	++*(unsigned *)count;
	return 0;
}

/* Called for the first object only: whether objects were opened since the last time, and how many there are. */
static int take_snapshot(struct info *info, size_t size, void *data) {
	struct snapshot *now = data;
	(void)size;
	now->adds = info->adds;
	now->subs = info->subs;
	now->is_changed = !stub.has_treated || info->adds != stub.adds;
	if (now->is_changed) stub.iterate(count_one, &now->count);
	return 1;
}

struct round {
	struct snapshot objects;
	unsigned at, first;
	struct treatment treatment;
	int is_done;
};

/* Whether the object is the host or the plugin. */
static int is_ours(const struct object *object) {
	const char *name = object->name + length(object->name);
	while (name > object->name && name[-1] != '/') name--;
	return begins_with(name, "libampere_") || begins_with(name, "libscorep_substrate_ampere");
}

/* Whether a new object defines functions that older ones may refer to. */
static int find_new_mpi(struct info *info, size_t size, void *data) {
	struct round *round = data;
	struct object object;
	(void)size;
	if (round->at++ < round->first || !read_object(&object, info) || !is_mpi(&object)) return 0;
	round->first = 0;
	return 1;
}

static int treat_one(struct info *info, size_t size, void *data) {
	struct round *round = data;
	struct object object;
	(void)size;
	unsigned at = round->at++;
	if (at >= round->objects.count) return 1;
	if (at < round->first || !read_object(&object, info) || is_ours(&object)) return 0;
	round->treatment.is_at_start = at < stub.start_count;
	treat(&object, &round->treatment);
	return 0;
}

/* Called for the first object only, under the loader's lock: treats the new objects, unless some were closed meanwhile. */
static int treat_new(struct info *info, size_t size, void *data) {
	struct round *round = data;
	(void)size;
	if (info->subs != round->objects.subs) return 1;
	unsigned long long opened = round->objects.adds - stub.adds;
	int knows_all = stub.has_treated && opened < round->objects.count;
	round->first = knows_all ? round->objects.count - (unsigned)opened : 0;
	stub.iterate(find_new_mpi, round);
	round->at = 0;
	stub.iterate(treat_one, round);
	/* Objects that need the host are treated again when it is loaded. */
	if (!round->treatment.needs_host) {
		stub.adds = round->objects.adds;
		stub.has_treated = 1;
	}
	round->is_done = 1;
	return 1;
}

enum { ROUNDS_MAX = 16 };

void treat_new_objects(void) {
	for (unsigned tries = 0; tries < ROUNDS_MAX; tries++) {
		struct round round = {.at = 0};
		stub.iterate(take_snapshot, &round.objects);
		if (!round.objects.is_changed) return;
		/* Another thread may be opening one of them, and the loader may still be writing into it. dladdr waits for that. */
		void *unused[4];
		stub.address((void *)&stub, unused);
		stub.iterate(treat_new, &round);
		if (round.treatment.is_refused) note('p');
		if (round.treatment.needs_host) load_host();
	}
}

int load_host(void) {
	if (stub.host_state != HOST_UNKNOWN) return stub.host_state == HOST_LOADED;
	if (!has_room()) {
		stub.host_state = HOST_REFUSED;
		note('m');
		return 0;
	}
	int *error_number = stub.error_number(), before = *error_number;
	void *(*open)(const char *, int) = (void *(*)(const char *, int))stub.real[DLOPEN];
	void *(*find)(void *, const char *) = (void *(*)(void *, const char *))stub.real[DLSYM];
	enum { NOW = 2, NODELETE = 0x1000 };
	void *host = open(stub.host, NOW | NODELETE);
	void *(*attach)(const struct offer *) = host ? (void *(*)(const struct offer *))find(host, "ampere_host_attach") : NULL;
	if (!attach) {
		stub.error();
		stub.host_state = HOST_REFUSED;
		note('h');
	} else {
		static struct offer offer;
		char *thread;
		__asm__("mov %%fs:0, %0" : "=r"(thread));
		offer.slot_offset = (char *)slot - thread;
		offer.treat_new_objects = treat_new_objects;
		stub.wrap = (void *(*)(const char *, void *))attach(&offer);
		stub.host_state = stub.wrap ? HOST_LOADED : HOST_REFUSED;
	}
	*error_number = before;
	return stub.host_state == HOST_LOADED;
}

/* Finds the C library and this library. */
static int find_own(struct info *info, size_t size, void *data) {
	struct object object;
	(void)size;
	++*(unsigned *)data;
	if (!read_object(&object, info)) return 0;
	uintptr_t libc = (uintptr_t)gnu_get_libc_version, own = (uintptr_t)&stub;
	if (object.start <= libc && libc < object.end) {
		stub.libc_start = object.start;
		stub.libc_end = object.end;
		/* The C library's own functions, even if the program defines others of these names. */
		stub.iterate = (int (*)(visit *, void *))defined_in(&object, "dl_iterate_phdr");
		stub.address = (int (*)(const void *, void *))defined_in(&object, "dladdr");
	} else if (object.start <= own && own < object.end) {
		size_t n = length(object.name);
		for (size_t i = 0; i <= n && n < sizeof stub.path; i++) stub.path[i] = object.name[i];
	}
	return 0;
}

/* This library is DIRECTORY/ampere-preload/PLATFORM/FILE, and the host lies in DIRECTORY. */
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

static const char *variable(char **environment, const char *name) {
	for (; environment && *environment; environment++)
		if (begins_with(*environment, name) && (*environment)[length(name)] == '=') return *environment + length(name) + 1;
	return NULL;
}

static int find_functions(void) {
	for (int which = 0; which < LOCALS; which++) stub.real[which] = definition_of(local_names[which], 1).address;
	stub.environment = definition_of("environ", 1).address;
	stub.error = (char *(*)(void))definition_of("dlerror", 1).address;
	stub.error_number = (int *(*)(void))definition_of("__errno_location", 1).address;
	return stub.real[DLSYM] && stub.real[DLOPEN] && stub.environment && stub.error && stub.error_number;
}

/* Whether Score-P measures this process. */
static int is_score_p_here(void) {
	return definition_of("SCOREP_InitMeasurement", 1).address || definition_of("SCOREP_Location_GetId", 1).address;
}

__attribute__((constructor)) static void start(int argc, char **argv, char **environment) {
	(void)argc, (void)argv;
	if (!gnu_get_libc_version || !dl_iterate_phdr || !dladdr) return;
	const char *off = variable(environment, "AMPERE_DISABLE");
	if (off && *off && !is_equal(off, "0")) return;
	dl_iterate_phdr(find_own, &stub.start_count);
	if (!stub.iterate || !stub.address || !find_host() || !find_functions()) return;
	stub.session = variable(environment, "AMPERE_SESSION");
	stub.shared_memory = variable(environment, "AMPERE_SHM");
	if (is_score_p_here()) stub.host_state = HOST_REFUSED;
	treat_new_objects();
}
