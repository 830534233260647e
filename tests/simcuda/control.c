/* control.c: branches, calls and ends (PTX ISA, "Control Flow Instructions"). Lanes that part are told apart by
 * their program counters (machine.c). A function has its registers and parameters at fixed places, since recursion
 * is excluded; a call copies parameters from and to each lane's local memory, where .param variables of functions
 * live. */
#include <stdlib.h>

#include "tables.h"

/* --- branches ------------------------------------------------------------------------------------ */
static void use_up_turn(warp *w) {
  w->yield = true;
  if (!w->polling) w->cta->progress = true;
  warp_stop(w);
}

void run_bra(warp *w, const instr *i) {
  bool back = i->target < w->pc;
  warp_diverge(w, w->active, i->target);
  if (back && --w->fuel == 0) use_up_turn(w);
}

bool decode_bra(decoder *d) {
  mod_take(d, "uni");
  if (!want_operands(d, 1, 1) || d->in->operands[0].kind != K_NAME) return decode_fail(d, "a label is wanted");
  d->out->target = label_number(d, d->in->operands[0].name);
  d->out->branches = true;
  d->out->ends = d->in->guard < 0;
  return decode_done(d, run_bra);
}

void run_brx(warp *w, const instr *i) {
  const brx_info *t = i->extra;
  const uint32_t *index = r32(w, i->s[0]);
  EACH_LANE(w->active) {
    if (index[l] >= t->count) {
      fault(w, i, (int)l, CUDA_ERROR_ILLEGAL_INSTRUCTION, "branch index %u of %u", index[l], t->count);
      return;
    }
  }
  EACH_LANE(w->group & ~w->active) w->lane_pc[l] = w->pc;
  EACH_LANE(w->active) w->lane_pc[l] = t->targets[index[l]];
  w->group = 0;
  warp_stop(w);
  if (--w->fuel == 0) use_up_turn(w);
}

bool decode_brx(decoder *d) {
  const ptx_operand *o = d->in->operands;
  if (!mod_take(d, "idx")) return decode_fail(d, "brx.idx");
  mod_take(d, "uni");
  if (!want_operands(d, 2, 2) || o[1].kind != K_NAME) return decode_fail(d, "a table of targets is wanted");
  const ptx_label *table = ptx_find_label(d->function->source, o[1].name, d->in->scope);
  if (!table || !table->targets) return decode_fail(d, "%s is no table of targets", o[1].name);
  brx_info *t = malloc(sizeof *t + table->target_count * sizeof t->targets[0]);
  if (!t) return decode_fail(d, "out of memory");
  d->out->extra = t;
  d->out->run = run_brx; /* so that it is freed */
  t->count = table->target_count;
  for (uint32_t k = 0; k < t->count; k++) t->targets[k] = label_number(d, table->targets[k]);
  d->out->ends = d->in->guard < 0;
  bool ok = use(d, &o[0], T_U32) && decode_done(d, run_brx);
  if (!ok) free(t);
  return ok;
}

/* --- calls --------------------------------------------------------------------------------------- */
static uint8_t *local_at(const warp *w, uint32_t l, uint32_t at) {
  return w->local + (size_t)l * w->cta->p->local_bytes + at;
}

void run_call(warp *w, const instr *i) {
  const call_info *c = i->extra;
  uint32_t *back = r32(w, w->cta->p->functions[c->function].return_value), lanes = w->active;
  EACH_LANE(lanes) {
    for (uint32_t k = 0; k < c->count; k++)
      memcpy(local_at(w, l, c->params[k].to), local_at(w, l, c->params[k].from), c->params[k].bytes);
    back[l] = w->pc;
    w->depth[l]++;
  }
  warp_diverge(w, lanes, i->target);
  warp_stop(w);
}

static bool match_params(decoder *d, const ptx_operand *list, const ptx_var *formal, const code_function *callee,
                         call_info *c, bool results) {
  uint32_t n = 0;
  for (; formal && list && n < list->count; formal = formal->next, n++) {
    const ptx_var *actual = list->items[n].var;
    if (n == CALL_PARAMS) return decode_fail(d, "more than %d parameters", CALL_PARAMS);
    if (!actual || actual->space != S_PARAM) return decode_fail(d, "an argument that is no .param variable");
    if (actual->bytes != formal->bytes)
      return decode_fail(d, "%s has %llu bytes, %s %llu", actual->name, (unsigned long long)actual->bytes, formal->name,
                         (unsigned long long)formal->bytes);
    uint32_t mine = d->function->locals + (uint32_t)actual->address,
             theirs = callee->locals + (uint32_t)formal->address;
    if (results)
      c->results[n].from = theirs, c->results[n].to = mine, c->results[n].bytes = (uint32_t)formal->bytes;
    else
      c->params[n].from = mine, c->params[n].to = theirs, c->params[n].bytes = (uint32_t)formal->bytes;
  }
  if (formal || (list && n < list->count)) return decode_fail(d, "the number of arguments differs");
  if (results)
    c->result_count = n;
  else
    c->count = n;
  return true;
}

bool decode_call(decoder *d) {
  const ptx_operand *o = d->in->operands, *results = NULL, *params = NULL;
  uint32_t n = d->in->operand_count, at = 0;
  mod_take(d, "uni");
  if (at < n && o[at].kind == K_LIST) results = &o[at++];
  if (at == n || o[at].kind != K_NAME)
    return decode_fail(d, "a function's name is wanted; indirect calls are not supported");
  uint32_t callee = call_target(d, o[at++].name);
  if (d->failed) return false;
  if (at < n && o[at].kind == K_LIST) params = &o[at++];
  if (at < n) return decode_fail(d, "indirect calls are not supported");
  call_info *c = calloc(1, sizeof *c);
  if (!c) return decode_fail(d, "out of memory");
  const code_function *f = &d->p->functions[callee];
  c->function = callee;
  bool ok = match_params(d, params, f->source->params, f, c, false) &&
            match_params(d, results, f->source->results, f, c, true) && decode_done(d, run_call);
  if (ok)
    d->out->extra = c;
  else
    free(c);
  return ok;
}

static void return_lanes(warp *w, const instr *i) {
  const uint32_t *back = r32(w, w->cta->p->functions[i->imm].return_value);
  EACH_LANE(w->group & ~w->active) w->lane_pc[l] = w->pc;
  EACH_LANE(w->active) {
    const call_info *c = w->cta->p->code[back[l] - 1].extra;
    for (uint32_t k = 0; k < c->result_count; k++)
      memcpy(local_at(w, l, c->results[k].to), local_at(w, l, c->results[k].from), c->results[k].bytes);
    w->lane_pc[l] = back[l];
    w->depth[l]--;
  }
  w->group = 0;
  warp_stop(w);
}

static void exit_lanes(warp *w, const instr *i) {
  (void)i;
  warp_exit(w, w->active);
}

bool decode_ret(decoder *d) {
  mod_take(d, "uni");
  d->out->ends = d->in->guard < 0;
  d->out->imm = d->function - d->p->functions;
  return want_operands(d, 0, 0) && decode_done(d, d->function->source->is_entry ? exit_lanes : return_lanes);
}

bool decode_exit(decoder *d) {
  d->out->ends = d->in->guard < 0;
  return want_operands(d, 0, 0) && decode_done(d, exit_lanes);
}

static void trap(warp *w, const instr *i) { fault(w, i, __builtin_ctz(w->active), CUDA_ERROR_LAUNCH_FAILED, "trap"); }
bool decode_trap(decoder *d) {
  d->out->ends = d->in->guard < 0;
  return want_operands(d, 0, 0) && decode_done(d, trap);
}
