/* guard_heap.h: see guard_heap.c. */
#ifndef TEST_GUARD_HEAP_H
#define TEST_GUARD_HEAP_H

#include <stdbool.h>

/* How many blocks have been guarded since the start. */
long guard_heap_count(void);

#endif
