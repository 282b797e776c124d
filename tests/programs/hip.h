/* The part of HIP that tests/programs/amdhip64.c implements and tests/programs/hip_kernels.c uses. */
#include <stddef.h>

enum odd { USUAL, NEGATIVE, OVERLAPS, WITHOUT_RECORD, CRASHES, PLAYED };
/* A PLAYED kernel has no duration: it begins and ends between readings of the GPU's counter, such as 10.25 and 20.5. */
struct work {
	double seconds;
	enum odd odd;
	double begin, end;
};
struct dim3 {
	unsigned x, y, z;
};

int hipInit(unsigned flags);
void __hipRegisterFunction(void **modules, const void *function, char *device_function, const char *name, unsigned limit, void *a, void *b, void *c, void *d, int *e);
int hipLaunchKernel(const void *function, struct dim3 grid, struct dim3 block, void **arguments, size_t shared, void *stream);
int hipMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream);
int hipMalloc(void **memory, size_t bytes);
int hipFree(void *memory);
int hipStreamCreate(void **stream);
int hipStreamSynchronize(void *stream);
int hipDeviceSynchronize(void);
int hipDeviceReset(void);
