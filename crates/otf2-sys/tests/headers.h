/* What the bindings are made of: all of OTF2, vsnprintf for the messages of its error callback, free for the strings that it gives away. */
#include <otf2/otf2.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
