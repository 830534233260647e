/* compare.c: `flymask compare`: mechanisms of attention held against each other on the same inputs and budgets. From
 * its options to a directory with a report, which is made beside it and moved there when all is done. */
#include <dirent.h>
#include <errno.h>
#include <omp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "compare.h"

/* ---- stopping ---------------------------------------------------------------------------------------------------- */

static volatile sig_atomic_t stopped_by; /* a signal's number */

static void on_signal(int number) { stopped_by = number; }

static void watch_signals(void) {
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND}; /* the second one kills */
  static const int signals[] = {SIGINT, SIGTERM, SIGHUP};
  for (int i = 0; i < 3; i++) sigaction(signals[i], &action, NULL);
}

fly_status compare_going(fly_error *error) {
  if (!stopped_by) return FLY_OK;
  return fail(error, FLY_ERROR_IO, NULL, "stopped by a signal; nothing was written");
}

/* ---- the directory ----------------------------------------------------------------------------------------------- */

/* A new directory beside `path`, on the same file system. The caller's. What cannot become the report's directory is
 * refused here, before minutes of work. */
static fly_status make_beside(const char *path, char **out, fly_error *error) {
  struct stat info;
  if (stat(path, &info) == 0 && !S_ISDIR(info.st_mode)) return fail(error, FLY_ERROR_IO, path, "is not a directory");
  if (stat(path, &info) == 0 && access(path, W_OK) != 0)
    return fail(error, FLY_ERROR_IO, path, "cannot write: %s", strerror(errno));
  size_t length = strlen(path);
  while (length > 1 && path[length - 1] == '/') length--;
  *out = NULL;
  if (asprintf(out, "%.*s.XXXXXX", (int)length, path) < 0) {
    *out = NULL;
    return fail_memory(error);
  }
  if (mkdtemp(*out)) return chmod(*out, 0755) == 0 ? FLY_OK : fail(error, FLY_ERROR_IO, *out, "%s", strerror(errno));
  fly_status status = fail(error, FLY_ERROR_IO, path, "cannot create a directory beside it: %s", strerror(errno));
  free(*out);
  *out = NULL;
  return status;
}

/* One file to its place; report.html comes last, so that it is never newer than what belongs to it. */
static fly_status move_file(const char *from, const char *to, const char *name, fly_error *error) {
  char *old = NULL, *new = NULL;
  fly_status status = FLY_OK;
  if (asprintf(&old, "%s/%s", from, name) < 0) old = NULL;
  if (asprintf(&new, "%s/%s", to, name) < 0) new = NULL;
  if (!old || !new)
    status = fail_memory(error);
  else if (rename(old, new) != 0)
    status = fail(error, FLY_ERROR_IO, new, "cannot write: %s", strerror(errno));
  free(old);
  free(new);
  return status;
}

/* Where `to` is no directory yet, `from` becomes it; otherwise the files move there one by one. */
static fly_status move_into(const char *from, const char *to, fly_error *error) {
  static const char last[] = "report.html";
  if (mkdir(to, 0777) != 0 && errno != EEXIST)
    return fail(error, FLY_ERROR_IO, to, "cannot create: %s", strerror(errno));
  if (rename(from, to) == 0) return FLY_OK; /* an empty directory gives way */
  DIR *files = opendir(from);
  if (!files) return fail(error, FLY_ERROR_IO, from, "cannot read: %s", strerror(errno));
  fly_status status = FLY_OK;
  const struct dirent *entry;
  while (status == FLY_OK && (entry = readdir(files)))
    if (entry->d_name[0] != '.' && strcmp(entry->d_name, last) != 0) status = move_file(from, to, entry->d_name, error);
  closedir(files);
  return status == FLY_OK ? move_file(from, to, last, error) : status;
}

/* ---- the report -------------------------------------------------------------------------------------------------- */

static const struct {
  const char *title;
  fly_status (*run)(const compare_options *options, const tensors *t, page *p, fly_error *error);
} sections[SECTIONS] = {
    [SECTION_COST] = {"Cost", section_cost},
    [SECTION_COVERAGE] = {"Coverage: how far information travels", section_coverage},
    [SECTION_SMALL_WORLD] = {"Small world", section_small_world},
    [SECTION_PICTURE] = {"Attention picture", section_picture},
    [SECTION_QUALITY] = {"Quality: how close to full attention", section_quality},
};

