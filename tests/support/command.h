/* command.h: runs the command `flymask` of the build, as a user would. */
#ifndef TEST_COMMAND_H
#define TEST_COMMAND_H

/* What a run left. out and err are the whole texts, freed by command_free. */
typedef struct command_result {
  int code; /* the exit code; -1: killed by a signal */
  char *out, *err;
} command_result;

/* Runs "flymask ARGUMENTS" through the shell in `directory` (NULL: here). */
command_result command_run(const char *directory, const char *format, ...) __attribute__((format(printf, 2, 3)));
void command_free(command_result *result);

/* A new directory under /tmp; the same buffer is used by command_remove_directory, which deletes all in it. */
const char *command_make_directory(void);
void command_remove_directory(void);
/* The path of a file in that directory; one of the last four paths, which later calls take the place of. */
const char *command_path(const char *name);

/* The whole of a file, NUL-terminated, to be freed; fails the test where there is none. */
char *command_read_file(const char *path);

/* Runs "flymask ARGUMENTS" in the source tree, wants this exit code and silence on stderr, and compares stdout with
 * tests/golden/NAME.txt. FLYMASK_GOLDEN=write makes the texts anew, to be read. */
void command_check_golden(const char *name, int code, const char *arguments);

#endif
