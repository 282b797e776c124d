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

/* Called by the assembly below. */
__attribute__((used)) HIDDEN struct answer answer_dlsym(void *handle, const char *name) {
	if (handle == NEXT || !name) return jumps(DLSYM);
	if (handle) treat_new_objects();
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

/* NVTX opens the host by its path, and so do the libraries that see GPU kernels. */
__attribute__((used)) HIDDEN struct answer answer_dlopen(const char *file) {
	if (!file || !is_equal(file, stub.host) || load_host()) return jumps(DLOPEN);
	return returns(NULL);
}

/* The wrapper of a function: saves the two arguments, asks for the answer, and returns the value or jumps. */
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
IN_FRONT_OF("dlsym");
IN_FRONT_OF("dlopen");

HIDDEN void wrap_dlsym(void);
HIDDEN void wrap_dlopen(void);

void wrap_calls(void) {
	stub.wrapper[DLSYM] = (void *)wrap_dlsym;
	stub.wrapper[DLOPEN] = (void *)wrap_dlopen;
}
