/* The functions that start programs.
 *
 * The loader of the next program prints a line if it cannot read this library: after a chroot, and for a user who may not read
 * its directory. In these cases we remove the library from the new program's LD_PRELOAD. */
#include "stub.h"

static const char variable[] = "LD_PRELOAD=", file[] = "/libampere_preload.so";

/* Returns the length of the text up to a separator; `is_own`: whether it ends with this library's name. */
static size_t entry(const char *text, int *is_own) {
	size_t n = 0;
	while (text[n] && text[n] != ':' && text[n] != ' ') n++;
	size_t name = sizeof file - 1;
	*is_own = n >= name;
	for (size_t i = 0; *is_own && i < name; i++) *is_own = text[n - name + i] == file[i];
	return n;
}

static int has_own(const char *text) {
	for (int is_own; *text; text += *text != 0) {
		text += entry(text, &is_own);
		if (is_own) return 1;
	}
	return 0;
}

/* faccessat(2) checks the rights of the real user. It ignores capabilities, which a program such as setpriv loses when it starts
 * the next one. */
static int can_read_own(void) {
	enum { READ_OK = 4 };
	return SYSTEM(SYS_faccessat, WORKING_DIRECTORY, stub.path, READ_OK, 0) == 0;
}

/* The index of LD_PRELOAD in this environment if it names this library and the new program could not read it; otherwise -1. */
static long unreadable_preload(char *const *environment) {
	for (long i = 0; environment && environment[i]; i++)
		if (begins_with(environment[i], variable)) return has_own(environment[i] + sizeof variable - 1) && !can_read_own() ? i : -1;
	return -1;
}

enum { COPY_BYTES_MAX = 1 << 16 };

/* The size of the copy in bytes; 0 if it would be too large for the stack. */
static size_t copy_size(char *const *environment, long at) {
	size_t count = 0;
	while (environment[count]) count++;
	size_t bytes = (count + 1) * sizeof *environment + length(environment[at]) + 1;
	return bytes <= COPY_BYTES_MAX ? bytes : 0;
}

/* Copies the environment without this library in LD_PRELOAD, and without LD_PRELOAD if nothing else is in it. */
static char *const *copy(char *const *environment, long at, char **to) {
	size_t count = 0;
	while (environment[count]) count++;
	char *text = (char *)(to + count + 1), *end = text;
	for (const char *c = variable; *c; c++) *end++ = *c;
	const char *begun = end;
	for (const char *from = environment[at] + sizeof variable - 1; *from;) {
		int is_own;
		size_t n = entry(from, &is_own);
		if (!is_own && n) {
			if (end != begun) *end++ = ':';
			for (size_t i = 0; i < n; i++) *end++ = from[i];
		}
		from += n + (from[n] != 0);
	}
	*end = 0;
	size_t kept = 0;
	for (size_t i = 0; i < count; i++) {
		if (i != (size_t)at)
			to[kept++] = environment[i];
		else if (end != begun)
			to[kept++] = text;
	}
	to[kept] = NULL;
	return to;
}

/* The environment of the next program: the given one, or a copy in the frame of the function that uses this macro. */
#define NEXT_ENVIRONMENT(environment)                                                            \
	({                                                                                           \
		char *const *given = (environment);                                                      \
		long at = unreadable_preload(given);                                                     \
		size_t bytes = at < 0 ? 0 : copy_size(given, at);                                        \
		bytes ? copy(given, at, __builtin_alloca_with_align(bytes, 128)) : given;                \
	})

typedef char *const *list;
#define CALL_REAL(which, type, ...) ((type)stub.real[which])(__VA_ARGS__)
typedef int with_environment(const char *, list, list);

static int of_execve(const char *path, list words, list environment) {
	return CALL_REAL(EXECVE, with_environment *, path, words, NEXT_ENVIRONMENT(environment));
}
static int of_execvpe(const char *file, list words, list environment) {
	return CALL_REAL(EXECVPE, with_environment *, file, words, NEXT_ENVIRONMENT(environment));
}
static int of_execv(const char *path, list words) { return of_execve(path, words, *stub.environment); }
static int of_execvp(const char *file, list words) { return of_execvpe(file, words, *stub.environment); }
static int of_fexecve(int descriptor, list words, list environment) {
	return CALL_REAL(FEXECVE, int (*)(int, list, list), descriptor, words, NEXT_ENVIRONMENT(environment));
}

typedef int spawns(int *, const char *, const void *, const void *, list, list);
static int of_spawn(int *pid, const char *path, const void *actions, const void *how, list words, list environment) {
	return CALL_REAL(SPAWN, spawns *, pid, path, actions, how, words, NEXT_ENVIRONMENT(environment));
}
static int of_spawnp(int *pid, const char *file, const void *actions, const void *how, list words, list environment) {
	return CALL_REAL(SPAWNP, spawns *, pid, file, actions, how, words, NEXT_ENVIRONMENT(environment));
}

/* Counts the argument strings of a function with a variable number of arguments, such as execl. */
static size_t count_words(va_list words) {
	size_t count = 1;
	while (va_arg(words, char *)) count++;
	return count;
}
#define TAKE_WORDS(first)                                                   \
	va_list all, again;                                                     \
	va_start(all, first);                                                   \
	va_copy(again, all);                                                    \
	size_t count = count_words(again);                                      \
	va_end(again);                                                          \
	char *words[count + 1];                                                 \
	words[0] = (char *)first;                                               \
	for (size_t i = 1; i <= count; i++) words[i] = va_arg(all, char *)

static int of_execl(const char *path, const char *first, ...) {
	TAKE_WORDS(first);
	va_end(all);
	return of_execve(path, words, *stub.environment);
}
static int of_execlp(const char *file, const char *first, ...) {
	TAKE_WORDS(first);
	va_end(all);
	return of_execvpe(file, words, *stub.environment);
}
static int of_execle(const char *path, const char *first, ...) {
	TAKE_WORDS(first);
	list environment = va_arg(all, char **);
	va_end(all);
	return of_execve(path, words, environment);
}

void wrap_programs(void) {
	stub.wrapper[EXECVE] = (void *)of_execve;
	stub.wrapper[EXECV] = (void *)of_execv;
	stub.wrapper[EXECVP] = (void *)of_execvp;
	stub.wrapper[EXECVPE] = (void *)of_execvpe;
	stub.wrapper[EXECL] = (void *)of_execl;
	stub.wrapper[EXECLP] = (void *)of_execlp;
	stub.wrapper[EXECLE] = (void *)of_execle;
	stub.wrapper[FEXECVE] = (void *)of_fexecve;
	stub.wrapper[SPAWN] = (void *)of_spawn;
	stub.wrapper[SPAWNP] = (void *)of_spawnp;
}
