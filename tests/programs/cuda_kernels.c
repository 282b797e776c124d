/* A CUDA program for the stand-in for NVIDIA's libraries (tests/stand-ins/cupti), on whose GPU a kernel takes the time that is
 * given here. It launches two kernels, one of which takes three times as long as the other.
 *
 * cuda_kernels ROUNDS STREAMS NANOSECONDS [WHAT]    each round launches both on each stream and waits, unless WHAT asks for
 *                                                   something else
 *
 * It prints the number of kernels that it has launched. */
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct kernel {
	const char *name;
	uint64_t nanoseconds;
};
struct dim3 {
	unsigned x, y, z;
};
extern int cuInit(unsigned), cudaMalloc(void **, size_t), cudaFree(void *), cudaStreamCreate(void **);
extern int cudaLaunchKernel(const struct kernel *, struct dim3, struct dim3, void **, size_t, void *);
extern int cuLaunchKernel(const struct kernel *, void *), cudaMemcpyAsync(void *, const void *, size_t, int, void *);
extern int cudaMemsetAsync(void *, int, size_t, void *), cudaDeviceSynchronize(void), cudaDeviceReset(void);
extern int cudaStreamSynchronize(void *);

static struct kernel light = {"_Z5lightPf", 0}, heavy = {"_Z5heavyPf", 0};
static unsigned long launched;

__attribute__((noinline)) static void launch(const struct kernel *kernel, void *stream) {
	struct dim3 one = {1, 1, 1};
	cudaLaunchKernel(kernel, one, one, NULL, 0, stream);
	launched++;
}

__attribute__((noinline)) void solve(void *stream) {
	launch(&light, stream);
	launch(&heavy, stream);
}

static int is(const char *what, const char *other) { return !strcmp(what, other); }

static double now(void) {
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC_RAW, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

/* Launches kernels at this mean rate. After falling behind, it launches as fast as possible until it has caught up. */
static void at_rate(double per_second, double seconds, void **streams, int count) {
	double start = now(), at;
	while ((at = now() - start) < seconds)
		while (launched < at * per_second) launch(&light, streams[launched % count]);
}

/* The first stream has one kernel, and the second one is busy until the file `stop` exists. */
static void one_is_silent(const char *stop, void **streams) {
	launch(&heavy, streams[0]);
	while (access(stop, F_OK)) {
		launch(&light, streams[1]);
		cudaStreamSynchronize(streams[1]);
	}
}

static void copies(void) {
	void *device, *host = calloc(1, 1 << 20);
	cudaMalloc(&device, 1 << 20);
	cudaMemsetAsync(device, 0, 1 << 20, NULL);
	cudaMemcpyAsync(device, host, 1 << 20, 1, NULL);
	cudaDeviceSynchronize();
	cudaMemcpyAsync(host, device, 1 << 20, 2, NULL);
	cudaDeviceSynchronize();
	cudaFree(device);
}

/* The program's own profiler, as PyTorch has one: it sees the calls of launches if CUPTI is free. */
static int seen;
static void on_call(void *data, unsigned domain, unsigned id, const void *call) {
	(void)data, (void)call;
	if (domain == 2 && id == 211) seen++;
}
extern int cuptiSubscribe(void **, void (*)(void *, unsigned, unsigned, const void *), void *), cuptiUnsubscribe(void *);
extern int cuptiEnableCallback(unsigned, void *, unsigned, unsigned);
static void profile(void) {
	void *subscriber;
	int status = cuptiSubscribe(&subscriber, on_call, NULL);
	if (!status) cuptiEnableCallback(1, subscriber, 2, 211);
	solve(NULL);
	cudaDeviceSynchronize();
	if (!status) cuptiUnsubscribe(subscriber);
	printf("profiler: status %d, calls %d\n", status, seen);
}

int main(int argc, char **argv) {
	int rounds = argc > 1 ? atoi(argv[1]) : 10, count = argc > 2 ? atoi(argv[2]) : 1;
	uint64_t nanoseconds = argc > 3 ? strtoull(argv[3], NULL, 10) : 1000000;
	const char *what = argc > 4 ? argv[4] : "";
	void *streams[8] = {NULL};
	static char name[10001];
	if (is(what, "init")) return cuInit(0);
	for (int i = 1; i < count; i++) cudaStreamCreate(&streams[i]);
	light.nanoseconds = nanoseconds;
	heavy.nanoseconds = 3 * nanoseconds;
	if (is(what, "named")) {
		memset(name, 'n', sizeof name - 1);
		heavy.name = name;
	}
	if (is(what, "silent")) one_is_silent(argv[5], streams);
	if (is(what, "rate")) at_rate(atof(argv[5]), atof(argv[6]), streams, count);
	for (int round = 0; round < rounds; round++) {
		for (int i = 0; i < count; i++) solve(streams[i]);
		if (is(what, "driver")) cuLaunchKernel(&light, NULL), launched++;
		if (is(what, "copies")) copies();
		if (is(what, "reset") && round % 4 == 3) cudaDeviceReset();
		if (!is(what, "late") && !is(what, "never")) cudaDeviceSynchronize();
	}
	if (is(what, "profile")) profile();
	if (is(what, "late") || is(what, "rate")) cudaDeviceSynchronize();
	printf("launched %lu\n", launched);
	fflush(stdout);
	if (is(what, "fork")) {
		int status;
		pid_t child = fork();
		if (!child) {
			solve(NULL);
			exit(5);
		}
		waitpid(child, &status, 0);
		printf("child %d\n", WEXITSTATUS(status));
		solve(NULL);
		cudaDeviceSynchronize();
	}
	if (is(what, "_exit")) _exit(7);
	if (is(what, "crash_in_launch")) {
		struct kernel broken = {(const char *)8, 0};
		launch(&broken, NULL);
	}
	if (is(what, "crash")) {
		raise(SIGSEGV);
	}
	return is(what, "status") ? 3 : 0;
}
