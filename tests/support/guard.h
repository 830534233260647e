/* guard.h: memory between PROT_NONE pages: a byte read or written outside is a SIGSEGV, also in code compiled at run
 * time, which the sanitizers do not see. */
#ifndef TEST_GUARD_H
#define TEST_GUARD_H

#include <stddef.h>

/* `bytes` bytes, filled with 0xCC, that end right before an inaccessible page; with `front`, that begin right behind
 * one. Aborts the test where there is no memory. Keep `align` a power of two: the end is flush only up to it. */
void *guard_alloc(size_t bytes, size_t align, int front);
void guard_free(void *data);

#endif
