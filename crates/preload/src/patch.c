/* Replaces entries of objects' tables: those through which an object calls, or takes the address of, a function of another
 * one. */
#include "stub.h"

const char *const local_names[LOCALS] = {"dlsym", "dlopen", "execve", "execv",  "execvp",      "execvpe",
                                         "execl", "execlp", "execle", "fexecve", "posix_spawn", "posix_spawnp"};

enum kind { NOTHING, LOCAL, HOSTS, HOOK };

/* Names such as MPIX_Barrier_init belong to functions that are not in the library's version of the standard. */
static int is_mpi_in_c(const char *name) {
	const char *public = name + (*name == 'P');
	return begins_with(public, "MPI_") || begins_with(public, "MPIX_");
}

static int is_mpi_in_fortran(const char *name) {
	const char *public = name + (*name == 'p');
	return begins_with(public, "mpi_") || begins_with(public, "mpix_");
}

int host_may_wrap(const char *name) {
	return is_mpi_in_c(name) || is_mpi_in_fortran(name) || begins_with(name, "roctxRange") ||
	       is_equal(name, "roctxMarkA") || begins_with(name, "cuptiSubscribe");
}

static enum kind kind_of(const char *name, enum local *which) {
	if (host_may_wrap(name)) return HOSTS;
	if (begins_with(name, "__cyg_profile_func_e")) return HOOK;
	for (int i = 0; i < LOCALS; i++) {
		if (is_equal(name, local_names[i])) {
			*which = (enum local)i;
			return LOCAL;
		}
	}
	if (is_equal(name, "mlockall")) stub.locks_memory = 1;
	return NOTHING;
}

static int protect(uintptr_t start, uintptr_t end, int how) {
	return SYSTEM(SYS_mprotect, start, end - start, how, 0) == 0;
}

enum { READ = 1, READ_WRITE = 3 };

/* Relocations of entries that hold a function's address: for calls, for references, and in data. */
#if defined __x86_64__
enum { CALL_ENTRY = R_X86_64_JUMP_SLOT, REFERENCE = R_X86_64_GLOB_DAT, IN_DATA = R_X86_64_64 };
#elif defined __aarch64__
enum { CALL_ENTRY = R_AARCH64_JUMP_SLOT, REFERENCE = R_AARCH64_GLOB_DAT, IN_DATA = R_AARCH64_ABS64 };
#endif

/* The pages of an object that have been made writable. */
struct window {
	const struct object *object;
	int is_relro_open;
	uintptr_t page;
};

static int is_in_writable_segment(const struct object *object, uintptr_t place) {
	for (unsigned i = 0; i < object->header_count; i++) {
		const Elf64_Phdr *header = &object->headers[i];
		uintptr_t start = object->base + header->p_vaddr;
		if (header->p_type == PT_LOAD && header->p_flags & PF_W && start <= place && place < start + header->p_memsz) return 1;
	}
	return 0;
}

/* Makes a place writable. Returns zero if it cannot be: the system refuses, or the place lies in the program's text. */
static int open_window(struct window *window, uintptr_t place) {
	const struct object *object = window->object;
	if (object->protected_start <= place && place < object->protected_end) {
		if (!window->is_relro_open) window->is_relro_open = protect(object->protected_start, object->protected_end, READ_WRITE);
		return window->is_relro_open;
	}
	uintptr_t page = place & -PAGE;
	if (window->page != page && is_in_writable_segment(object, place) && protect(page, page + PAGE, READ_WRITE)) window->page = page;
	return window->page == page;
}

/* Whether a call of this name from the object is inside an MPI library, and so not the program's. The exception is a separate
 * Fortran library: it converts its arguments and calls C's functions, and the messages are recorded from these calls. */
static int is_within_mpi(const struct object *object, const char *name) {
	return is_mpi(object) && (!is_mpi_in_c(name) || defined_in(object, "PMPI_Init"));
}

/* The new value of an entry, or null if it is not replaced. */
static void *replacement(const struct object *object, const char *name, struct treatment *treatment, void **expected) {
	enum local which = LOCALS;
	enum kind kind = kind_of(name, &which);
	if (kind == LOCAL) {
		*expected = stub.real[which];
		return *expected ? stub.wrapper[which] : NULL;
	}
	if (kind == NOTHING || stub.host_state == HOST_REFUSED || kind == HOSTS && is_within_mpi(object, name)) return NULL;
	struct definition definition = definition_of(name, treatment->is_at_start);
	/* The C library's function hooks do nothing and may be replaced. Other definitions belong to the program. */
	if (!definition.address || kind == HOOK && !definition.is_libc) return NULL;
	if (definition.is_ambiguous) return NULL;
	*expected = definition.address;
	if (stub.host_state == HOST_LOADED) return stub.wrap(name, definition.address);
	treatment->needs_host = 1;
	return NULL;
}

static void treat_entry(struct window *window, const Elf64_Rela *relocation, struct treatment *treatment) {
	const struct object *object = window->object;
	unsigned type = ELF64_R_TYPE(relocation->r_info);
	if (type != CALL_ENTRY && type != REFERENCE && type != IN_DATA) return;
	const Elf64_Sym *symbol = &object->symbols[ELF64_R_SYM(relocation->r_info)];
	if (symbol->st_shndx != SHN_UNDEF || !symbol->st_name || ((type == REFERENCE || type == IN_DATA) && relocation->r_addend)) return;
	void *expected = NULL, *ours = replacement(object, object->strings + symbol->st_name, treatment, &expected);
	void **entry = (void **)(object->base + relocation->r_offset);
	if (!ours || (uintptr_t)entry % sizeof *entry) return;
	void *held = __atomic_load_n(entry, __ATOMIC_RELAXED);
	uintptr_t value = (uintptr_t)held;
	/* An entry that is resolved at the first call points into the object itself. Any other value was written by another tool. */
	int is_unresolved = type == CALL_ENTRY && object->start <= value && value < object->end;
	if (held != expected && !is_unresolved) return;
	if (open_window(window, (uintptr_t)entry))
		__atomic_store_n(entry, ours, __ATOMIC_RELEASE);
	else
		treatment->is_refused = 1;
}

void treat(const struct object *object, struct treatment *treatment) {
	struct window window = {.object = object};
	for (size_t i = 0; i < object->relocation_count; i++) treat_entry(&window, &object->relocations[i], treatment);
	for (size_t i = 0; i < object->call_count; i++) treat_entry(&window, &object->calls[i], treatment);
	if (window.is_relro_open) protect(object->protected_start, object->protected_end, READ);
}
