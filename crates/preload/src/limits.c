/* Checks whether the process has enough memory for the host and the plugin, and leaves notes about processes that are not
 * recorded. */
#include "stub.h"

/* The host, the plugin and the rings of some threads take 15 to 40 MB. The needs of the program itself are not known, so if there
 * is a limit, far more than that has to be free. */
#define ROOM (256ULL << 20)
#define NO_LIMIT (~0ULL)
enum { LIMIT_DATA = 2, LIMIT_MEMLOCK = 8, LIMIT_AS = 9 };

static unsigned long long limit(int which) {
	unsigned long long limits[2];
	return SYSTEM(SYS_getrlimit, which, limits, 0, 0) ? NO_LIMIT : limits[0];
}

static int leaves_room(unsigned long long limit, unsigned long long used) {
	return limit == NO_LIMIT || (limit > used && limit - used >= ROOM);
}

/* Bytes of the address space and of data, as the kernel counts them. Returns zero if they are not known. */
static int read_use(unsigned long long *all, unsigned long long *data) {
	char text[256];
	long file = SYSTEM(SYS_openat, WORKING_DIRECTORY, "/proc/self/statm", OPEN_READ | OPEN_CLOEXEC, 0);
	if (file < 0) return 0;
	long n = SYSTEM(SYS_read, file, text, sizeof text - 1, 0);
	SYSTEM(SYS_close, file, 0, 0, 0);
	unsigned long long values[6] = {0};
	int at = 0;
	for (long i = 0; i < n && at < 6; i++) {
		if (text[i] >= '0' && text[i] <= '9')
			values[at] = values[at] * 10 + (unsigned)(text[i] - '0');
		else
			at++;
	}
	*all = values[0] * PAGE;
	*data = values[5] * PAGE;
	return at >= 5;
}

/* Whether this process is exempt from limits on locked memory. */
static int may_lock_all(void) {
	enum { VERSION = 0x20080522, IPC_LOCK = 14 };
	struct { unsigned version; int process; } header = {VERSION, 0};
	struct { unsigned effective, permitted, inheritable; } sets[2] = {{0, 0, 0}, {0, 0, 0}};
	return SYSTEM(SYS_capget, &header, sets, 0, 0) == 0 && sets[0].effective >> IPC_LOCK & 1;
}

int has_room(void) {
	unsigned long long space = limit(LIMIT_AS), data = limit(LIMIT_DATA), locked = NO_LIMIT, all = 0, of_data = 0;
	/* With mlockall, whether called before or later, all mapped memory counts. */
	if (stub.locks_memory && !may_lock_all()) locked = limit(LIMIT_MEMLOCK);
	if (space == NO_LIMIT && data == NO_LIMIT && locked == NO_LIMIT) return 1;
	return read_use(&all, &of_data) && leaves_room(space, all) && leaves_room(data, of_data) && leaves_room(locked, all);
}

/* A path under construction. If it fills the buffer, the path was too long. */
struct path {
	char text[512];
	size_t length;
};

static void add(struct path *path, const char *more) {
	while (*more && path->length < sizeof path->text - 1) path->text[path->length++] = *more++;
	path->text[path->length] = 0;
}

static void add_number(struct path *path, long number) {
	char digits[24] = {0};
	int at = sizeof digits - 1;
	do digits[--at] = (char)('0' + number % 10);
	while (number /= 10);
	add(path, digits + at);
}

/* Adds a session's name, with the same characters as `sanitise` in crates/ring/src/session_name.rs. */
static void add_name(struct path *path, const char *name) {
	for (int left = 120; *name && left; name++) {
		unsigned char c = *name;
		if ((c & 0xC0) == 0x80) continue; /* it belongs to the UTF-8 character before it */
		int is_letter = (c | 32) >= 'a' && (c | 32) <= 'z';
		int is_allowed = is_letter || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
		char one[] = {is_allowed ? c : '_', 0};
		add(path, one);
		left--;
	}
}

/* Makes a file in the run's session (crates/ring/src/session.rs), such as "unrecorded-m1234": `what` is the letter of a reason
 * (stub.h). The file is empty, so that it takes no memory. */
void note(char what) {
	if (!stub.session) return;
	struct path path;
	path.length = 0;
	char name[] = {'/', 'u', 'n', 'r', 'e', 'c', 'o', 'r', 'd', 'e', 'd', '-', what, 0};
	add(&path, stub.shared_memory ? stub.shared_memory : "/dev/shm");
	add(&path, "/ampere-");
	add_number(&path, SYSTEM(SYS_geteuid, 0, 0, 0, 0));
	add(&path, "/s-");
	add_name(&path, stub.session);
	add(&path, name);
	add_number(&path, SYSTEM(SYS_getpid, 0, 0, 0, 0));
	if (path.length == sizeof path.text - 1) return;
	long file = SYSTEM(SYS_openat, WORKING_DIRECTORY, path.text, OPEN_NEW | OPEN_CLOEXEC, 0600);
	if (file >= 0) SYSTEM(SYS_close, file, 0, 0, 0);
}
