/* A substrate plugin that receives no events: with it, a program has only the cost of the host. */
#include <stdint.h>

/* 116 pointers and a version: Score-P 8.4's plugin info. */
struct info {
    uint32_t version;
    void (*none[116])(void);
};
_Static_assert(sizeof(struct info) == 936, "SCOREP_SubstratePluginInfo");

struct info SCOREP_SubstratePlugin_ampere_get_info(void)
{
    return (struct info){.version = 3};
}
