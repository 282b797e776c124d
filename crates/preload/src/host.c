/* Treats new objects, and loads the host when there is something to measure. To treat an object is to replace entries of its
 * tables (patch.c).
 *
 * Objects are treated when the program starts, and again when the program looks up a function in an object that it has opened.
 * The record of treated objects changes only under the loader's own lock, which dl_iterate_phdr takes. So this library needs no
 * lock of its own. */
#include "stub.h"

/* The host's slot of a thread (crates/host/src/preloaded.rs). It is here because a library that is loaded at the start takes
 * nothing from the small space for thread-local storage that the loader keeps for later libraries. */
static __thread long slot[4] __attribute__((tls_model("initial-exec"), aligned(16)));

/* The interface of this library for the host. */
struct offer {
	long slot_offset;
	void (*treat_new_objects)(void);
};

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

/* Called for the first object only. Finds out whether objects were opened since the last time. If so, counts all objects. */
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
	int lacks_layers, is_done;
};

/* Whether the object is the host or the plugin. The libraries that see GPU kernels are treated like others, because they
 * open the host. */
static int is_ours(const struct object *object) {
	const char *name = file_name(object->name);
	return begins_with(name, "libampere_host") || begins_with(name, "libampere_p") || begins_with(name, "libscorep_substrate_ampere");
}

/* Stops at a new object that is an MPI library. Older objects may refer to its functions, so all objects are then treated. */
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
	round->lacks_layers |= is_opencl_without_layers(&object);
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

/* Whether OpenCL's loader is to open ampere's layer. */
static int has_layer(void) {
	const char *gpus = value_of(*stub.environment, "AMPERE_GPU");
	return value_of(*stub.environment, "OPENCL_LAYERS") && !(gpus && is_equal(gpus, "off")) && stub.host_state != HOST_REFUSED;
}

enum { ROUNDS_MAX = 16 };

/* Absent before glibc 2.32. */
__attribute__((weak, visibility("default"))) extern char __libc_single_threaded;

int is_forked_from_threads(void) {
	long process = SYSTEM(SYS_getpid, 0, 0, 0, 0);
	if (&__libc_single_threaded && __libc_single_threaded) stub.process = process;
	return process != stub.process;
}

void treat_new_objects(void) {
	if (is_forked_from_threads()) return;
	for (unsigned tries = 0; tries < ROUNDS_MAX; tries++) {
		struct round round = {.at = 0};
		stub.iterate(take_snapshot, &round.objects);
		if (!round.objects.is_changed) return;
		/* Another thread may be opening an object into which the loader is still writing. dladdr waits until it has finished. */
		void *unused[4];
		stub.address((void *)&stub, unused);
		stub.iterate(treat_new, &round);
		if (round.treatment.is_refused) note('p');
		if (round.lacks_layers && has_layer()) note('o');
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
		stub.host_state = HOST_REFUSED;
		note('h');
	} else {
		static struct offer offer;
		char *thread;
#if defined __x86_64__
		__asm__("mov %%fs:0, %0" : "=r"(thread));
#elif defined __aarch64__
		__asm__("mrs %0, tpidr_el0" : "=r"(thread));
#endif
		offer.slot_offset = (char *)slot - thread;
		offer.treat_new_objects = treat_new_objects;
		stub.wrap = (void *(*)(const char *, void *))attach(&offer);
		stub.host_state = stub.wrap ? HOST_LOADED : HOST_REFUSED;
	}
	/* The host looks up names that may be absent. A program may call dlerror after its own look-up, which was successful. */
	stub.error();
	*error_number = before;
	return stub.host_state == HOST_LOADED;
}
