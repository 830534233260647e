/* diagnose_places.c: the operations and conditions of a mask or score modifier, one after the other.
 *
 * Input: a watched module with its places (watch.h) and values. Output: findings, each with its line and column and a
 * pair that shows it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose.h"

/* ---- indices ----------------------------------------------------------------------------------------------------- */

/* Whether sign * value is above `limit` for some pair. */
static bool exceeds(flyi_diagnosis *d, int place, int sign, int64_t limit, flyi_found *found) {
  flyi_question q = {sign > 0 ? FLYI_ASK_ABOVE : FLYI_ASK_BELOW, place, sign * limit};
  flyi_witness w;
  *found = flyi_ask(&d->subject, &q, &d->geometry, &w, d->error);
  return *found != FLYI_FOUND_ERROR;
}

/* One end of a range: the greatest value (sign 1) or the least (-1). */
typedef struct extreme {
  int64_t value;
  bool found; /* it is taken for some pair; */
  bool open;  /* whether there are values beyond was not decided in time */
} extreme;

/* By doubling and halving, until something is not decided; what is never reached gives an end of the range of 32 bits
 * or so. */
static bool find_extreme(flyi_diagnosis *d, int place, int sign, extreme *out) {
  const int64_t most = INT64_C(1) << 40;
  int64_t below = 0, above = 0, step = 1; /* some value is above `below`, none is above `above` */
  flyi_found found, first;
  bool reached = false; /* so for `below` */
  if (!exceeds(d, place, sign, 0, &first)) return false;
  reached = first == FLYI_FOUND_PAIR;
  for (found = first; found != FLYI_FOUND_OPEN && step < most; step *= 2) {
    int64_t limit = first == FLYI_FOUND_PAIR ? step : -step;
    if (!exceeds(d, place, sign, limit, &found)) return false;
    reached |= found == FLYI_FOUND_PAIR;
    if (found != FLYI_FOUND_OPEN) *(found == FLYI_FOUND_PAIR ? &below : &above) = limit;
    if (found != first) break;
  }
  while (found != FLYI_FOUND_OPEN && above - below > 1) {
    int64_t middle = below + (above - below) / 2;
    if (!exceeds(d, place, sign, middle, &found)) return false;
    if (found != FLYI_FOUND_OPEN) *(found == FLYI_FOUND_PAIR ? &below : &above) = middle;
  }
  bool open = found == FLYI_FOUND_OPEN;
  *out = (extreme){sign * (open ? below + 1 : above), reached || !open, open};
  return true;
}

/* What it runs from or to; what is said where more may come. */
static void say_end(char text[64], const extreme *end, const char *further) {
  if (end->found)
    snprintf(text, 64, "%" PRId64 "%s", end->value, end->open ? further : "");
  else
    snprintf(text, 64, "an unknown index");
}

