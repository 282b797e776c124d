/* The input of the bindings: all of OTF2, vsnprintf for the messages of its error callback, and free for the strings that it
 * allocates. */
#include <otf2/otf2.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
