// Two kinds of work, marked as regions, and their steps counted: `make`, then `ampere run ./regions_cpp`.
#include <ampere.h>
#include <cmath>
#include <cstdio>

// A region that ends with its block, also by an exception.
class Region {
	const char *name;

public:
	explicit Region(const char *name) : name(name) { ampere_region_begin(name); }
	~Region() { ampere_region_end(name); }
	Region(const Region &) = delete;
	Region &operator=(const Region &) = delete;
};

static double grow(double x, int rounds) {
	for (int round = 0; round < rounds; round++) x = std::sqrt(x + round);
	return x;
}

int main() {
	double x = 1;
	ampere_mark("start");
	for (int step = 0; step < 20; step++) {
		{
			Region assemble("assemble");
			x += grow(x, 1000000);
		}
		{
			Region solve("solve");
			x += grow(x, 3000000);
		}
		ampere_work("steps", 1);
	}
	std::printf("%.3f\n", x);
}
