/* Two kinds of work, marked as regions, and their steps counted: `make`, then `ampere run ./regions_c`. */
#include <ampere.h>
#include <math.h>
#include <stdio.h>

static double grow(double x, int rounds) {
	for (int round = 0; round < rounds; round++) x = sqrt(x + round);
	return x;
}

int main(void) {
	double x = 1;
	ampere_mark("start");
	for (int step = 0; step < 20; step++) {
		ampere_region_begin("assemble");
		x += grow(x, 1000000);
		ampere_region_end("assemble");
		ampere_region_begin("solve");
		x += grow(x, 3000000);
		ampere_region_end("solve");
		ampere_work("steps", 1);
	}
	printf("%.3f\n", x);
	return 0;
}
