/* diagnose.c: what the author of a mask or score modifier may want to know before it runs.
 *
 * Input: a source, values, and the geometry of a call. Output: findings, each with its place in the source and, where
 * there is one, a pair that shows it (diagnose.h lists the files). */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <llvm-c/DebugInfo.h>

#include "diagnose.h"

bool flyi_diagnosis_ask(flyi_diagnosis *d, flyi_question_kind kind, int place, const fly_geometry *geometry,
                        flyi_found *found, flyi_witness *w) {
  flyi_question q = {kind, place, 0};
  *found = flyi_ask(&d->subject, &q, geometry, w, d->error);
  d->out->undecided += *found == FLYI_FOUND_OPEN;
  return *found != FLYI_FOUND_ERROR;
}

/* ---- the mask as a whole ----------------------------------------------------------------------------------------- */

static bool describe_blind(flyi_diagnosis *d, const flyi_blind *first, const flyi_witness *w, int64_t planes) {
  fly_finding *f = flyi_finding_add(d, FLY_FINDING_BLIND_ROWS, d->line, d->column, w);
  if (!f) return false;
  f->low = first->first, f->high = first->last;
  char rows[64], more[64] = "";
  if (first->last > first->first)
    snprintf(rows, sizeof rows, "rows %" PRId64 " to %" PRId64, first->first, first->last);
  else
    snprintf(rows, sizeof rows, "row %" PRId64, first->first);
  int64_t rest = first->count - (first->last - first->first + 1);
  if (rest) snprintf(more, sizeof more, " and %" PRId64 " more", rest);
  flyi_finding_say(f, "query %s%s of b = %" PRId64 ", h = %" PRId64 "%s see%s no key; their output is 0", rows, more,
                   w->b, w->h, planes > 1 ? " (and of others)" : "", first->count == 1 ? "s" : "");
  return true;
}

static bool check_rows(flyi_diagnosis *d) {
  fly_map *map;
  fly_map_info info;
  int64_t until = d->subject.until;
  if (flyi_map_build_until((fly_bound *)d->subject.bound, &d->geometry, until, &map, d->error)) return false;
  fly_map_get_info(map, &info);
  flyi_blind first = {0}, here;
  flyi_witness w = {0};
  int64_t planes = 0;
  bool over = !map;
  for (int64_t i = 0; !over && info.tiles_kv && i < info.batch * info.heads; i++) {
    int64_t b = i / info.heads, h = i % info.heads;
    over = !flyi_find_blind(map, b, h, until, &here);
    if (!over && here.count && !planes++)
      first = here, w = (flyi_witness){.b = b, .h = h, .q = here.first + d->geometry.q_offset, .kv = -1};
  }
  fly_map_release(&map);
  d->out->undecided += over;
  return !planes || describe_blind(d, &first, &w, planes);
}

static bool check_reads(flyi_diagnosis *d) {
  const fly_mask_info *info = &d->mask->info;
  bool pair = info->reads_q || info->reads_kv || info->reads_token_q || info->reads_token_kv;
  bool other = info->reads_b || info->reads_h || info->parameter_count || info->buffer_count;
  if (pair || !other) return true; /* a constant is meant as one */
  fly_finding *f = flyi_finding_add(d, FLY_FINDING_READS_NOTHING, d->line, d->column, NULL);
  if (f) flyi_finding_say(f, "the mask depends on neither q nor kv: every query of a head sees all keys or none");
  return f != NULL;
}

/* ---- a modifier as a whole --------------------------------------------------------------------------------------- */

static bool check_result(flyi_diagnosis *d) {
  flyi_found found;
  flyi_witness w;
  char at[160];
  if (!flyi_diagnosis_ask(d, FLYI_ASK_NOT_FINITE, -1, &d->geometry, &found, &w)) return false;
  if (found != FLYI_FOUND_PAIR) return true;
  fly_finding *f = flyi_finding_add(d, FLY_FINDING_NOT_FINITE, d->line, d->column, &w);
  if (!f) return false;
  flyi_finding_where(d, &w, at, sizeof at);
  flyi_finding_say(f, "the score becomes NaN or infinity (%s), and the query's output NaN", at);
  return true;
}

