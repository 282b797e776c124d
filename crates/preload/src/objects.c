/* Loaded objects, and which of them defines a function. */
#include "stub.h"

struct stub stub;

/* The loader has added the base to addresses in most dynamic sections, and not in those that it cannot write. */
static const void *located(const struct object *object, uintptr_t address) {
	return (const void *)(address < object->base ? address + object->base : address);
}

static void read_headers(struct object *object, const Elf64_Dyn **dynamic) {
	uintptr_t base = object->base;
	for (unsigned i = 0; i < object->header_count; i++) {
		const Elf64_Phdr *header = &object->headers[i];
		uintptr_t start = base + header->p_vaddr, end = start + header->p_memsz;
		if (header->p_type == PT_LOAD) {
			if (!object->start || start < object->start) object->start = start;
			if (end > object->end) object->end = end;
		} else if (header->p_type == PT_DYNAMIC) {
			*dynamic = (const Elf64_Dyn *)start;
		} else if (header->p_type == PT_GNU_RELRO) {
			object->protected_start = start & -PAGE;
			object->protected_end = end & -PAGE;
		}
	}
}

/* Returns zero if nothing can be looked up in the object. */
int read_object(struct object *object, const struct info *info) {
	*object = (struct object){.base = info->base, .name = info->name ? info->name : ""};
	object->headers = info->headers;
	object->header_count = info->headers ? info->header_count : 0;
	const Elf64_Dyn *dynamic = NULL;
	read_headers(object, &dynamic);
	size_t relative = 0;
	for (; dynamic && dynamic->d_tag != DT_NULL; dynamic++) {
		uintptr_t value = dynamic->d_un.d_val;
		switch (dynamic->d_tag) {
		case DT_SYMTAB: object->symbols = located(object, value); break;
		case DT_STRTAB: object->strings = located(object, value); break;
		case DT_GNU_HASH: object->gnu_hash = located(object, value); break;
		case DT_HASH: object->hash = located(object, value); break;
		case DT_VERSYM: object->versions = located(object, value); break;
		case DT_RELA: object->relocations = located(object, value); break;
		case DT_RELASZ: object->relocation_count = value / sizeof(Elf64_Rela); break;
		case DT_RELACOUNT: relative = value; break;
		case DT_JMPREL: object->calls = located(object, value); break;
		case DT_PLTRELSZ: object->call_count = value / sizeof(Elf64_Rela); break;
		}
	}
	/* Relative relocations come first, and refer to no symbol. */
	if (object->relocations && relative <= object->relocation_count) {
		object->relocations += relative;
		object->relocation_count -= relative;
	}
	if (!object->relocations) object->relocation_count = 0;
	if (!object->calls) object->call_count = 0;
	return object->symbols && object->strings;
}

/* Whether the symbol is the default version's definition of this name. */
static int is_definition(const struct object *object, uint32_t at, const char *name) {
	const Elf64_Sym *symbol = &object->symbols[at];
	int is_hidden = object->versions && object->versions[at] & 0x8000;
	unsigned bind = ELF64_ST_BIND(symbol->st_info), type = ELF64_ST_TYPE(symbol->st_info);
	return symbol->st_shndx != SHN_UNDEF && !is_hidden && bind != STB_LOCAL && type != STT_TLS &&
	       is_equal(object->strings + symbol->st_name, name);
}

static uint32_t find_by_gnu_hash(const struct object *object, const char *name) {
	const uint32_t *table = object->gnu_hash;
	uint32_t buckets = table[0], first = table[1], words = table[2], shift = table[3], hash = 5381;
	for (const char *c = name; *c; c++) hash = hash * 33 + (unsigned char)*c;
	const uint64_t *bloom = (const uint64_t *)(table + 4);
	uint64_t mask = 1ull << (hash % 64) | 1ull << ((hash >> shift) % 64);
	if (!buckets || !words || (bloom[hash / 64 % words] & mask) != mask) return 0;
	const uint32_t *bucket = (const uint32_t *)(bloom + words), *chain = bucket + buckets;
	uint32_t at = bucket[hash % buckets];
	if (at < first) return 0;
	for (;; at++) {
		uint32_t of_symbol = chain[at - first];
		if ((of_symbol | 1) == (hash | 1) && is_definition(object, at, name)) return at;
		if (of_symbol & 1) return 0;
	}
}

static uint32_t find_by_hash(const struct object *object, const char *name) {
	const uint32_t *table = object->hash;
	uint32_t buckets = table[0], hash = 0;
	for (const char *c = name; *c; c++) {
		hash = (hash << 4) + (unsigned char)*c;
		hash = (hash ^ (hash & 0xf0000000) >> 24) & 0x0fffffff;
	}
	if (!buckets) return 0;
	for (uint32_t at = table[2 + hash % buckets]; at; at = table[2 + buckets + at])
		if (is_definition(object, at, name)) return at;
	return 0;
}

void *defined_in(const struct object *object, const char *name) {
	uint32_t at = object->gnu_hash ? find_by_gnu_hash(object, name) : object->hash ? find_by_hash(object, name) : 0;
	if (!at) return NULL;
	const Elf64_Sym *symbol = &object->symbols[at];
	void *address = (void *)(object->base + symbol->st_value);
	if (ELF64_ST_TYPE(symbol->st_info) == STT_GNU_IFUNC) return ((void *(*)(void))address)();
	return address;
}

int is_mpi(const struct object *object) {
	static const char *const names[] = {"PMPI_Init", "pmpi_init_", "pmpi_init__", "pmpi_init_f08_", "PMPI_Send"};
	for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
		if (defined_in(object, names[i])) return 1;
	return 0;
}

int is_opencl_without_layers(const struct object *object) {
	static const char variable[] = "OPENCL_LAYERS";
	if (!begins_with(file_name(object->name), "libOpenCL.so")) return 0;
	for (unsigned i = 0; i < object->header_count; i++) {
		const Elf64_Phdr *header = &object->headers[i];
		if (header->p_type != PT_LOAD || !(header->p_flags & PF_R)) continue;
		const char *bytes = (const char *)(object->base + header->p_vaddr);
		for (size_t at = 0; at + sizeof variable <= header->p_filesz; at++)
			if (begins_with(bytes + at, variable)) return 0;
	}
	return 1;
}

struct search {
	const char *name;
	unsigned at;
	int is_at_start;
	struct definition found;
};

/* The loader searches the objects that were loaded at the start first, in their order. Of those opened later, MPI libraries are
 * searched for any name, and all others only for functions of roctx and CUPTI. */
static int search(struct info *info, size_t size, void *data) {
	struct search *search = data;
	struct object object;
	(void)size;
	int is_later = search->at++ >= stub.start_count;
	if (is_later && search->is_at_start) return 1;
	if (!read_object(&object, info)) return 0;
	if (is_later && !is_mpi(&object) && !begins_with(search->name, "roctx") && !begins_with(search->name, "cupti")) return 0;
	void *address = defined_in(&object, search->name);
	if (!address || address == search->found.address) return 0;
	if (search->found.address) {
		search->found.is_ambiguous |= is_later;
	} else {
		search->found.address = address;
		search->found.is_libc = object.start == stub.libc_start;
	}
	return 0;
}

struct definition definition_of(const char *name, int is_at_start) {
	struct search all = {.name = name, .is_at_start = is_at_start};
	stub.iterate(search, &all);
	return all.found;
}
