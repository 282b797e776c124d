/* A tool for Kokkos with some of the hooks. It numbers the kernels. */
#include <stdint.h>
#include <stdio.h>

static uint64_t kernels = 40;

void kokkosp_init_library(int order, uint64_t version, uint32_t devices, void *infos) {
	printf("tool: init %d %d %d %d\n", order, version == 20240906, devices, infos == NULL);
}
void kokkosp_begin_parallel_for(const char *name, uint32_t device, uint64_t *id) {
	*id = ++kernels;
	printf("tool: begin %s %u\n", name, device);
}
void kokkosp_end_parallel_for(uint64_t id) { printf("tool: end %d\n", (int)id); }
void kokkosp_create_profile_section(const char *name, uint32_t *id) {
	static uint32_t sections = 70;
	*id = ++sections;
	printf("tool: create %s\n", name);
}
void kokkosp_start_profile_section(uint32_t id) { printf("tool: start %u\n", id); }
void kokkosp_stop_profile_section(uint32_t id) { printf("tool: stop %u\n", id); }
void kokkosp_push_profile_region(const char *name) { printf("tool: push %s\n", name); }
void kokkosp_pop_profile_region(void) { puts("tool: pop"); }
void kokkosp_finalize_library(void) { puts("tool: finalize"); }
