/* Prints, as JSON, what CUPTI's headers define for the names in names.h: sizes of types, offsets of fields, and values of
 * constants. tests/layout.rs writes names.h from the crate's own tables. */
#include <cupti.h>
#include <stddef.h>
#include <stdio.h>

static const char *separator = "{";

static void print(const char *name, long long number) {
	printf("%s\"%s\":%lld", separator, name, number);
	separator = ",\n";
}

#define SIZE(type) print(#type, sizeof(type));
#define FIELD(type, field) print(#type "." #field, offsetof(type, field));
#define VALUE(constant) print(#constant, constant);

int main(void) {
	print("CUPTI_API_VERSION", CUPTI_API_VERSION);
#include "names.h"
	puts("}");
	return 0;
}
