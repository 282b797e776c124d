/* Uses requests of sends, receives, persistent ones and collectives, and every kind of function that completes requests. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#define WORLD MPI_COMM_WORLD
static int fail(int line) { printf("failed at line %d\n", line); MPI_Abort(WORLD, 1); return 0; }
#define CHECK(what) ((what) || fail(__LINE__))
int main(int c, char **v) {
    int rank, size, flag, index, some, places[8];
    double out[64] = {0}, in[64], more[64];
    MPI_Request r[8];
    MPI_Status s[8], status;
    MPI_Message message;
    MPI_Init(&c, &v); MPI_Comm_rank(WORLD, &rank); MPI_Comm_size(WORLD, &size);
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    /* each rank sends messages to itself, so that the first test for completion already finds one */
    for (int k = 1; k < 3; k++) {
        MPI_Send(out, 1, MPI_DOUBLE, rank, k, WORLD);
        MPI_Irecv(in, 1, MPI_DOUBLE, rank, k, WORLD, &r[0]);
        if (k == 1) MPI_Test(&r[0], &flag, MPI_STATUS_IGNORE);
        else MPI_Testany(1, r, &index, &flag, MPI_STATUS_IGNORE);
        if (!flag) MPI_Wait(&r[0], MPI_STATUS_IGNORE);
    }
    for (int i = 0; i < 3; i++) {
        /* wildcards; statuses that are ignored and statuses that are returned */
        MPI_Irecv(in, 64, MPI_DOUBLE, MPI_ANY_SOURCE, MPI_ANY_TAG, WORLD, &r[0]);
        MPI_Isend(out, 8, MPI_DOUBLE, next, 10, WORLD, &r[1]);
        MPI_Waitall(2, r, i ? s : MPI_STATUSES_IGNORE);
        CHECK(r[0] == MPI_REQUEST_NULL && r[1] == MPI_REQUEST_NULL);
        CHECK(!i || (s[0].MPI_SOURCE == before && s[0].MPI_TAG == 10));
        MPI_Irecv(in, 64, MPI_DOUBLE, before, 11, WORLD, &r[0]);
        MPI_Issend(out, 9, MPI_DOUBLE, next, 11, WORLD, &r[1]);
        MPI_Wait(&r[0], i ? &status : MPI_STATUS_IGNORE);
        MPI_Wait(&r[1], MPI_STATUS_IGNORE);
        CHECK(!i || (status.MPI_SOURCE == before && status.MPI_TAG == 11));
        /* Waitany and Waitsome, with null requests in the array */
        for (int k = 0; k < 8; k++) r[k] = MPI_REQUEST_NULL;
        MPI_Irecv(in, 4, MPI_DOUBLE, before, 12, WORLD, &r[1]);
        MPI_Irecv(more, 4, MPI_DOUBLE, before, 13, WORLD, &r[3]);
        MPI_Isend(out, 3, MPI_DOUBLE, next, 13, WORLD, &r[4]);
        MPI_Isend(out, 2, MPI_DOUBLE, next, 12, WORLD, &r[6]);
        for (int k = 0; k < 4; k++) { MPI_Waitany(8, r, &index, k % 2 ? &status : MPI_STATUS_IGNORE); CHECK(index == 1 || index == 3 || index == 4 || index == 6); }
        MPI_Waitany(8, r, &index, &status); CHECK(index == MPI_UNDEFINED);
        MPI_Irecv(in, 4, MPI_DOUBLE, before, 14, WORLD, &r[2]);
        MPI_Irecv(more, 4, MPI_DOUBLE, before, 15, WORLD, &r[5]);
        MPI_Isend(out, 1, MPI_DOUBLE, next, 15, WORLD, &r[0]);
        MPI_Isend(out, 4, MPI_DOUBLE, next, 14, WORLD, &r[7]);
        for (int done = 0; done < 4; done += some) { MPI_Waitsome(8, r, &some, places, i ? s : MPI_STATUSES_IGNORE); CHECK(some > 0); }
        MPI_Waitsome(8, r, &some, places, s); CHECK(some == MPI_UNDEFINED);
        /* Test, Testall, Testany, Testsome and Request_get_status */
        MPI_Irecv(in, 4, MPI_DOUBLE, before, 16, WORLD, &r[0]);
        MPI_Isend(out, 4, MPI_DOUBLE, next, 16, WORLD, &r[1]);
        for (flag = 0; !flag;) MPI_Test(&r[0], &flag, MPI_STATUS_IGNORE);
        for (flag = 0; !flag;) MPI_Test(&r[1], &flag, &status);
        MPI_Test(&r[1], &flag, &status); CHECK(flag);
        MPI_Irecv(in, 4, MPI_DOUBLE, before, 17, WORLD, &r[0]);
        MPI_Isend(out, 4, MPI_DOUBLE, next, 17, WORLD, &r[1]);
        for (flag = 0; !flag;) MPI_Testall(2, r, &flag, i ? s : MPI_STATUSES_IGNORE);
        MPI_Irecv(in, 4, MPI_DOUBLE, before, 18, WORLD, &r[0]);
        MPI_Isend(out, 4, MPI_DOUBLE, next, 18, WORLD, &r[1]);
        for (int k = 0; k < 2; k++) for (flag = 0; !flag;) MPI_Testany(2, r, &index, &flag, MPI_STATUS_IGNORE);
        MPI_Irecv(in, 4, MPI_DOUBLE, before, 19, WORLD, &r[0]);
        MPI_Isend(out, 4, MPI_DOUBLE, next, 19, WORLD, &r[1]);
        for (int done = 0; done < 2; done += some) MPI_Testsome(2, r, &some, places, MPI_STATUSES_IGNORE);
        MPI_Irecv(in, 4, MPI_DOUBLE, before, 20, WORLD, &r[0]);
        MPI_Send(out, 4, MPI_DOUBLE, next, 20, WORLD);
        for (flag = 0; !flag;) MPI_Request_get_status(r[0], &flag, MPI_STATUS_IGNORE);
        MPI_Wait(&r[0], MPI_STATUS_IGNORE);
        /* persistent requests */
        MPI_Send_init(out, 5, MPI_DOUBLE, next, 21, WORLD, &r[0]);
        MPI_Recv_init(in, 5, MPI_DOUBLE, before, MPI_ANY_TAG, WORLD, &r[1]);
        MPI_Ssend_init(out, 5, MPI_DOUBLE, MPI_PROC_NULL, 21, WORLD, &r[2]);
        MPI_Startall(3, r); MPI_Waitall(3, r, MPI_STATUSES_IGNORE);
        MPI_Start(&r[1]); MPI_Start(&r[0]); MPI_Wait(&r[0], MPI_STATUS_IGNORE); MPI_Wait(&r[1], MPI_STATUS_IGNORE);
        MPI_Wait(&r[1], &status);
        for (int k = 0; k < 3; k++) MPI_Request_free(&r[k]);
        /* a request that is freed before it completes */
        MPI_Isend(out, 6, MPI_DOUBLE, next, 22, WORLD, &r[0]); MPI_Request_free(&r[0]);
        MPI_Recv(in, 6, MPI_DOUBLE, before, 22, WORLD, &status);
        /* matched probes, which Score-P does not record */
#ifndef WITHOUT_MATCHED_PROBES
        MPI_Isend(out, 6, MPI_DOUBLE, next, 23, WORLD, &r[0]);
        MPI_Mprobe(MPI_ANY_SOURCE, 23, WORLD, &message, &status); MPI_Mrecv(in, 6, MPI_DOUBLE, &message, i ? &status : MPI_STATUS_IGNORE);
        MPI_Wait(&r[0], &status);
        MPI_Isend(out, 7, MPI_DOUBLE, next, 24, WORLD, &r[0]);
        for (flag = 0; !flag;) MPI_Improbe(before, 24, WORLD, &flag, &message, MPI_STATUS_IGNORE);
        MPI_Imrecv(in, 7, MPI_DOUBLE, &message, &r[1]); MPI_Waitall(2, r, MPI_STATUSES_IGNORE);
#endif
        MPI_Isend(out, 7, MPI_DOUBLE, next, 25, WORLD, &r[0]);
        MPI_Probe(before, MPI_ANY_TAG, WORLD, &status); MPI_Recv(in, 7, MPI_DOUBLE, status.MPI_SOURCE, status.MPI_TAG, WORLD, MPI_STATUS_IGNORE);
        MPI_Wait(&r[0], &status);
        MPI_Sendrecv(out, 1, MPI_INT, next, 26, in, 1, MPI_INT, before, 26, WORLD, MPI_STATUS_IGNORE);
        MPI_Sendrecv_replace(out, 1, MPI_INT, next, 27, before, 27, WORLD, &status);
        /* MPI_PROC_NULL, and a cancelled request */
        MPI_Irecv(in, 1, MPI_DOUBLE, MPI_PROC_NULL, 28, WORLD, &r[0]); MPI_Isend(out, 1, MPI_DOUBLE, MPI_PROC_NULL, 28, WORLD, &r[1]);
        MPI_Waitall(2, r, s);
        MPI_Irecv(in, 1, MPI_DOUBLE, before, 99, WORLD, &r[0]); MPI_Cancel(&r[0]);
        MPI_Wait(&r[0], i ? &status : MPI_STATUS_IGNORE);
        if (i) { MPI_Test_cancelled(&status, &flag); CHECK(flag); }
        /* collectives */
        MPI_Ibarrier(WORLD, &r[0]); MPI_Ibcast(out, 4, MPI_DOUBLE, 1, WORLD, &r[1]); MPI_Iallreduce(out, in, 4, MPI_DOUBLE, MPI_SUM, WORLD, &r[2]);
        MPI_Waitall(3, r, MPI_STATUSES_IGNORE);
        MPI_Igather(out, 2, MPI_DOUBLE, in, 2, MPI_DOUBLE, 2, WORLD, &r[0]); MPI_Wait(&r[0], &status);
    }
    /* many sends and receives that complete at once */
    MPI_Request *many = malloc(2000 * sizeof *many);
    for (int k = 0; k < 1000; k++) MPI_Irecv(&in[k % 64], 1, MPI_INT, before, 30, WORLD, &many[k]);
    for (int k = 0; k < 1000; k++) MPI_Isend(out, 1, MPI_INT, next, 30, WORLD, &many[1000 + k]);
    MPI_Waitall(2000, many, MPI_STATUSES_IGNORE);
    MPI_Finalize();
    return 0;
}
