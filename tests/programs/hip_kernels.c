/* A HIP program for the stand-ins of tests/programs/amdhip64.c. Its first argument selects what it does. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "hip.h"

static const char larger[] = "_Z6largerPdm.kd", smaller[] = "_Z7smallerPdm.kd";
static char long_name[10001];

static void launch(const void *function, double seconds, enum odd odd, void *stream) {
	struct work work = {.seconds = seconds, .odd = odd};
	void *arguments[] = {&work};
	struct dim3 one = {1, 1, 1};
	hipLaunchKernel(function, one, one, arguments, 0, stream);
}

__attribute__((noinline)) static void first_part(double seconds, void *stream) { launch(larger, 3 * seconds, USUAL, stream); }
__attribute__((noinline)) static void second_part(double seconds, void *stream) { launch(smaller, seconds, USUAL, stream); }

/* Launches pairs of kernels, one of which takes three times as long as the other, and waits for each pair. */
static void three_to_one(int rounds, double seconds) {
	for (int i = 0; i < rounds; i++) {
		first_part(seconds, NULL);
		second_part(seconds, NULL);
		hipDeviceSynchronize();
	}
}

/* Launches 10,000 kernels a second on 8 streams. */
static void many(int kernels) {
	void *streams[8];
	for (int i = 0; i < 8; i++) hipStreamCreate(&streams[i]);
	for (int i = 0; i < kernels; i++) {
		launch(i % 4 ? larger : smaller, 0.0004, USUAL, streams[i % 8]);
		if (i % 100 == 99) nanosleep(&(struct timespec){.tv_nsec = 9000000}, NULL);
	}
	for (int i = 0; i < 8; i++) hipStreamSynchronize(streams[i]);
}

/* Runs kernels on two GPUs at the same time, with pauses between them. */
static void two_gpus(void) {
	const struct timespec pause = {.tv_nsec = 50000000};
	void *second;
	hipStreamCreate(&second);
	nanosleep(&pause, NULL);
	for (int i = 0; i < 8; i++) {
		if (i % 2) first_part(0.011, NULL), second_part(0.043, second);
		else second_part(0.021, NULL), first_part(0.009, second);
		hipDeviceSynchronize();
		nanosleep(&pause, NULL);
	}
}

/* Runs one kernel on one stream, and then keeps another stream busy until the file `stop` exists. */
static void one_is_silent(const char *stop) {
	void *second;
	hipStreamCreate(&second);
	first_part(0.01, NULL);
	while (access(stop, F_OK)) {
		second_part(0.01, second);
		hipStreamSynchronize(second);
	}
}

/* Launches kernels whose records are wrong, overlap, have a long name, or never come. */
static void odd_records(void) {
	three_to_one(5, 0.005);
	for (int i = 0; i < 3; i++) launch(larger, 0.004, NEGATIVE, NULL);
	for (int i = 0; i < 4; i++) launch(smaller, 0.01, OVERLAPS, NULL);
	launch(long_name, 0.01, USUAL, NULL);
	launch(smaller, 5, WITHOUT_RECORD, NULL);
}

/* Launches the kernels listed in the file `kernels`. Each line has a stream, the begin and end as positions between readings, and
 * a name. Then the readings start, and the program waits for their end. */
static void play(const char *directory) {
	char path[4096], name[4096];
	struct work work = {.odd = PLAYED};
	void *streams[64] = {NULL}, *arguments[] = {&work};
	int stream;
	snprintf(path, sizeof path, "%s/kernels", directory);
	FILE *file = fopen(path, "r");
	if (!file) {
		perror(path);
		exit(1);
	}
	for (int i = 1; i < atoi(getenv("STAND_IN_GPUS")); i++) hipStreamCreate(&streams[i]);
	while (fscanf(file, "%d %lf %lf %4095s", &stream, &work.begin, &work.end, name) == 4) {
		char *kernel = strdup(name);
		__hipRegisterFunction(NULL, kernel, kernel, kernel, 0, NULL, NULL, NULL, NULL, NULL);
		hipLaunchKernel(kernel, (struct dim3){1, 1, 1}, (struct dim3){1, 1, 1}, arguments, 0, streams[stream]);
	}
	fclose(file);
	snprintf(path, sizeof path, "%s/start", directory);
	fclose(fopen(path, "w"));
	hipDeviceSynchronize();
	snprintf(path, sizeof path, "%s/end", directory);
	while (access(path, F_OK)) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void *other_thread(void *unused) {
	three_to_one(10, 0.005);
	return unused;
}

int main(int argc, char **argv) {
	const char *what = argc > 1 ? argv[1] : "";
	int number = argc > 2 ? atoi(argv[2]) : 0;
	memset(long_name, 'n', sizeof long_name - 1);
	for (const char *const *name = (const char *[]){larger, smaller, long_name, NULL}; *name; name++)
		__hipRegisterFunction(NULL, *name, (char *)*name, *name, 0, NULL, NULL, NULL, NULL, NULL);
	if (!strcmp(what, "three_to_one")) {
		three_to_one(number, 0.01);
	} else if (!strcmp(what, "many")) {
		many(number);
	} else if (!strcmp(what, "two_gpus")) {
		two_gpus();
	} else if (!strcmp(what, "silent")) {
		one_is_silent(argv[2]);
	} else if (!strcmp(what, "never_waits")) {
		for (int i = 0; i < 20; i++) first_part(0.005, NULL), second_part(0.005, NULL);
		nanosleep(&(struct timespec){.tv_sec = 2}, NULL);
	} else if (!strcmp(what, "odd")) {
		odd_records();
		nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 500000000}, NULL);
	} else if (!strcmp(what, "copies")) {
		void *memory, *stream;
		static char host[20000000];
		hipMalloc(&memory, sizeof host);
		hipStreamCreate(&stream);
		hipMemcpyAsync(memory, host, sizeof host, 1, stream);
		first_part(0.02, NULL);
		hipMemcpyAsync(host, memory, sizeof host, 2, stream);
		hipDeviceSynchronize();
		hipFree(memory);
	} else if (!strcmp(what, "play")) {
		play(getenv("STAND_IN_PLAY"));
	} else if (!strcmp(what, "reset")) {
		three_to_one(5, 0.005);
		hipDeviceReset();
		three_to_one(5, 0.005);
	} else if (!strcmp(what, "threads")) {
		pthread_t threads[3];
		for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, other_thread, NULL);
		for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
	} else if (!strcmp(what, "fork")) {
		three_to_one(5, 0.005);
		pid_t child = fork();
		if (!child) exit(7);
		int status;
		waitpid(child, &status, 0);
		printf("child: %d\n", WEXITSTATUS(status));
		three_to_one(5, 0.005);
	} else if (!strcmp(what, "_exit")) {
		three_to_one(60, 0.01);
		_exit(3);
	} else if (!strcmp(what, "crash")) {
		three_to_one(60, 0.01);
		launch(larger, 0.01, CRASHES, NULL);
	} else if (!strcmp(what, "bench")) {
		struct timespec from, to;
		clock_gettime(CLOCK_MONOTONIC, &from);
		for (int i = 0; i < number; i++) launch(larger, 1e-7, USUAL, NULL);
		clock_gettime(CLOCK_MONOTONIC, &to);
		printf("%.0f ns\n", ((to.tv_sec - from.tv_sec) * 1e9 + (to.tv_nsec - from.tv_nsec)) / number);
		hipDeviceSynchronize();
	}
	const char *tools = getenv("ROCP_TOOL_LIBRARIES");
	printf("tools: %s\n", argc > 3 && tools ? tools : "-");
	return number == 42 ? 42 : 0;
}
