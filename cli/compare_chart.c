/* compare_chart.c: charts, drawn by gnuplot. From series, bars and heat maps to a script, NAME.gp, which a person can
 * change and run again, and to what it draws: NAME.svg and NAME.png. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "compare.h"

extern char **environ;

/* Okabe and Ito's colours for the colour-blind, with marks that differ too. */
static const struct {
  const char *color;
  int mark;
} styles[STYLES] = {
    [METHOD_FULL] = {"#000000", 7},  [METHOD_SWA] = {"#0072B2", 5},   [METHOD_SA] = {"#D55E00", 9},
    [METHOD_BOTH] = {"#009E73", 13}, [METHOD_MOBA] = {"#CC79A7", 11}, [STYLE_OTHER] = {"#8a8f99", 6},
    [STYLE_SECOND] = {"#E69F00", 2}, [STYLE_RANDOM] = {"#56B4E9", 4},
};

/* ---- the script -------------------------------------------------------------------------------------------------- */

static void number(FILE *out, double value) {
  if (isfinite(value))
    fprintf(out, " %.8g", value);
  else
    fputs(" NaN", out);
}

static void write_data(const chart *c, FILE *out) {
  for (int i = 0; i < c->count; i++) {
    const chart_panel *p = &c->panels[i];
    for (int j = 0; p->kind == PANEL_LINES_XY && j < p->count; j++) {
      const series *s = &p->lines[j];
      fprintf(out, "$p%d_%d << EOD\n", i, j);
      for (int k = 0; k < s->count; k++) {
        number(out, s->x[k]);
        number(out, s->y[k]);
        number(out, s->low ? s->low[k] : s->y[k]);
        number(out, s->high ? s->high[k] : s->y[k]);
        putc('\n', out);
      }
      fputs("EOD\n", out);
    }
    if (p->kind == PANEL_BARS) {
      fprintf(out, "$p%d << EOD\n", i);
      for (int j = 0; j < p->count; j++)
        fprintf(out, "%d %.8g %.8g %.8g %ld\n", j, p->bars[j].value, p->bars[j].low, p->bars[j].high,
                strtol(styles[p->bars[j].style].color + 1, NULL, 16));
      fputs("EOD\n", out);
    }
    if (p->kind == PANEL_HEAT) {
      fprintf(out, "$p%d << EOD\n", i);
      for (int row = 0; row < p->heat.n; row++) {
        for (int column = 0; column < p->heat.n; column++) number(out, p->heat.values[row * p->heat.n + column]);
        putc('\n', out);
      }
      fputs("EOD\n", out);
    }
  }
}

static void write_lines(const chart_panel *p, int panel, FILE *out) {
  const char *between = "plot";
  for (int j = 0; j < p->count; j++)
    if (p->lines[j].low) {
      fprintf(out,
              "%s $p%d_%d using 1:3:4 with filledcurves fillcolor rgb '%s' fillstyle transparent solid 0.18 notitle",
              between, panel, j, styles[p->lines[j].style].color);
      between = ", \\\n ";
    }
  for (int j = 0; j < p->count; j++) {
    const series *s = &p->lines[j];
    fprintf(out, "%s $p%d_%d using 1:2 with %s linecolor rgb '%s' linewidth %s dashtype %d", between, panel, j,
            s->dashed ? "lines" : "linespoints", styles[s->style].color, s->dashed ? "1.5" : "2", s->dashed ? 2 : 1);
    if (!s->dashed) fprintf(out, " pointtype %d pointsize 0.8", styles[s->style].mark);
    if (s->title)
      fprintf(out, " title '%s'", s->title);
    else
      fputs(" notitle", out);
    between = ", \\\n ";
  }
  putc('\n', out);
}