static bool check_reads_score(flyi_diagnosis *d) {
  const fly_mask_info *info = &d->mask->info;
  bool reads, other = info->reads_b || info->reads_h || info->reads_q || info->reads_kv || info->reads_token_q ||
                      info->reads_token_kv || info->parameter_count || info->buffer_count;
  if (flyi_result_reads_score(&d->subject, &reads, d->error)) return false;
  if (reads || !other) return true; /* a constant is meant as one */
  fly_finding *f = flyi_finding_add(d, FLY_FINDING_READS_NO_SCORE, d->line, d->column, NULL);
  if (f) flyi_finding_say(f, "the result does not depend on s: queries and keys have no effect on the attention");
  return f != NULL;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

/* Positions from -n to 2 n for queries, to 2 n for keys, n the longer length; no row maps. */
static void widen(flyi_diagnosis *d, const flyi_domain *domain) {
  int64_t n = domain->max_q > domain->max_kv ? domain->max_q : domain->max_kv;
  if (n < FLYI_BLOCK) n = FLYI_BLOCK;
  if (n > INT32_MAX / 4) n = INT32_MAX / 4;
  d->wide = (fly_geometry){
      FLY_INIT(fly_geometry), .batch = d->geometry.batch, .heads = d->geometry.heads, .len_q = 3 * n, .len_kv = 2 * n,
      .q_offset = -n};
}

static fly_status prepare(flyi_diagnosis *d, const char *source, const fly_compile_options *options) {
  flyi_bytes ir = {0};
  bool score = d->subject.is_score;
  const char *name = d->mask->image.name;
  d->context = flyi_context_create();
  fly_status status = flyi_frontend_watched(source, name, options, &ir, d->error);
  if (!status)
    status = flyi_verify_watched(d->context, (flyi_section){ir.data, ir.size}, name, score, &d->subject.module,
                                 &d->declarations, &d->watch, d->error);
  flyi_bytes_free(&ir);
  if (status) return status;
  d->subject.declarations = &d->declarations, d->subject.watch = &d->watch;
  d->line = (int)LLVMGetDebugLocLine(LLVMGetNamedFunction(d->subject.module, score ? "score" : "mask"));
  d->column = 1;
  return flyi_isa_parse(options ? options->target : NULL, &d->subject.isa, d->error);
}

static bool check_all(flyi_diagnosis *d) {
  if (d->subject.is_score)
    return check_reads_score(d) && flyi_check_operations(d) && flyi_check_clauses(d) && check_result(d);
  return check_reads(d) && flyi_check_operations(d) && flyi_check_clauses(d) && check_rows(d);
}

/* Of a compiled mask or modifier, whose source this is. */
static fly_status diagnose(flyi_diagnosis *d, const char *source, const fly_compile_options *options) {
  fly_compile_options given = {0}; /* compiling has accepted them */
  fly_bound *bound = NULL;
  if (options && !flyi_copy_struct(&given, sizeof given, options)) return FLY_ERROR_INTERNAL;
  const double day = 86400;
  double seconds = given.check_seconds > 0 ? given.check_seconds : 60;
  if (seconds > day) seconds = day;
  fly_status status = fly_mask_bind(d->mask, d->args, d->arg_count, &bound, d->error);
  d->subject.bound = bound;
  if (!status) status = prepare(d, source, options);
  d->subject.until = flyi_nanoseconds() + (int64_t)(1e9 * seconds), d->subject.most = (int64_t)(1e9 * seconds / 30);
  if (!status && !check_all(d)) status = d->error->status;
  flyi_findings_sort(d->out);
  if (d->subject.module) LLVMDisposeModule(d->subject.module);
  flyi_declarations_free(&d->declarations);
  flyi_watch_free(&d->watch);
  if (d->context) LLVMContextDispose(d->context);
  fly_bound_release(&bound);
  if (status) fly_findings_free(d->out);
  return status;
}

static fly_status check(const char *source, const char *name, const fly_compile_options *options, const fly_arg *args,
                        int count, bool is_score, const fly_bound *seen, const fly_geometry *geometry,
                        fly_findings *out, fly_error *error) {
  fly_mask *mask = NULL;
  fly_score *score = NULL;
  flyi_domain domain;
  fly_error own = {0};
  if (!error) error = &own;
  if (!out) return flyi_fail(error, FLY_ERROR_ARGUMENT, "out is NULL");
  *out = (fly_findings){0};
  if (seen && seen->mask->image.kind != FLYI_MASK)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "mask is a bound score modifier");
  fly_status status = flyi_domain_check(geometry, &domain, error);
  if (!status && is_score) {
    status = fly_score_compile(source, name, options, &score, error);
    mask = (fly_mask *)score;
  } else if (!status) {
    status = fly_mask_compile(source, name, options, &mask, error);
  }
  if (status) return status;
  flyi_diagnosis d = {.subject = {.is_score = is_score, .seen = seen},
                      .mask = mask,
                      .args = args,
                      .arg_count = count,
                      .geometry = domain.geometry,
                      .out = out,
                      .error = error};
  widen(&d, &domain);
  status = diagnose(&d, source, options);
  fly_mask_release(&mask);
  return status;
}

fly_status fly_mask_check(const char *source, const char *name, const fly_compile_options *options, const fly_arg *args,
                          int count, const fly_geometry *geometry, fly_findings *out, fly_error *error) {
  return check(source, name, options, args, count, false, NULL, geometry, out, error);
}

fly_status fly_score_check(const char *source, const char *name, const fly_compile_options *options,
                           const fly_arg *args, int count, const fly_bound *mask, const fly_geometry *geometry,
                           fly_findings *out, fly_error *error) {
  return check(source, name, options, args, count, true, mask, geometry, out, error);
}
