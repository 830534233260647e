/* diagnose.c: what a mask's author may want to know before it runs.
 *
 * Input: a source, values, and the geometry of a call. Output: findings, each with its place in the source and a pair that
 * shows it. A finding is never a guess: the places of watch.h are asked about by questions (question.c), and
 * only a pair that was found, or a proof that there is none, makes a finding. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "question.h"

typedef struct diagnosis {
  flyi_subject subject;
  flyi_declarations declarations;
  flyi_watch watch;
  LLVMContextRef context;
  fly_mask *mask;
  const fly_arg *args;
  int arg_count;
  fly_geometry geometry; /* of the call */
  fly_geometry wide;     /* for clauses: what is true here is true for other lengths and offsets too */
  int line, column;      /* of the function mask */
  fly_findings *out;
  int capacity;
  fly_error *error;
} diagnosis;

/* ---- findings ---------------------------------------------------------------------------------------------------- */

void fly_findings_free(fly_findings *findings) {
  if (!findings) return;
  free(findings->finding);
  *findings = (fly_findings){0};
}

const char *fly_finding_name(fly_finding_kind kind) {
  static const char *const names[] = {[FLY_FINDING_BLIND_ROWS] = "blind-rows",
                                      [FLY_FINDING_ALWAYS_TRUE] = "always-true",
                                      [FLY_FINDING_ALWAYS_FALSE] = "always-false",
                                      [FLY_FINDING_INDEX] = "index",
                                      [FLY_FINDING_OVERFLOW] = "overflow",
                                      [FLY_FINDING_DIVISION_BY_ZERO] = "division-by-zero",
                                      [FLY_FINDING_NEGATIVE_OPERAND] = "negative-operand",
                                      [FLY_FINDING_SHIFT] = "shift",
                                      [FLY_FINDING_READS_NOTHING] = "reads-nothing"};
  return (size_t)kind < sizeof names / sizeof *names ? names[kind] : "unknown";
}

/* NULL: memory is short. Its message is to be set. */
static fly_finding *add(diagnosis *d, fly_finding_kind kind, int line, int column, const flyi_witness *w) {
  fly_findings *f = d->out;
  if (f->count == d->capacity) {
    int capacity = 2 * d->capacity + 16;
    fly_finding *grown = flyi_grow(f->finding, (size_t)capacity, sizeof *grown);
    if (!grown) return flyi_no_memory(d->error), NULL;
    f->finding = grown, d->capacity = capacity;
  }
  fly_finding *made = &f->finding[f->count++];
  *made = (fly_finding){.kind = kind, .line = line, .column = column, .b = -1, .h = -1};
  if (w) made->b = w->b, made->h = w->h, made->q = w->q, made->kv = w->kv;
  return made;
}

static void FLYI_PRINTF(2, 3) say(fly_finding *f, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(f->message, sizeof f->message, format, arguments);
  va_end(arguments);
}

/* By place; at one place, as they were found. Macros and loops may give the same finding twice. */
static int by_place(const void *left, const void *right) {
  const fly_finding *a = left, *b = right;
  return a->line != b->line       ? (a->line < b->line ? -1 : 1)
         : a->column != b->column ? (a->column < b->column ? -1 : 1)
         : a->kind != b->kind     ? (a->kind < b->kind ? -1 : 1)
                                  : strcmp(a->message, b->message);
}