static void write_bars(const chart_panel *p, int panel, FILE *out) {
  fprintf(out, "set xrange [-0.6:%d.6]\nset xtics () rotate by -35 left\n", p->count - 1);
  for (int j = 0; j < p->count; j++) fprintf(out, "set xtics add (\"%s\" %d)\n", p->bars[j].title, j);
  fprintf(out,
          "plot $p%d using 1:2:(0.62):5 with boxes fillcolor rgb variable fillstyle solid 0.85 "
          "noborder notitle, \\\n  $p%d using 1:3:(0):($4-$3) with vectors nohead linecolor rgb '#20242c' notitle, \\\n"
          "  $p%d using 1:2:(sprintf('%%.3g', column(2))) with labels offset 0,0.8 notitle\n",
          panel, panel, panel);
}

static void write_heat(const chart_panel *p, int panel, FILE *out) {
  fprintf(
      out,
      "set xrange [-0.5:%d.5]\nset yrange [%d.5:-0.5]\nset size ratio 1\nset cbrange [%.8g:%.8g]\n"
      "set logscale cb\nset label 1 '%s' at graph 1.03, graph 1.07\nunset grid\n"
      "set object 1 rectangle from graph 0,0 to graph 1,1 behind fillcolor rgb '#b4b8bf' fillstyle solid noborder\n",
      p->heat.n - 1, p->heat.n - 1, p->low, p->high, p->heat.unit);
  fprintf(out, "if (format eq 'svg') { plot $p%d matrix using 1:2:3 with image pixels notitle }\n", panel);
  fprintf(out, "else { plot $p%d matrix using 1:2:3 with image notitle }\nunset object 1\nunset label 1\n", panel);
}

static void write_panel(const chart *c, int i, FILE *out) {
  const chart_panel *p = &c->panels[i];
  fprintf(out,
          "unset logscale\nset autoscale\nset xtics norotate autofreq\nset title \"%s\"\nset xlabel \"%s\"\nset ylabel "
          "\"%s\"\n",
          p->title, p->x ? p->x : "", p->y ? p->y : "");
  fprintf(out, "set key %s\n", p->key ? p->key : "top left");
  fprintf(out, "set format x '%s'\n", p->kilo ? "%.0b%B" : "% h");
  if (p->log_x) fputs("set logscale x 2\n", out);
  if (p->log_y) fputs("set logscale y 10\n", out);
  if (p->low < p->high && p->kind != PANEL_HEAT) fprintf(out, "set yrange [%.8g:%.8g]\n", p->low, p->high);
  if (p->kind == PANEL_LINES_XY) write_lines(p, i, out);
  if (p->kind == PANEL_BARS) write_bars(p, i, out);
  if (p->kind == PANEL_HEAT) write_heat(p, i, out);
}

static const char look[] =
    "set encoding utf8\n"
    "set palette defined (0 '#440154', 0.25 '#3b528b', 0.5 '#21918c', 0.75 '#5ec962', 1 '#fde725')\n"
    "set border 3 linecolor rgb '#6c7380'\n"
    "set tics nomirror textcolor rgb '#20242c'\n"
    "set grid linecolor rgb '#e4e6ea' linetype 1\n"
    "set key top left reverse Left samplen 2 opaque\n";

static void write_script(const chart *c, FILE *out) {
  fprintf(out, "# Draws %s.svg and %s.png: gnuplot -d %s.gp\n", c->name, c->name, c->name);
  fputs(look, out);
  write_data(c, out);
  fputs("do for [format in 'svg png'] {\nif (format eq 'svg') {\n", out);
  fprintf(out, "set terminal svg size %d,%d noenhanced font 'DejaVu Sans,12' background rgb 'white'\n} else {\n",
          c->width, c->height);
  fprintf(out,
          "set terminal pngcairo size %d,%d noenhanced fontscale 2 linewidth 2 pointscale 2 font 'DejaVu Sans,9'\n}\n",
          2 * c->width, 2 * c->height);
  fprintf(out, "set output '%s.' . format\nset multiplot layout %d,%d\n", c->name,
          (c->count + c->columns - 1) / c->columns, c->columns);
  for (int i = 0; i < c->count; i++) write_panel(c, i, out);
  fputs("unset multiplot\nunset output\n}\n", out);
}

