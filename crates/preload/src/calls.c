/* dlopen and dlsym.
 *
 * The results of both depend on their caller: on its library search path, and on the objects that come after it. So our wrapper
 * jumps to the real function, which then sees the program's own call, unless the host has a wrapper of the function that is
 * looked up. */
#include "stub.h"

/* An answer in two registers: the value to return, or the function to jump to. */
struct answer {
	void *value;
	void *jump;
};

static struct answer jumps(enum local which) { return (struct answer){NULL, stub.real[which]}; }
static struct answer returns(void *value) { return (struct answer){value, NULL}; }

#define NEXT ((void *)-1L)

/* Names by which Kokkos, ITT and OpenMP look up the functions of a tool, whose path is in an environment variable. */
static int is_hook(const char *name) {
	return begins_with(name, "kokkosp_") || is_equal(name, "__itt_api_init") || is_equal(name, "ompt_start_tool");
}

/* Whether the handle is that of this library, whose path `ampere run` puts into these tools' variables. In the C library that we
 * support, a handle points to the loader's description of the object, which begins with its base. */
static int is_own(void *handle) { return *(uintptr_t *)handle == stub.base; }

/* In place of this library's hooks, which do not exist, the program gets the host's. A hook of another tool is called by the
 * host's wrapper. Hooks that the other tool lacks stay absent. */
static struct answer answer_hook(void *handle, const char *name) {
	void *(*find)(void *, const char *) = (void *(*)(void *, const char *))stub.real[DLSYM];
	void *found = handle ? find(handle, name) : NULL;
	if (!handle || (!found && !is_own(handle)) || !load_host()) return jumps(DLSYM);
	void *hook = stub.wrap(name, found);
	if (!hook) return jumps(DLSYM);
	if (!found) stub.error(); /* dlerror: discards the error of the look-up that failed */
	return returns(hook);
}

/* Called by the assembly below. */
__attribute__((used)) HIDDEN struct answer answer_dlsym(void *handle, const char *name) {
	if (handle == NEXT || !name || is_forked_from_threads()) return jumps(DLSYM);
	if (handle) treat_new_objects();
	if (is_hook(name)) return answer_hook(handle, name);
	if (!host_may_wrap(name) || stub.host_state == HOST_REFUSED) return jumps(DLSYM);
	void *(*find)(void *, const char *) = (void *(*)(void *, const char *))stub.real[DLSYM];
	void *found = find(handle, name);
	/* Without a handle, the search starts with the objects that the whole program shares, and ends with those of the caller. */
	if (!found) return handle ? returns(NULL) : jumps(DLSYM);
	struct definition definition = definition_of(name, 0);
	if (found != definition.address || definition.is_ambiguous || !load_host()) return returns(found);
	void *wrapper = stub.wrap(name, found);
	return returns(wrapper ? wrapper : found);
}

/* NVTX, and the libraries that see GPU kernels, open the host by its path. The host is loaded and attached first. If it is
 * refused in this process, they get a null pointer, as if it were not installed. */
__attribute__((used)) HIDDEN struct answer answer_dlopen(const char *file) {
	if (!file || !is_equal(file, stub.host) || load_host()) return jumps(DLOPEN);
	return returns(NULL);
}

/* The wrapper of a function: saves the two arguments, asks for the answer, and returns the value or jumps. */
#if defined __x86_64__
#define IN_FRONT_OF(NAME)                                                                                       \
	__asm__(".pushsection .text\n.globl wrap_" NAME "\n.hidden wrap_" NAME "\n.type wrap_" NAME ", @function\n" \
	        "wrap_" NAME ":\n.cfi_startproc\nendbr64\n"                                                         \
	        "push %rdi\n.cfi_adjust_cfa_offset 8\npush %rsi\n.cfi_adjust_cfa_offset 8\n"                        \
	        "sub $8, %rsp\n.cfi_adjust_cfa_offset 8\n"                                                          \
	        "call answer_" NAME "\n"                                                                            \
	        "add $8, %rsp\n.cfi_adjust_cfa_offset -8\n"                                                         \
	        "pop %rsi\n.cfi_adjust_cfa_offset -8\npop %rdi\n.cfi_adjust_cfa_offset -8\n"                        \
	        "test %rdx, %rdx\njnz 1f\nret\n"                                                                    \
	        "1: jmp *%rdx\n.cfi_endproc\n.size wrap_" NAME ", . - wrap_" NAME "\n.popsection")
#elif defined __aarch64__
#define IN_FRONT_OF(NAME)                                                                                       \
	__asm__(".pushsection .text\n.globl wrap_" NAME "\n.hidden wrap_" NAME "\n.type wrap_" NAME ", %function\n" \
	        "wrap_" NAME ":\n.cfi_startproc\nhint #34\n" /* bti c */                                            \
	        "stp x29, x30, [sp, #-32]!\n.cfi_def_cfa_offset 32\n.cfi_offset x29, -32\n.cfi_offset x30, -24\n"   \
	        "mov x29, sp\nstp x0, x1, [sp, #16]\n"                                                              \
	        "bl answer_" NAME "\n"                                                                              \
	        "mov x16, x1\nmov x17, x0\nldp x0, x1, [sp, #16]\n"                                                 \
	        "ldp x29, x30, [sp], #32\n.cfi_def_cfa_offset 0\n.cfi_restore x29\n.cfi_restore x30\n"              \
	        "cbz x16, 1f\nbr x16\n"                                                                             \
	        "1: mov x0, x17\nret\n.cfi_endproc\n.size wrap_" NAME ", . - wrap_" NAME "\n.popsection")
#endif
IN_FRONT_OF("dlsym");
IN_FRONT_OF("dlopen");

HIDDEN void wrap_dlsym(void);
HIDDEN void wrap_dlopen(void);

void wrap_calls(void) {
	stub.wrapper[DLSYM] = (void *)wrap_dlsym;
	stub.wrapper[DLOPEN] = (void *)wrap_dlopen;
}
