/* toolchain.h: which clang to run (toolchain.c). */
#ifndef FLYMASK_TOOLCHAIN_H
#define FLYMASK_TOOLCHAIN_H

#include "../runtime/runtime.h"

/* The oldest clang that has the flags we use (--no-default-config). */
enum { FLYI_OLDEST_CLANG = 16 };

typedef struct flyi_toolchain {
  char *clang;          /* the executable's path */
  char *resources;      /* its directory of resource headers, with a slash at the end */
  char *environment[4]; /* all that it is to see of ours */
} flyi_toolchain;

/* options->clang (may be NULL) is a path or a name to look for in PATH; then $FLYMASK_CLANG, clang-<LLVM major>,
 * clang. The limits in options must be set. */
fly_status flyi_toolchain_find(const fly_compile_options *options, flyi_toolchain *out, fly_error *error);
/* Adds what tells the clang that flyi_toolchain_find would take from another: where it lies, its size and its time.
 * Starts no process, and is fast. Nothing is added where there is none. False: no memory. */
bool flyi_toolchain_fingerprint(const fly_compile_options *options, flyi_bytes *out);
void flyi_toolchain_free(flyi_toolchain *tools);

#endif