/* ---- gnuplot ----------------------------------------------------------------------------------------------------- */

/* Runs it in `directory`; what it says goes to `said`. The result is its exit code; -1: it did not start (errno). */
static int run_gnuplot(char *const *arguments, const char *directory, FILE *said) {
  posix_spawn_file_actions_t files;
  int code = -1;
  pid_t child;
  if ((errno = posix_spawn_file_actions_init(&files))) return -1;
  errno = posix_spawn_file_actions_adddup2(&files, fileno(said), STDERR_FILENO);
  if (!errno) errno = posix_spawn_file_actions_adddup2(&files, fileno(said), STDOUT_FILENO);
  if (!errno) errno = posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (!errno) errno = posix_spawn_file_actions_addchdir_np(&files, directory);
  if (!errno) errno = posix_spawnp(&child, "gnuplot", &files, NULL, arguments, environ);
  if (!errno) {
    while (waitpid(child, &code, 0) < 0 && errno == EINTR) continue;
    code = WIFEXITED(code) ? WEXITSTATUS(code) : 128;
  }
  posix_spawn_file_actions_destroy(&files);
  return code;
}

/* The last line that is not a warning's echo, without its newline. */
static void last_line(FILE *said, char *line, size_t size) {
  char text[256];
  line[0] = 0;
  rewind(said);
  while (fgets(text, sizeof text, said))
    if (text[strspn(text, " \t\n")]) snprintf(line, size, "%.*s", (int)strcspn(text, "\n"), text);
}

fly_status chart_check(fly_error *error) {
  char *arguments[] = {"gnuplot", "-d", "-e", "set terminal pngcairo; set terminal svg", NULL};
  FILE *said = tmpfile();
  if (!said) return fail(error, FLY_ERROR_IO, NULL, "cannot make a temporary file: %s", strerror(errno));
  int code = run_gnuplot(arguments, "/", said);
  fly_status status = FLY_OK;
  if (code < 0)
    status = fail(error, FLY_ERROR_TOOL, NULL, "cannot run gnuplot, which draws the charts (%s): install gnuplot-nox",
                  strerror(errno));
  else if (code > 0)
    status = fail(
        error, FLY_ERROR_TOOL, NULL,
        "this gnuplot cannot draw: it must be 5.4 or later with the terminals pngcairo and svg (gnuplot-nox)");
  fclose(said);
  return status;
}

fly_status chart_draw(const chart *c, const char *directory, fly_error *error) {
  char *name = NULL, *path = NULL, *text = NULL, line[256];
  struct iovec part = {0};
  fly_status status = FLY_OK;
  FILE *said = tmpfile(), *script = open_memstream(&text, &part.iov_len);
  if (!said || !script || asprintf(&name, "%s.gp", c->name) < 0 || asprintf(&path, "%s/%s", directory, name) < 0) {
    status = fail_memory(error);
    goto done;
  }
  write_script(c, script);
  if (fclose(script) != 0) status = fail_memory(error);
  script = NULL;
  part.iov_base = text;
  if (status == FLY_OK) status = file_save(path, &part, 1, error);
  if (status != FLY_OK) goto done;
  int code = run_gnuplot((char *[]){"gnuplot", "-d", name, NULL}, directory, said);
  status = compare_going(error);
  if (status == FLY_OK && code != 0) {
    last_line(said, line, sizeof line);
    status = fail(error, FLY_ERROR_TOOL, NULL, "gnuplot could not draw %s: %s", c->name,
                  code < 0 ? strerror(errno) : line);
  }
done:
  if (said) fclose(said);
  if (script) fclose(script);
  free(text);
  free(name);
  free(path);
  return status;
}
