/* Prints the errors, statuses and requests of calls that fail, and of calls that find nothing to do. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#define WORLD MPI_COMM_WORLD
static void show(const char *what, int error, MPI_Status *statuses, int count) {
	int class;
	MPI_Error_class(error, &class);
	printf("%s: class %d", what, class);
	for (int i = 0; i < count; i++) {
		int elements = -1, of_status = statuses[i].MPI_ERROR;
		MPI_Get_count(&statuses[i], MPI_DOUBLE, &elements);
		if (of_status > 0) MPI_Error_class(of_status, &of_status);
		printf(" | %d %d %d %d", statuses[i].MPI_SOURCE, statuses[i].MPI_TAG, of_status, elements);
	}
	puts("");
}
/* Only this communicator returns errors: an error in any other one ends the program. */
static void invalid_types(void) {
	MPI_Comm own;
	MPI_Request request;
	double out = 0;
	MPI_Comm_dup(WORLD, &own);
	MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
	printf("types: %d", MPI_Send(&out, 1, MPI_DATATYPE_NULL, 0, 3, own) != MPI_SUCCESS);
	printf(" %d", MPI_Isend(&out, 1, MPI_DATATYPE_NULL, 0, 3, own, &request) != MPI_SUCCESS);
	printf(" %d\n", MPI_Bcast(&out, 1, MPI_DATATYPE_NULL, 0, own) != MPI_SUCCESS);
}
static void too_long(int is_ignored) {
	double out[8] = {0}, in[8];
	int done, error;
	MPI_Request r[2];
	MPI_Status s[2], *one = is_ignored ? MPI_STATUS_IGNORE : s, *all = is_ignored ? MPI_STATUSES_IGNORE : s;
	memset(s, 0, sizeof s);
	MPI_Isend(out, 8, MPI_DOUBLE, 0, 1, WORLD, &r[0]);
	MPI_Irecv(in, 2, MPI_DOUBLE, 0, 1, WORLD, &r[1]);
	show("wait", MPI_Wait(&r[1], one), s, !is_ignored);
	printf("request %d\n", r[1] == MPI_REQUEST_NULL);
	MPI_Wait(&r[0], MPI_STATUS_IGNORE);
	MPI_Isend(out, 8, MPI_DOUBLE, 0, 2, WORLD, &r[0]);
	MPI_Irecv(in, 2, MPI_DOUBLE, 0, 2, WORLD, &r[1]);
	show("waitall", MPI_Waitall(2, r, all), s, is_ignored ? 0 : 2);
	printf("requests %d %d\n", r[0] == MPI_REQUEST_NULL, r[1] == MPI_REQUEST_NULL);
	MPI_Isend(out, 8, MPI_DOUBLE, 0, 3, WORLD, &r[0]);
	MPI_Irecv(in, 2, MPI_DOUBLE, 0, 3, WORLD, &r[1]);
	MPI_Wait(&r[0], MPI_STATUS_IGNORE);
	do error = MPI_Test(&r[1], &done, one); while (!error && !done);
	show("test", error, s, !is_ignored);
}
static void nothing_to_do(void) {
	double out = 0, in;
	int index, flag, some, indices[1];
	MPI_Request r = MPI_REQUEST_NULL;
	MPI_Status s;
	memset(&s, 0, sizeof s);
	show("no request", MPI_Wait(&r, &s), &s, 1);
	show("no rank", MPI_Send(&out, 1, MPI_DOUBLE, 77, 3, WORLD), &s, 0);
	show("no rank later", MPI_Isend(&out, 1, MPI_DOUBLE, 77, 3, WORLD, &r), &s, 0);
	MPI_Recv_init(&in, 1, MPI_DOUBLE, 0, 9, WORLD, &r);
	show("inactive", MPI_Wait(&r, &s), &s, 1);
	show("inactive", MPI_Testany(1, &r, &index, &flag, &s), &s, 1);
	printf("any %d %d\n", index == MPI_UNDEFINED, flag);
	MPI_Testsome(1, &r, &some, indices, &s);
	printf("some %d\n", some == MPI_UNDEFINED);
	MPI_Start(&r);
	MPI_Send(&out, 1, MPI_DOUBLE, 0, 9, WORLD);
	show("started", MPI_Wait(&r, &s), &s, 1);
	MPI_Request_free(&r);
	printf("freed %d\n", r == MPI_REQUEST_NULL);
	show("none", MPI_Waitall(0, NULL, MPI_STATUSES_IGNORE), &s, 0);
	MPI_Waitany(0, NULL, &index, MPI_STATUS_IGNORE);
	printf("any of none %d\n", index == MPI_UNDEFINED);
}
int main(int c, char **v) {
	MPI_Init(&c, &v);
	invalid_types();
	MPI_Comm_set_errhandler(WORLD, MPI_ERRORS_RETURN);
	too_long(0);
	too_long(1);
	nothing_to_do();
	return MPI_Finalize();
}
