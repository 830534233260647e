/* ptx_mutate.c: changes to PTX as LLVM prints it, in place. */
#include <ctype.h>

#include "ptx_mutate.h"
#include "tests/simcuda/simcuda.h"

static const struct {
  const char *name, *text; /* text: what the instruction has */
} kinds[PTX_KINDS] = {
    [PTX_WAIT] = {"wait", "cp.async.wait_group"}, [PTX_COMMIT] = {"commit", "cp.async.commit_group"},
    [PTX_BARRIER] = {"barrier", "bar."},          [PTX_ZEROS] = {"zeros", "cp.async.c"},
    [PTX_CLAMP] = {"clamp", "min.s32"},           [PTX_BRANCH] = {"branch", " bra "},
};

const char *ptx_kind_name(ptx_kind kind) { return kinds[kind].name; }

/* The body of an entry; *end is behind it. */
static char *body_of(char *ptx, const char *kernel, char **end) {
  char entry[80];
  snprintf(entry, sizeof entry, ".entry %s(", kernel);
  char *at = strstr(ptx, entry);
  ck_assert_msg(at != NULL, "no kernel %s", kernel);
  char *next = strstr(at + 1, ".entry");
  *end = next ? next : ptx + strlen(ptx);
  return at;
}

static void blank(char *line) {
  while (*line != ';') *line++ = ' ';
  *line = ' ';
}

/* A copy's size becomes that of a whole chunk: the last operand is overwritten by the one before it. */
static void copy_all(char *line) {
  char *end = strchr(line, ';'), *comma = end;
  while (*comma != ',') comma--;
  char *before = comma - 1;
  while (*before != ',') before--;
  const char *size = before + 1 + strspn(before + 1, " ");
  char text[8] = {0};
  memcpy(text, size, strspn(size, "0123456789"));
  memset(comma + 1, ' ', (size_t)(end - comma - 1));
  memcpy(comma + 1, text, strlen(text));
}

/* A minimum becomes its operand `which`. */
static bool take_operand(char *line, int which) {
  char *end = strchr(line, ';'), to[24], of[2][24];
  if (sscanf(line, "min.s32 %23[^,], %23[^,], %23[^;]", to, of[0], of[1]) != 3) return false;
  char text[80];
  int length = snprintf(text, sizeof text, "mov.b32 %s, %s", to, of[which]);
  if (length > end - line) return false;
  memset(line, ' ', (size_t)(end - line));
  memcpy(line, text, (size_t)length);
  return true;
}

/* The n-th place of the kind; NULL where there is none. */
static char *place(char *ptx, const char *kernel, ptx_kind kind, int n) {
  char *end, *at = body_of(ptx, kernel, &end);
  for (; (at = strstr(at, kinds[kind].text)) && at < end; at++) {
    char *line = at;
    while (line[-1] != '\n' && line[-1] != ';' && line[-1] != '{') line--;
    while (isspace((unsigned char)*line)) line++;
    if (kind == PTX_BRANCH && *line != '@') continue;
    if (kind == PTX_ZEROS && (!strncmp(line, "cp.async.commit", 15) || strchr(line, ';')[-1] == '6'))
      continue; /* all of 16 bytes */
    if (n-- == 0) return line;
  }
  return NULL;
}

bool ptx_mutate(char *ptx, const char *kernel, ptx_kind kind, int n, int operand) {
  char *line = place(ptx, kernel, kind, n);
  if (!line) return false;
  if (kind == PTX_CLAMP) return take_operand(line, operand);
  if (kind == PTX_ZEROS)
    copy_all(line);
  else
    blank(line);
  return true;
}

const char *ptx_check_of(const ptx_outcome *o) {
  static const char *const checks[] = {
      "in flight", "race",     "uninitialised shared", "uninitialised", "out of bounds", "misaligned",
      "barrier",   "deadlock", "instructions",         "warp"};
  for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++)
    if (strstr(o->report, checks[i])) return checks[i];
  return o->report;
}

void ptx_set_copies(int copies) {
  simcuda_config config;
  simcuda_get_config(&config);
  config.copies = copies;
  config.seed = copies == SIMCUDA_RANDOM ? 4711 : 0;
  config.instructions = 3000000; /* of a loop that has lost its end; rows worked out again at D 120 take 2.3 million */
  simcuda_set_config(&config);
}
