/* main.c: the command `flymask`: finds the subcommand and hands it its arguments. Exit codes: 0, 1 for work that
 * failed, 2 for wrong usage. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static const struct command {
  const char *name, *title; /* as argv[0] of the command */
  int (*run)(int argc, char **argv);
} commands[] = {
    {"run", "flymask run", command_run},       {"check", "flymask check", command_check},
    {"map", "flymask map", command_map},       {"show", "flymask show", command_show},
    {"bench", "flymask bench", command_bench}, {"build", "flymask build", command_build},
    {"list", "flymask list", command_list},    {"demo", "flymask demo", command_demo},
    {"compare", "flymask compare", command_compare},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static const char doc[] =
    "Attention masks written in C, compiled to block-sparse flash-attention kernels."
    "\v"
    "Commands (flymask COMMAND --help says more):\n"
    "  run    attention over .npy files\n"
    "  check  compile and verify a mask, say what it reads\n"
    "  map    the counts, size and time of a block map\n"
    "  show   the picture of a block map\n"
    "  bench  times of compiler, map and kernel, and the share of the peak\n"
    "  build  an image ahead of time, or LLVM's text\n"
    "  list   the masks and score modifiers that a name finds, one line each\n"
    "  demo   sliding-window, stochastic and full attention over a sample, compared\n"
    "  compare  a report on mechanisms: cost, coverage, small worlds, quality\n"
    "\n"
    "MASK is the path of a C source or the name of one in masks/: causal, sliding_window, stochastic, ... "
    "NAME=VALUE gives a parameter (an integer, a number, true or false) or a captured buffer (a .npy file).\n"
    "\n"
    "Examples:\n"
    "  flymask check sliding_window left=255 right=0\n"
    "  flymask map causal --lengths 65536\n"
    "  flymask run causal --q q.npy --k k.npy --v v.npy --out out.npy\n"
    "\n"
    "Environment: FLYMASK_MASKS (more directories with masks), FLYMASK_CLANG (the clang to run), XDG_CACHE_HOME (where "
    "compiled masks are kept).";

typedef struct choice {
  const struct command *command;
  int first; /* its index in argv */
} choice;

static error_t parse_command(int key, char *text, struct argp_state *state) {
  choice *chosen = state->input;
  switch (key) {
  case ARGP_KEY_ARG:
    for (int i = 0; i < COMMANDS; i++)
      if (strcmp(commands[i].name, text) == 0) chosen->command = &commands[i];
    if (!chosen->command) argp_error(state, "no command '%s'", text);
    chosen->first = state->next - 1;
    state->next = state->argc; /* the rest is the command's */
    return 0;
  case ARGP_KEY_NO_ARGS:
    argp_error(state, "no COMMAND given");
    return 0;
  default:
    return ARGP_ERR_UNKNOWN;
  }
}

int main(int argc, char **argv) {
  static char program[] = "flymask";
  if (argc > 0) argv[0] = program;                /* messages name the command, not its path */
  setenv("ARGP_HELP_FMT", "no-dup-args-note", 0); /* no remark on arguments of short options */
  argp_program_version = "flymask " FLY_VERSION;
  argp_err_exit_status = EXIT_USAGE;
  choice chosen = {0};
  struct argp argp = {.parser = parse_command, .args_doc = "COMMAND [ARGUMENT...]", .doc = doc};
  if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &chosen) || !chosen.command) return EXIT_USAGE;
  char title[32];
  snprintf(title, sizeof title, "%s", chosen.command->title);
  argv[chosen.first] = title;
  return chosen.command->run(argc - chosen.first, argv + chosen.first);
}
