/* A program that notices if a library inside its process misbehaves.
 *
 *     guest pipe            closes a pipe that was open when the measurement started; reading it must then return end of file
 *     guest ignore          ignores SIGCHLD; creates the file "ready", and continues when the file "go" exists
 *     guest chroot DIR      changes its root
 *     guest threads N DIR   starts N threads; prints the percentage of DIR's file system that is free while they run
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define UNSEEN __attribute__((no_instrument_function))

static volatile unsigned spent;

void work(void) {
    for (unsigned i = 0; i < 2000000; i++) spent += i;
}

UNSEEN static void closed_pipe(int *ends) {
    char byte;
    alarm(10);
    close(ends[1]);
    printf("read %zd\n", read(ends[0], &byte, 1));
}

UNSEEN static void wait_for_go(void) {
    close(open("ready", O_CREAT | O_WRONLY, 0600));
    while (access("go", F_OK)) usleep(1000);
}

static pthread_barrier_t all_here, all_over;

UNSEEN static void *thread(void *unused) {
    work();
    pthread_barrier_wait(&all_here);
    pthread_barrier_wait(&all_over);
    return unused;
}

UNSEEN static void threads(int count, const char *directory) {
    struct statvfs found;
    pthread_t id;
    pthread_barrier_init(&all_here, NULL, count + 1);
    pthread_barrier_init(&all_over, NULL, count + 1);
    for (int i = 0; i < count; i++) {
        if (pthread_create(&id, NULL, thread, NULL)) exit(3);
        pthread_detach(id);
    }
    pthread_barrier_wait(&all_here);
    statvfs(directory, &found);
    fprintf(stderr, "free %d\n", (int)(100 * found.f_bavail / found.f_blocks));
    pthread_barrier_wait(&all_over);
}

int main(int argc, char **argv) {
    int ends[2];
    const char *what = argc > 1 ? argv[1] : "";
    if (pipe(ends)) return 3;
    if (!strcmp(what, "ignore")) signal(SIGCHLD, SIG_IGN);
    work();
    if (!strcmp(what, "pipe")) closed_pipe(ends);
    if (!strcmp(what, "ignore")) wait_for_go();
    if (!strcmp(what, "chroot") && (chdir(argv[2]) || chroot("."))) return 3;
    if (!strcmp(what, "threads")) threads(atoi(argv[2]), argv[3]);
    work();
    puts("done");
    return 7;
}
