/* Declarations that the files of the preloaded library share. It uses no C library. */
#ifndef AMPERE_STUB_H
#define AMPERE_STUB_H

#include <elf.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#define HIDDEN __attribute__((visibility("hidden")))
/* The size of a page. AArch64 has kernels with pages of 4, 16 and 64 KiB. */
#define PAGE (stub.page)

/* --- the system ------------------------------------------------------------------------------------------------ */

/* A system call that does not change errno. */
#if defined __x86_64__
static inline long call4(long number, long a, long b, long c, long d) {
	register long r10 __asm__("r10") = d;
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
	return result;
}
enum { SYS_read = 0, SYS_close = 3, SYS_mprotect = 10, SYS_getpid = 39, SYS_getrlimit = 97, SYS_geteuid = 107, SYS_capget = 125, SYS_openat = 257, SYS_faccessat = 269 };
#elif defined __aarch64__
static inline long call4(long number, long a, long b, long c, long d) {
	register long x8 __asm__("x8") = number;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	__asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
	return x0;
}
enum { SYS_faccessat = 48, SYS_openat = 56, SYS_close = 57, SYS_read = 63, SYS_capget = 90, SYS_getrlimit = 163, SYS_getpid = 172, SYS_geteuid = 175, SYS_mprotect = 226 };
#endif
#define SYSTEM(number, a, b, c, d) call4(number, (long)(a), (long)(b), (long)(c), (long)(d))
enum { OPEN_READ = 0, OPEN_NEW = 01 | 0100, OPEN_CLOEXEC = 02000000 };
/* A path that does not start with a slash is relative to the working directory. */
#define WORKING_DIRECTORY (-100)

static inline int is_equal(const char *a, const char *b) {
	while (*a && *a == *b) a++, b++;
	return *a == *b;
}
static inline int begins_with(const char *text, const char *start) {
	while (*start && *text == *start) text++, start++;
	return !*start;
}
static inline size_t length(const char *text) {
	size_t n = 0;
	while (text[n]) n++;
	return n;
}
/* The part of a path behind its last slash. */
static inline const char *file_name(const char *path) {
	const char *name = path;
	for (; *path; path++)
		if (*path == '/') name = path + 1;
	return name;
}

/* --- objects.c ------------------------------------------------------------------------------------------------- */

/* The loader's description of a loaded object, as dl_iterate_phdr gives it. */
struct info {
	uintptr_t base;
	const char *name;
	const Elf64_Phdr *headers;
	uint16_t header_count;
	unsigned long long adds, subs;
};
typedef int visit(struct info *, size_t, void *);

/* A loaded object. Valid while the loader's lock is held. */
struct object {
	uintptr_t base, start, end;
	const char *name;
	const Elf64_Sym *symbols;
	const char *strings;
	const uint32_t *gnu_hash, *hash;
	const uint16_t *versions;
	const Elf64_Rela *relocations, *calls;
	size_t relocation_count, call_count;
	uintptr_t protected_start, protected_end;
	const Elf64_Phdr *headers;
	uint16_t header_count;
};

HIDDEN int read_object(struct object *object, const struct info *info);
/* The address of this object's definition of a name, or null. */
HIDDEN void *defined_in(const struct object *object, const char *name);
/* Whether the object is a part of an MPI library. */
HIDDEN int is_mpi(const struct object *object);
/* Whether the object is a loader of OpenCL that opens no layers: it does not contain the name of their variable. */
HIDDEN int is_opencl_without_layers(const struct object *object);

struct definition {
	void *address;
	/* The definition is in the C library. */
	int is_libc;
	/* Several objects define the name differently, and the reference may be to any of them. */
	int is_ambiguous;
};
/* The definition that a name refers to. is_at_start: whether the object with the reference was loaded when the program
 * started. */
HIDDEN struct definition definition_of(const char *name, int is_at_start);

enum local { DLSYM, DLOPEN, EXECVE, EXECV, EXECVP, EXECVPE, EXECL, EXECLP, EXECLE, FEXECVE, SPAWN, SPAWNP, LOCALS };

struct stub {
	/* The C library's dl_iterate_phdr and dladdr. */
	int (*iterate)(visit *, void *);
	int (*address)(const void *, void *);
	uintptr_t libc_start, page;
	/* Where this library is loaded. It is late, and does nothing, if it comes after the C library: it was not preloaded, but
	 * opened by a program that found its path in a variable. */
	uintptr_t base;
	int is_late;
	/* The number of objects that were loaded when the program started. They are the first in the loader's list, and stay
	 * loaded. */
	unsigned start_count;
	/* The loader's count of opened objects when objects were last treated, and whether any have been treated. */
	unsigned long long adds;
	int has_treated;
	/* Whether an object calls mlockall. */
	int locks_memory;
	/* The functions that this library wraps itself, and their wrappers. */
	void *real[LOCALS], *wrapper[LOCALS];
	char ***environment;
	char *(*error)(void);
	int *(*error_number)(void);
	/* The paths of this library and of the host. */
	char path[512], host[512];
	/* The host's function that returns the wrapper of a function, or null. */
	void *(*wrap)(const char *name, void *target);
	enum { HOST_UNKNOWN, HOST_LOADED, HOST_REFUSED } host_state;
	/* Values of AMPERE_SESSION and AMPERE_SHM. */
	const char *session, *shared_memory;
	/* The process in which objects may be treated: see is_forked_from_threads. */
	long process;
};
HIDDEN extern struct stub stub;

/* --- start.c --------------------------------------------------------------------------------------------------- */

/* The value of a variable, or null. */
HIDDEN const char *value_of(char **environment, const char *name);
/* Prepares this library if it is not prepared yet. Returns whether it can work in this program. */
HIDDEN int start_once(void);

/* --- patch.c --------------------------------------------------------------------------------------------------- */

struct treatment {
	int is_at_start;
	/* Results. needs_host: the host can measure something in this object. is_refused: the system refused to make a page
	 * writable. */
	int needs_host, is_refused;
};
/* Names of the functions that this library wraps itself, by enum local. */
HIDDEN extern const char *const local_names[LOCALS];
/* Replaces the entries of an object that refer to functions for which there are wrappers. */
HIDDEN void treat(const struct object *object, struct treatment *treatment);
/* Whether the host may have a wrapper of this name. */
HIDDEN int host_may_wrap(const char *name);

/* --- host.c ------------------------------------------------------------------------------------------------------ */

/* Whether this process is a child of fork, and its parent had several threads. One of them may have held the loader's lock,
 * which glibc does not release in the child: dl_iterate_phdr would wait for ever. */
HIDDEN int is_forked_from_threads(void);
/* Treats the objects that were opened since the last time. */
HIDDEN void treat_new_objects(void);
/* Loads the host if it is not loaded yet. Returns whether it is loaded now. */
HIDDEN int load_host(void);

/* --- calls.c, programs.c, limits.c ----------------------------------------------------------------------------- */

/* Set the wrappers of the functions that this library wraps itself. */
HIDDEN void wrap_calls(void);
HIDDEN void wrap_programs(void);
/* Whether the process has enough memory for the host and the plugin. */
HIDDEN int has_room(void);
/* Leaves a note in the run's session that explains why nothing is recorded here: 'm', there is too little memory; 'h', the
 * host cannot be loaded; 'p', the system refused to make a page writable, and some calls are not recorded; 'k', GPU kernels are
 * not recorded, because ROCm's library for tools is not installed; 'o', OpenCL's kernels are not recorded, because its loader
 * opens no layers. */
HIDDEN void note(char what);

#endif
