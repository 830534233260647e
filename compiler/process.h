/* process.h: a child process with limits (process.c). */
#ifndef FLYMASK_PROCESS_H
#define FLYMASK_PROCESS_H

#include "../runtime/runtime.h"

enum { FLYI_CHILD_FILES = 8, FLYI_MOST_SECONDS = 86400 };

typedef struct flyi_child {
  const char *path;                     /* of the executable; no search, no shell */
  char *const *arguments;               /* NULL-terminated; arguments[0] is the name */
  char *const *environment;             /* NULL-terminated: all that the child sees */
  flyi_section input;                   /* what it reads as its standard input */
  flyi_section files[FLYI_CHILD_FILES]; /* what it reads as /proc/self/fd/(FLYI_CHILD_FD + i) */
  int file_count;
  double seconds; /* of wall-clock time and of processor time; above 0, at most FLYI_MOST_SECONDS */
  size_t memory;  /* address space, in bytes */
  size_t output;  /* limit of each of the two outputs, in bytes */
} flyi_child;

enum { FLYI_CHILD_FD = 3 };

typedef enum flyi_end {
  FLYI_END_EXIT,   /* by itself: code is the exit status, or -1 where someone else in this process reaped the child */
  FLYI_END_SIGNAL, /* code is the signal */
  FLYI_END_TIME,   /* killed: took too long */
  FLYI_END_OUTPUT  /* killed: wrote too much */
} flyi_end;

/* Runs the child to its end and collects what it wrote; both texts get a NUL behind their end. A child that was
 * stopped is not an error here: *end says so. No descriptor and no process is left behind, and the caller's own
 * standard streams, signal handlers and limits stay as they are. Fails where the child cannot be started. */
fly_status flyi_child_run(const flyi_child *child, flyi_bytes *output, flyi_bytes *errors, flyi_end *end, int *code,
                          fly_error *error);

#endif