/* The processor's name, as the system tells it. */
static void processor(char *text, size_t size) {
  char line[256];
  snprintf(text, size, "an unnamed processor");
  FILE *file = fopen("/proc/cpuinfo", "re");
  if (!file) return;
  while (fgets(line, sizeof line, file)) {
    char *value = strchr(line, ':');
    if (!value || strncmp(line, "model name", 10) != 0) continue;
    value[strcspn(value, "\n<>&\"")] = 0;
    snprintf(text, size, "%s", value + 2);
    break;
  }
  fclose(file);
}

static fly_status introduce(const compare_options *options, const tensors *t, page *p, fly_error *error) {
  char name[128];
  int threads = options->threads ? options->threads : omp_get_max_threads();
  const char *target = options->target ? options->target : fly_cpu_targets()[0];
  processor(name, sizeof name);
  fputs("<h1>Attention mechanisms compared</h1>\n", p->html);
  page_text(p,
            "Full causal attention, sliding windows (SWA), Stochastic Attention (SA, <a "
            "href=\"https://arxiv.org/abs/2604.00754\">arXiv 2604.00754</a>), gated SA + SWA and MoBA (<a "
            "href=\"https://arxiv.org/abs/2502.13189\">arXiv 2502.13189</a>), all compiled by one generator, so that "
            "differences are those of the mechanisms.");
  fputs("<p><b>Inputs:</b> ", p->html);
  html_text(p->html, t->description);
  fprintf(p->html,
          ". <b>Machine:</b> %s, %d thread%s, target %s; Flymask " FLY_VERSION
          ", all tensors f32. <b>Permutations:</b> %d, seeds 1 to %d.</p>\n",
          name, threads, threads == 1 ? "" : "s", target, options->seeds, options->seeds);
  page_text(
      p, "<b>Which window?</b> \"Effective window w\" of SA has two readings. <i>Keys touched:</i> w / 2 positions on "
         "each side in permuted order are compared, which costs what a sliding window of w costs; but no token "
         "sees a later one, so about half of those keys stay. <i>Keys visible:</i> w positions on each side, of "
         "which w are seen on average. Every budget below says which of the two it counts.");
  fputs("<nav>", p->html);
  for (int i = 0; i < SECTIONS; i++)
    if (options->sections[i]) fprintf(p->html, "<a href=\"#%s\">%s</a>", section_option(i), sections[i].title);
  fputs("</nav>\n", p->html);
  json_t *about = json_pack("{ss ss ss si si ss}", "version", FLY_VERSION, "inputs", t->description, "processor", name,
                            "threads", threads, "seeds", options->seeds, "target", target);
  return about && json_object_set_new(p->json, "about", about) == 0 ? FLY_OK : fail_memory(error);
}

static fly_status write_report(const compare_options *options, const char *directory, fly_error *error) {
  tensors t = {0};
  page p = {0};
  fly_status status = inputs_read(options, &t, error);
  if (status == FLY_OK) status = page_open(directory, &p, error);
  if (status == FLY_OK) status = introduce(options, &t, &p, error);
  for (int i = 0; status == FLY_OK && i < SECTIONS; i++) {
    if (!options->sections[i]) continue;
    status = page_section(&p, section_option(i), sections[i].title, error);
    if (status == FLY_OK) status = sections[i].run(options, &t, &p, error);
    if (status == FLY_OK) status = compare_going(error);
  }
  if (status == FLY_OK) status = page_save(&p, error);
  page_free(&p);
  tensors_free(&t);
  return status;
}

int command_compare(int argc, char **argv) {
  compare_options options;
  compare_options_parse(argc, argv, &options);
  fly_error error;
  char *directory = NULL;
  double start = now_ms();
  fly_status status = chart_check(&error);
  watch_signals();
  if (status == FLY_OK) status = make_beside(options.out, &directory, &error);
  if (status == FLY_OK) status = write_report(&options, directory, &error);
  if (status == FLY_OK) status = move_into(directory, options.out, &error);
  progress_end();
  if (status == FLY_OK) {
    report_line("report", "%s/report.html", options.out);
    report_line("time", "%.0f s", (now_ms() - start) * 1e-3);
    status = report_end(&error);
  }
  if (status != FLY_OK) print_error(&error);
  if (directory) remove_tree(directory);
  free(directory);
  if (stopped_by) raise(stopped_by); /* its own action is back: the shell sees what ended the command */
  return status == FLY_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
