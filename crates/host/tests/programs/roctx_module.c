/* A library that marks ranges with roctx, and that a program opens. */
int roctxRangePushA(const char *);
int roctxRangePop(void);
void roctxMarkA(const char *);
unsigned long long roctxRangeStartA(const char *);
void roctxRangeStop(unsigned long long);

int work(void) {
	roctxMarkA("start");
	roctxRangeStop(roctxRangeStartA("async"));
	int depth = roctxRangePushA("forward");
	return 10 * depth + roctxRangePop();
}
