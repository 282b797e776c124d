/* A main program for HPL alone, with the input of hpccinf.txt. Debian's hpcc does not have one. */
#include "hpl.h"

int main(int argc, char **argv)
{
    HPL_RuntimeData data;
    int failed = 0;
    memset(&data, 0, sizeof data);
    MPI_Init(&argc, &argv);
    HPL_main(argc, argv, &data, &failed);
    MPI_Finalize();
    return failed;
}

/* This is called if there is no hpccinf.txt. */
int HPCC_Defaults(HPL_T_test *test, int *a, int *b, int *c, int *d, HPL_T_ORDER *e, int *f, int *g, int *h, int *i,
                  HPL_T_FACT *j, int *k, int *l, int *m, int *n, int *o, HPL_T_FACT *p, int *q, HPL_T_TOP *r, int *s,
                  int *t, HPL_T_SWAP *u, int *v, int *w, int *x, int *y, int *z, MPI_Comm comm)
{
    fprintf(stderr, "there is no hpccinf.txt here\n");
    exit(1);
}
