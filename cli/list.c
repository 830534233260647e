/* list.c: `flymask list`: the masks that a name finds, then the score modifiers, each with the first sentence of the
 * comment that its file begins with, sorted by name. A source that includes flymask/score.h is a modifier. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

static const struct argp_option options[] = {OPTION_JSON, {0}};

static const char doc[] =
    "List the masks that MASK can name, one a line, and the score modifiers that --score can name: those in the "
    "directories of FLYMASK_MASKS and those that come with Flymask."
    "\v"
    "The text is the first sentence of the comment at the top of the file, behind the name.\n";

typedef struct listed {
  char *name, *path, *text;
  bool score;
} listed;

typedef struct list {
  listed *masks;
  size_t count, room;
} list;

static void free_listed(listed *mask) {
  free(mask->name);
  free(mask->path);
  free(mask->text);
}

static void list_free(list *all) {
  for (size_t i = 0; i < all->count; i++) free_listed(&all->masks[i]);
  free(all->masks);
}

/* ---- descriptions ------------------------------------------------------------------------------------------------ */

static const char *skip_space(const char *at) { return at + strspn(at, " \t\r\n"); }

/* Copies one sentence of a comment's text: line breaks with their leading stars become spaces, the final full stop is
 * left out. */
static void copy_sentence(const char *at, char *out) {
  char *to = out;
  while (*at && strncmp(at, "*/", 2) != 0 && !(*at == '.' && strchr(" \t\r\n*", at[1]))) {
    if (!strchr(" \t\r\n", *at)) {
      *to++ = *at++;
      continue;
    }
    at = skip_space(at);
    if (*at == '*' && at[1] != '/') at = skip_space(at + 1);
    *to++ = ' ';
  }
  while (to > out && to[-1] == ' ') to--;
  *to = 0;
}

/* The description of a source, empty where it does not begin with a comment. out holds as much as source. */
static void describe(const char *source, const char *name, char *out) {
  *out = 0;
  const char *at = skip_space(source);
  if (strncmp(at, "/*", 2) != 0) return;
  at = skip_space(at + 2);
  if (*at == '*' && at[1] != '/') at = skip_space(at + 1);
  size_t length = strlen(name);
  if (strncmp(at, name, length) == 0 && at[length] == ':') at = skip_space(at + length + 1);
  copy_sentence(at, out);
}

static fly_status read_text(listed *mask, fly_error *error) {
  enum { MOST = 4096 }; /* a description stands at the beginning */
  char source[MOST];
  FILE *file = fopen(mask->path, "re");
  if (!file) return fail(error, FLY_ERROR_IO, mask->path, "%s", strerror(errno));
  size_t length = fread(source, 1, sizeof source - 1, file);
  bool failed = ferror(file);
  fclose(file);
  if (failed) return fail(error, FLY_ERROR_IO, mask->path, "cannot be read");
  source[length] = 0;
  mask->score = strstr(source, "flymask/score.h") != NULL;
  mask->text = malloc(length + 1);
  if (!mask->text) return fail_memory(error);
  describe(source, mask->name, mask->text);
  return FLY_OK;
}

/* ---- directories ------------------------------------------------------------------------------------------------- */

static bool is_listed(const list *all, const listed *mask) {
  for (size_t i = 0; i < all->count; i++)
    if (all->masks[i].score == mask->score && strcmp(all->masks[i].name, mask->name) == 0) return true;
  return false;
}

static fly_status add(list *all, const char *directory, const char *file, size_t length, fly_error *error) {
  if (all->count == all->room) {
    size_t room = all->room ? 2 * all->room : 64;
    listed *grown = realloc(all->masks, room * sizeof *grown);
    if (!grown) return fail_memory(error);
    all->masks = grown;
    all->room = room;
  }
  listed mask = {.name = strndup(file, length)};
  if (asprintf(&mask.path, "%s/%s", directory, file) < 0) mask.path = NULL;
  fly_status status = mask.name && mask.path ? read_text(&mask, error) : fail_memory(error);
  if (status == FLY_OK && !is_listed(all, &mask))
    all->masks[all->count++] = mask; /* the list's now */
  else
    free_listed(&mask);
  return status;
}

/* A name that an earlier directory has hides a later one of its kind; a directory that does not exist has no masks. */
static fly_status add_directory(list *all, const char *directory, fly_error *error) {
  DIR *stream = *directory ? opendir(directory) : NULL;
  if (!stream) return FLY_OK;
  fly_status status = FLY_OK;
  const struct dirent *entry;
  while (status == FLY_OK && (entry = readdir(stream))) {
    size_t length = strlen(entry->d_name);
    if (length < 3 || strcmp(entry->d_name + length - 2, ".c") != 0 || entry->d_name[0] == '.') continue;
    status = add(all, directory, entry->d_name, length - 2, error);
  }
  closedir(stream);
  return status;
}

static int by_name(const void *a, const void *b) {
  const listed *x = a, *y = b;
  return x->score != y->score ? x->score - y->score : strcmp(x->name, y->name);
}

/* `directories` is freed. */
static fly_status add_directories(list *all, char *directories, fly_error *error) {
  char *rest = directories;
  if (!directories) return fail_memory(error);
  fly_status status = FLY_OK;
  const char *directory;
  while (status == FLY_OK && (directory = strsep(&rest, ":"))) status = add_directory(all, directory, error);
  free(directories);
  return status;
}

static fly_status collect(list *all, fly_error *error) {
  fly_status status = add_directories(all, mask_directories(), error);
  if (status == FLY_OK) status = add_directories(all, score_directories(), error);
  if (status == FLY_OK && all->count) qsort(all->masks, all->count, sizeof *all->masks, by_name);
  return status;
}

/* ---- output ------------------------------------------------------------------------------------------------------ */

static fly_status print_json(const list *all, fly_error *error) {
  json_t *masks = json_array(), *scores = json_array();
  for (size_t i = 0; masks && scores && i < all->count; i++) {
    const listed *m = &all->masks[i];
    json_t *mask = json_pack("{ss ss ss}", "name", m->name, "description", m->text, "path", m->path);
    if (mask && json_array_append_new(m->score ? scores : masks, mask) == 0) continue;
    json_decref(masks), json_decref(scores); /* no memory, or a text that is not UTF-8 */
    return fail(error, FLY_ERROR_IO, m->path, "its name or description cannot be written as JSON");
  }
  return report_json(masks && scores ? json_pack("{so so}", "masks", masks, "scores", scores) : NULL, error);
}

static void print_text(const list *all) {
  size_t width = 0;
  for (size_t i = 0; i < all->count; i++)
    if (strlen(all->masks[i].name) > width) width = strlen(all->masks[i].name);
  for (size_t i = 0; i < all->count; i++) {
    if (all->masks[i].score && (i == 0 || !all->masks[i - 1].score)) printf("\nScore modifiers (--score):\n");
    printf("%-*s  %s\n", (int)width, all->masks[i].name, all->masks[i].text);
  }
}

int command_list(int argc, char **argv) {
  arguments args;
  arguments_parse(argc, argv, options, doc, false, &args);
  fly_error error = {0};
  list all = {0};
  fly_status status = collect(&all, &error);
  if (status == FLY_OK && args.json)
    status = print_json(&all, &error);
  else if (status == FLY_OK)
    print_text(&all);
  if (status == FLY_OK) status = report_end(&error);
  if (status != FLY_OK) print_error(&error);
  list_free(&all);
  arguments_free(&args);
  return status == FLY_OK ? 0 : EXIT_FAILURE;
}
