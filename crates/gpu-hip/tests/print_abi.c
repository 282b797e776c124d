/* Prints, as JSON, what rocprofiler-sdk's public headers define for the names in names.h: sizes of types, offsets of fields, and
 * values of constants. tests/layout.rs writes names.h from the crate's own tables. */
#include <rocprofiler-sdk/version.h>

#include <rocprofiler-sdk/agent.h>
#include <rocprofiler-sdk/buffer_tracing.h>
#include <rocprofiler-sdk/callback_tracing.h>
#include <rocprofiler-sdk/external_correlation.h>
#include <rocprofiler-sdk/registration.h>
#include <stddef.h>
#include <stdio.h>

static const char *separator = "{";

static void print(const char *name, long long number) {
	printf("%s\"%s\":%lld", separator, name, number);
	separator = ",\n";
}

/* Fields whose names have changed. */
#if ROCPROFILER_VERSION_MAJOR > 0 || ROCPROFILER_VERSION_MINOR > 5
#define reserved_padding0 runtime_visibility
#endif

#define SIZE(type) print(#type, sizeof(type));
#define FIELD(type, field) print(#type "." #field, offsetof(type, field));
#define VALUE(constant) print(#constant, constant);

int main(void) {
	print("version", ROCPROFILER_VERSION);
#include "names.h"
	puts("}");
	return 0;
}