/* some: of the scores that were tried. */
static bool describe_index(flyi_diagnosis *d, int place, fly_finding *f, const char *at, bool some) {
  extreme low, high;
  char from[64], to[64];
  const char *name = d->watch.place[place].name;
  if (!find_extreme(d, place, -1, &low) || !find_extreme(d, place, 1, &high)) return false;
  f->low = low.found ? low.value : INT64_MIN, f->high = high.found ? high.value : INT64_MAX;
  f->open = low.open || high.open;
  say_end(from, &low, " or less"), say_end(to, &high, " or more");
  flyi_finding_say(f, "the index of %s can leave it: it runs %sfrom %s to %s (%s)%s; it is clamped", name,
                   some ? "at least " : "", from, to, at, f->open ? ", as far as was found in time" : "");
  return true;
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

static bool describe(flyi_diagnosis *d, int place, const flyi_witness *w) {
  static const fly_finding_kind kinds[] = {[FLYI_WATCH_OVERFLOW] = FLY_FINDING_OVERFLOW,
                                           [FLYI_WATCH_ZERO] = FLY_FINDING_DIVISION_BY_ZERO,
                                           [FLYI_WATCH_NEGATIVE] = FLY_FINDING_NEGATIVE_OPERAND,
                                           [FLYI_WATCH_SHIFT] = FLY_FINDING_SHIFT,
                                           [FLYI_WATCH_INDEX] = FLY_FINDING_INDEX};
  const flyi_place *p = &d->watch.place[place];
  char at[160];
  flyi_finding_where(d, w, at, sizeof at);
  fly_finding *f = flyi_finding_add(d, kinds[p->kind], p->line, p->column, w);
  if (!f) return false;
  switch (p->kind) {
  case FLYI_WATCH_OVERFLOW:
    flyi_finding_say(f, "signed overflow of %s (%s); it wraps around", p->name, at);
    return true;
  case FLYI_WATCH_ZERO:
    flyi_finding_say(f, "%s by zero (%s); x / 0 is 0, x %% 0 is x", p->name, at);
    return true;
  case FLYI_WATCH_NEGATIVE:
    flyi_finding_say(f, "%s of a negative number (%s); C truncates towards 0 where Python floors", p->name, at);
    return true;
  case FLYI_WATCH_SHIFT:
    flyi_finding_say(f, "%s by less than 0 or by the width and more (%s); the count is taken modulo the width", p->name,
                     at);
    return true;
  default:
    return describe_index(d, place, f, at, w->reads_s);
  }
}

/* One question about all places together answers most masks. */
bool flyi_check_operations(flyi_diagnosis *d) {
  flyi_found found;
  flyi_witness w;
  flyi_question all = {FLYI_ASK_HAPPENS, -1, 0};
  if ((found = flyi_ask(&d->subject, &all, &d->geometry, &w, d->error)) == FLYI_FOUND_ERROR) return false;
  for (int i = 0; i < d->watch.count && found != FLYI_FOUND_NONE; i++) {
    flyi_found here;
    if (d->watch.place[i].kind == FLYI_WATCH_CLAUSE) continue;
    if (!flyi_diagnosis_ask(d, FLYI_ASK_HAPPENS, i, &d->geometry, &here, &w)) return false;
    if (here == FLYI_FOUND_PAIR && !describe(d, i, &w)) return false;
  }
  return true;
}

/* ---- clauses ----------------------------------------------------------------------------------------------------- */

/* Whether it is ever what it seems never to be, with parameter i at another value. False: memory is short. */
static bool try_value(flyi_diagnosis *d, int place, flyi_question_kind never, int i, int64_t value, bool *happens) {
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
    other.bound = bound, other.seen = NULL;
    found = flyi_ask(&other, &q, &d->wide, &w, d->error);
  }
  fly_bound_release(&bound);
  free(args);
  *happens |= found == FLYI_FOUND_PAIR || found == FLYI_FOUND_OPEN;
  return found != FLYI_FOUND_ERROR;
}

/* A condition that only these values of the parameters make constant is meant to be switched by them. */
static bool depends_on_values(flyi_diagnosis *d, int place, flyi_question_kind never, bool *depends) {
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

/* Of all pairs, whatever mask there is. */
static bool ask_about_clause(flyi_diagnosis *d, flyi_question_kind kind, int place, flyi_found *found,
                             flyi_witness *w) {
  const fly_bound *seen = d->subject.seen;
  d->subject.seen = NULL;
  bool good = flyi_diagnosis_ask(d, kind, place, &d->wide, found, w);
  d->subject.seen = seen;
  return good;
}

static bool check_clause(flyi_diagnosis *d, int place) {
  flyi_found yes, no;
  flyi_witness w;
  const flyi_place *p = &d->watch.place[place];
  if (!flyi_depends_on_pair_alone(&d->subject, place)) return true;
  if (!ask_about_clause(d, FLYI_ASK_HAPPENS, place, &yes, &w)) return false;
  if (w.reads_s) return true; /* of all scores nothing is known */
  if (!ask_about_clause(d, FLYI_ASK_HAPPENS_NOT, place, &no, &w)) return false;
  if (w.reads_s) return true;
  bool always = yes == FLYI_FOUND_PAIR && no == FLYI_FOUND_NONE,
       never = yes == FLYI_FOUND_NONE && no == FLYI_FOUND_PAIR;
  bool depends = false;
  if (!always && !never) return true;
  if (!depends_on_values(d, place, always ? FLYI_ASK_HAPPENS_NOT : FLYI_ASK_HAPPENS, &depends)) return false;
  if (depends) return true;
  fly_finding *f = flyi_finding_add(d, always ? FLY_FINDING_ALWAYS_TRUE : FLY_FINDING_ALWAYS_FALSE, p->line, p->column,
                                    NULL);
  if (!f) return false;
  flyi_finding_say(f, "this condition is always %s, whatever q and kv are", always ? "true" : "false");
  return true;
}

bool flyi_check_clauses(flyi_diagnosis *d) {
  for (int i = 0; i < d->watch.count; i++)
    if (d->watch.place[i].kind == FLYI_WATCH_CLAUSE && !check_clause(d, i)) return false;
  return true;
}