static void sort_findings(fly_findings *f) {
  int kept = 0;
  if (f->count) qsort(f->finding, (size_t)f->count, sizeof *f->finding, by_place);
  for (int i = 0; i < f->count; i++)
    if (!kept || by_place(&f->finding[kept - 1], &f->finding[i])) f->finding[kept++] = f->finding[i];
  f->count = kept;
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

static bool ask(diagnosis *d, flyi_question_kind kind, int place, int64_t limit, const fly_geometry *g,
                flyi_found *found, flyi_witness *w) {
  flyi_question q = {kind, place, limit};
  *found = flyi_ask(&d->subject, &q, g, w, d->error);
  return *found != FLYI_FOUND_ERROR;
}

/* Whether sign * value is above `limit` for some pair. */
static bool exceeds(diagnosis *d, int place, int sign, int64_t limit, bool *yes) {
  flyi_found found;
  flyi_witness w;
  bool fine = ask(d, sign > 0 ? FLYI_ASK_ABOVE : FLYI_ASK_BELOW, place, sign * limit, &d->geometry, &found, &w);
  *yes = found == FLYI_FOUND_PAIR;
  return fine;
}

/* The greatest value at a place (sign 1), or the least (-1), by doubling and halving; what is never reached gives an
 * end of the range of 32 bits or so. */
static bool find_extreme(diagnosis *d, int place, int sign, int64_t *extreme) {
  const int64_t most = INT64_C(1) << 40;
  int64_t below = 0, above = 0, step = 1; /* some value is above `below`, none is above `above` */
  bool yes;
  if (!exceeds(d, place, sign, 0, &yes)) return false;
  for (bool up = yes; step < most; step *= 2) {
    int64_t limit = up ? step : -step;
    if (!exceeds(d, place, sign, limit, &yes)) return false;
    *(yes ? &below : &above) = limit;
    if (yes != up) break;
  }
  while (above - below > 1) {
    int64_t middle = below + (above - below) / 2;
    if (!exceeds(d, place, sign, middle, &yes)) return false;
    *(yes ? &below : &above) = middle;
  }
  return *extreme = sign * above, true;
}

static bool describe_index(diagnosis *d, int place, fly_finding *f, const char *at) {
  if (!find_extreme(d, place, -1, &f->low) || !find_extreme(d, place, 1, &f->high)) return false;
  say(f, "the index of %s can leave it: it runs from %" PRId64 " to %" PRId64 " (%s); it is clamped",
      d->watch.place[place].name, f->low, f->high, at);
  return true;
}

static bool describe(diagnosis *d, int place, const flyi_witness *w) {
  static const fly_finding_kind kinds[] = {[FLYI_WATCH_OVERFLOW] = FLY_FINDING_OVERFLOW,
                                           [FLYI_WATCH_ZERO] = FLY_FINDING_DIVISION_BY_ZERO,
                                           [FLYI_WATCH_NEGATIVE] = FLY_FINDING_NEGATIVE_OPERAND,
                                           [FLYI_WATCH_SHIFT] = FLY_FINDING_SHIFT,
                                           [FLYI_WATCH_INDEX] = FLY_FINDING_INDEX};
  const flyi_place *p = &d->watch.place[place];
  char at[128];
  snprintf(at, sizeof at, "for one at b = %" PRId64 ", h = %" PRId64 ", q = %" PRId64 ", kv = %" PRId64, w->b, w->h,
           w->q, w->kv);
  fly_finding *f = add(d, kinds[p->kind], p->line, p->column, w);
  if (!f) return false;
  switch (p->kind) {
  case FLYI_WATCH_OVERFLOW:
    say(f, "signed overflow of %s (%s); it wraps around", p->name, at);
    return true;
  case FLYI_WATCH_ZERO:
    say(f, "%s by zero (%s); x / 0 is 0, x %% 0 is x", p->name, at);
    return true;
  case FLYI_WATCH_NEGATIVE:
    say(f, "%s of a negative number (%s); C truncates towards 0 where Python floors", p->name, at);
    return true;
  case FLYI_WATCH_SHIFT:
    say(f, "%s by less than 0 or by the width and more (%s); the count is taken modulo the width", p->name, at);
    return true;
  default:
    return describe_index(d, place, f, at);
  }
}

/* One question about all places together answers most masks. */
static bool check_operations(diagnosis *d) {
  flyi_found found = FLYI_FOUND_NONE;
  flyi_witness w;
  if (!ask(d, FLYI_ASK_HAPPENS, -1, 0, &d->geometry, &found, &w)) return false;
  for (int i = 0; i < d->watch.count && found != FLYI_FOUND_NONE; i++) {
    flyi_found here;
    if (d->watch.place[i].kind == FLYI_WATCH_CLAUSE) continue;
    if (!ask(d, FLYI_ASK_HAPPENS, i, 0, &d->geometry, &here, &w)) return false;
    if (here == FLYI_FOUND_PAIR && !describe(d, i, &w)) return false;
  }
  return true;
}

/* ---- clauses ----------------------------------------------------------------------------------------------------- */

/* Whether it is ever what it seems never to be, with parameter i at another value. False: memory is short. */
static bool try_value(diagnosis *d, int place, flyi_question_kind never, int i, int64_t value, bool *happens) {
  flyi_question q = {never, place, 0};
  flyi_witness w;
  fly_bound *bound = NULL;
  const char *name = d->mask->info.parameters[i].name;
  fly_arg *args = flyi_alloc((size_t)d->arg_count + 1, sizeof *args);
  if (!args) return flyi_no_memory(d->error), false;
  int count = 0;
  for (int k = 0; k < d->arg_count; k++)
    if (strcmp(d->args[k].name, name) != 0) args[count++] = d->args[k];
  args[count++] = FLY_INT(name, value);
  flyi_found found = FLYI_FOUND_NONE;
  if (!fly_mask_bind(d->mask, args, count, &bound, NULL)) { /* else: not a value of its type */
    flyi_subject other = d->subject;
    other.bound = bound;
    found = flyi_ask(&other, &q, &d->wide, &w, d->error);
  }
  fly_bound_release(&bound);
  free(args);
  *happens |= found == FLYI_FOUND_PAIR || found == FLYI_FOUND_OPEN;
  return found != FLYI_FOUND_ERROR;
}

/* A condition that only these values of the parameters make constant is meant to be switched by them. */
static bool depends_on_values(diagnosis *d, int place, flyi_question_kind never, bool *depends) {
  const fly_mask_info *info = &d->mask->info;
  for (int i = 0; i < info->parameter_count && !*depends; i++) {
    fly_type type = info->parameters[i].type;
    int64_t value = (int64_t)d->subject.bound->slots[i];
    if (type == FLY_F32 || type == FLY_F64) {
      *depends = true; /* not looked into */
    } else if (type == FLY_BOOL) {
      if (!try_value(d, place, never, i, !value, depends)) return false;
    } else if (value < INT64_MAX / 4 && value > INT64_MIN / 4) {
      if (!try_value(d, place, never, i, value / 2, depends)) return false;
      if (!*depends && !try_value(d, place, never, i, 2 * value + 3, depends)) return false;
    }
  }
  return true;
}

static bool check_clause(diagnosis *d, int place) {
  flyi_found yes, no;
  flyi_witness w;
  const flyi_place *p = &d->watch.place[place];
  if (!flyi_depends_on_pair(&d->subject, place)) return true;
  if (!ask(d, FLYI_ASK_HAPPENS, place, 0, &d->wide, &yes, &w)) return false;
  if (!ask(d, FLYI_ASK_HAPPENS_NOT, place, 0, &d->wide, &no, &w)) return false;
  bool always = yes == FLYI_FOUND_PAIR && no == FLYI_FOUND_NONE,
       never = yes == FLYI_FOUND_NONE && no == FLYI_FOUND_PAIR;
  bool depends = false;
  if (!always && !never) return true;
  if (!depends_on_values(d, place, always ? FLYI_ASK_HAPPENS_NOT : FLYI_ASK_HAPPENS, &depends)) return false;
  if (depends) return true;
  fly_finding *f = add(d, always ? FLY_FINDING_ALWAYS_TRUE : FLY_FINDING_ALWAYS_FALSE, p->line, p->column, NULL);
  if (!f) return false;
  say(f, "this condition is always %s, whatever q and kv are", always ? "true" : "false");
  return true;
}

static bool check_clauses(diagnosis *d) {
  for (int i = 0; i < d->watch.count; i++)
    if (d->watch.place[i].kind == FLYI_WATCH_CLAUSE && !check_clause(d, i)) return false;
  return true;
}

/* ---- the mask as a whole ----------------------------------------------------------------------------------------- */

static bool describe_blind(diagnosis *d, const flyi_blind *first, const flyi_witness *w, int64_t planes) {
  fly_finding *f = add(d, FLY_FINDING_BLIND_ROWS, d->line, d->column, w);
  if (!f) return false;
  f->low = first->first, f->high = first->last;
  char rows[64], more[64] = "";
  if (first->last > first->first)
    snprintf(rows, sizeof rows, "rows %" PRId64 " to %" PRId64, first->first, first->last);
  else
    snprintf(rows, sizeof rows, "row %" PRId64, first->first);
  int64_t rest = first->count - (first->last - first->first + 1);
  if (rest) snprintf(more, sizeof more, " and %" PRId64 " more", rest);
  say(f, "query %s%s of b = %" PRId64 ", h = %" PRId64 "%s see%s no key; their output is 0", rows, more, w->b, w->h,
      planes > 1 ? " (and of others)" : "", first->count == 1 ? "s" : "");
  return true;
}

static bool check_rows(diagnosis *d) {
  fly_map *map;
  fly_map_info info;
  if (fly_map_build((fly_bound *)d->subject.bound, &d->geometry, NULL, &map, d->error)) return false;
  fly_map_get_info(map, &info);
  flyi_blind first = {0}, here;
  flyi_witness w = {0};
  int64_t planes = 0;
  for (int64_t i = 0; info.tiles_kv && i < info.batch * info.heads; i++) {
    int64_t b = i / info.heads, h = i % info.heads;
    flyi_find_blind(map, b, h, &here);
    if (here.count && !planes++) first = here, w = (flyi_witness){b, h, here.first + d->geometry.q_offset, -1};
  }
  fly_map_release(&map);
  return !planes || describe_blind(d, &first, &w, planes);
}

static bool check_reads(diagnosis *d) {
  const fly_mask_info *info = &d->mask->info;
  bool pair = info->reads_q || info->reads_kv || info->reads_token_q || info->reads_token_kv;
  bool other = info->reads_b || info->reads_h || info->parameter_count || info->buffer_count;
  if (pair || !other) return true; /* a constant is meant as one */
  fly_finding *f = add(d, FLY_FINDING_READS_NOTHING, d->line, d->column, NULL);
  if (f) say(f, "the mask depends on neither q nor kv: every query of a head sees all keys or none");
  return f != NULL;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* Positions from -n to 2 n for queries, to 2 n for keys, n the longer length; no row maps. */
static void widen(diagnosis *d, const flyi_domain *domain) {
  int64_t n = domain->max_q > domain->max_kv ? domain->max_q : domain->max_kv;
  if (n < FLYI_BLOCK) n = FLYI_BLOCK;
  if (n > INT32_MAX / 4) n = INT32_MAX / 4;
  d->wide = (fly_geometry){
      FLY_INIT(fly_geometry), .batch = d->geometry.batch, .heads = d->geometry.heads, .len_q = 3 * n, .len_kv = 2 * n,
      .q_offset = -n};
}

static fly_status prepare(diagnosis *d, const char *source, const char *name, const fly_compile_options *options,
                          fly_error *error) {
  flyi_bytes ir = {0};
  d->context = flyi_context_create();
  fly_status status = flyi_frontend_watched(source, name, options, &ir, error);
  if (!status)
    status = flyi_verify_watched(d->context, (flyi_section){ir.data, ir.size}, name, &d->subject.module,
                                 &d->declarations, &d->watch, error);
  flyi_bytes_free(&ir);
  if (status) return status;
  d->subject.declarations = &d->declarations, d->subject.watch = &d->watch;
  LLVMValueRef mask = LLVMGetNamedFunction(d->subject.module, "mask");
  d->line = (int)LLVMGetDebugLocLine(mask), d->column = 1;
  return flyi_isa_parse(options ? options->target : NULL, &d->subject.isa, error);
}

static fly_status diagnose(diagnosis *d, const char *source, const char *name, const fly_compile_options *options,
                           fly_error *error) {
  fly_error own = {0};
  d->error = error ? error : &own;
  fly_status status = prepare(d, source, name, options, d->error);
  if (status) return status;
  if (!check_reads(d) || !check_operations(d) || !check_clauses(d) || !check_rows(d)) return d->error->status;
  sort_findings(d->out);
  return FLY_OK;
}

static void finish(diagnosis *d) {
  if (d->subject.module) LLVMDisposeModule(d->subject.module);
  flyi_declarations_free(&d->declarations);
  flyi_watch_free(&d->watch);
  if (d->context) LLVMContextDispose(d->context);
}

fly_status fly_mask_check(const char *source, const char *name, const fly_compile_options *options, const fly_arg *args,
                          int count, const fly_geometry *geometry, fly_findings *out, fly_error *error) {
  fly_mask *mask = NULL;
  fly_bound *bound = NULL;
  flyi_domain domain;
  if (!out) return flyi_fail(error, FLY_ERROR_ARGUMENT, "out is NULL");
  *out = (fly_findings){0};
  fly_status status = flyi_domain_check(geometry, &domain, error);
  if (status || (status = fly_mask_compile(source, name, options, &mask, error))) return status;
  const int64_t most = INT64_C(60000000000); /* nanoseconds for all questions */
  diagnosis d = {.subject.until = flyi_nanoseconds() + most,
                 .mask = mask,
                 .args = args,
                 .arg_count = count,
                 .geometry = domain.geometry,
                 .out = out};
  status = fly_mask_bind(mask, args, count, &bound, error);
  d.subject.bound = bound;
  widen(&d, &domain);
  if (!status) status = diagnose(&d, source, mask->image.name, options, error);
  finish(&d);
  fly_bound_release(&bound);
  fly_mask_release(&mask);
  if (status) fly_findings_free(out);
  return status;
}
