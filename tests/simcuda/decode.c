/* decode.c: a kernel's instructions, and those of the functions it calls, to `instr`s. Input: the parsed module;
 * output: a program, or the first instruction that is not known, with its line. Operands are checked for their width
 * as ptxas does. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim.h"
#include "tables.h"

/* --- errors -------------------------------------------------------------------------------------- */
bool decode_fail(decoder *d, const char *format, ...) {
  if (d->failed) return false;
  d->failed = true;
  program *p = d->p;
  p->error_line = d->in->line;
  int n = snprintf(p->error, sizeof p->error, "PTX line %u, '%s': ", d->in->line, d->in->text);
  va_list list;
  va_start(list, format);
  if (n > 0 && (size_t)n < sizeof p->error) vsnprintf(p->error + n, sizeof p->error - (size_t)n, format, list);
  va_end(list);
  return false;
}

/* --- modifiers ----------------------------------------------------------------------------------- */
bool mod_take(decoder *d, const char *name) {
  if (d->mod == d->in->mod_count || strcmp(d->in->mods[d->mod], name) != 0) return false;
  d->mod++;
  return true;
}

bool mod_last_is(const decoder *d, const char *name) {
  return d->in->mod_count && !strcmp(d->in->mods[d->in->mod_count - 1], name);
}

ptx_type mod_last_type(const decoder *d) {
  return d->in->mod_count ? ptx_type_of(d->in->mods[d->in->mod_count - 1]) : T_NONE;
}

ptx_type mod_type(decoder *d) {
  ptx_type type = d->mod < d->in->mod_count ? ptx_type_of(d->in->mods[d->mod]) : T_NONE;
  if (type == T_NONE)
    decode_fail(d, "a type expected, not '%s'", d->mod < d->in->mod_count ? d->in->mods[d->mod] : "nothing");
  else
    d->mod++;
  return type;
}

bool decode_done(decoder *d, run_fn *run) {
  if (d->failed) return false;
  if (d->mod < d->in->mod_count) return decode_fail(d, "modifier '.%s' is not known here", d->in->mods[d->mod]);
  if (!run) return decode_fail(d, "not known with this type or these modifiers");
  d->out->run = run;
  return true;
}

bool want_operands(decoder *d, uint32_t least, uint32_t most) {
  uint32_t n = d->in->operand_count;
  return (n >= least && n <= most) || decode_fail(d, "%u operands", n);
}

/* --- values -------------------------------------------------------------------------------------- */
static uint32_t add_value(decoder *d, value v) {
  program *p = d->p;
  if (p->value_count == p->value_room) {
    uint32_t room = p->value_room ? 2 * p->value_room : 1024;
    value *bigger = realloc(p->values, room * sizeof *bigger);
    if (!bigger) {
      decode_fail(d, "out of memory");
      return 0;
    }
    p->values = bigger;
    p->value_room = room;
  }
  p->values[p->value_count] = v;
  return p->value_count++;
}

static uint32_t find_value(decoder *d, value v) {
  program *p = d->p;
  for (uint32_t i = 1; i < p->value_count; i++) {
    value *x = &p->values[i];
    if (x->kind == v.kind && v.kind != VALUE_REG && x->bits == v.bits && x->width == v.width &&
        x->dynamic_shared == v.dynamic_shared && x->predicate == v.predicate)
      return i;
    if (x->kind == VALUE_REG && v.kind != VALUE_REG) { /* skip a function's registers at a stroke */
      while (i + 1 < p->value_count && p->values[i + 1].kind == VALUE_REG) i++;
    }
  }
  return add_value(d, v);
}

static bool add_src(decoder *d, uint32_t v) {
  if (d->out->ns == MAX_SRC) return decode_fail(d, "too many sources");
  d->out->s[d->out->ns++] = v;
  return !d->failed;
}

static bool add_dst(decoder *d, uint32_t v) {
  if (d->out->nd == MAX_DST) return decode_fail(d, "too many destinations");
  d->out->d[d->out->nd++] = v;
  return !d->failed;
}

void use_constant(decoder *d, uint64_t bits, unsigned width) {
  add_src(d, find_value(d, (value){.kind = VALUE_CONST, .width = (uint8_t)width, .bits = bits}));
}

void def_scratch(decoder *d, unsigned width) {
  add_dst(d, add_value(d, (value){.kind = VALUE_REG, .width = (uint8_t)width, .name = "scratch"}));
}

static unsigned class_of(ptx_type type) { /* 1: predicate, 2: up to 16 bits, 4, 8 */
  unsigned n = ptx_bytes(type);
  return type == T_PRED ? 1 : n <= 2 ? 2 : n;
}

static bool reg_value(decoder *d, const ptx_operand *o, ptx_type type, bool relaxed, uint32_t *v) {
  ptx_type have = d->function->source->regs[o->reg].type;
  unsigned a = class_of(have), b = class_of(type);
  if (a != b && !(relaxed && a > b && a != 1 && b != 1))
    return decode_fail(d, "a .%s register where .%s is wanted", ptx_type_name(have), ptx_type_name(type));
  *v = d->function->value_first + o->reg;
  return true;
}

unsigned operand_width(const decoder *d, const ptx_operand *o) {
  return o->kind == K_REG ? d->p->values[d->function->value_first + o->reg].width : 0;
}

static bool constant_bits(decoder *d, const ptx_operand *o, ptx_type type, uint64_t *bits) {
  unsigned n = ptx_bytes(type);
  if (o->kind == K_INT) {
    if (type == T_F32 || type == T_F64) return decode_fail(d, "an integer constant for .%s", ptx_type_name(type));
    *bits = n == 8 ? o->value : o->value & ((UINT64_C(1) << 8 * n) - 1);
    if (type == T_PRED) *bits = o->value ? ALL_LANES : 0;
  } else if (o->kind == K_F64 && type == T_F32) {
    double x;
    memcpy(&x, &o->value, sizeof x);
    *bits = bits_f32((float)x);
  } else if ((o->kind == K_F32 && n == 4) || (o->kind == K_F64 && n == 8)) {
    *bits = o->value;
  } else {
    return decode_fail(d, "a constant of another type");
  }
  return true;
}

static bool use_name(decoder *d, const ptx_operand *o, unsigned width);

static bool use_any(decoder *d, const ptx_operand *o, ptx_type type, bool relaxed) {
  uint32_t v = 0;
  uint64_t bits = 0;
  if (d->failed) return false;
  if (o->negated) return decode_fail(d, "'!' is not allowed here");
  switch (o->kind) {
  case K_REG:
    return reg_value(d, o, type, relaxed, &v) && add_src(d, v);
  case K_NAME:
    return use_name(d, o, ptx_bytes(type) == 8 ? 8 : 4);
  case K_INT:
  case K_F32:
  case K_F64:
    if (!constant_bits(d, o, type, &bits)) return false;
    use_constant(d, bits, ptx_bytes(type) == 8 ? 8 : 4);
    return !d->failed;
  default:
    return decode_fail(d, "an operand of the wrong kind");
  }
}

bool use(decoder *d, const ptx_operand *o, ptx_type type) { return use_any(d, o, type, false); }
bool use_relaxed(decoder *d, const ptx_operand *o, ptx_type type) { return use_any(d, o, type, true); }

static bool def_any(decoder *d, const ptx_operand *o, ptx_type type, bool relaxed) {
  uint32_t v = 0;
  if (d->failed) return false;
  if (o->kind == K_SINK) {
    def_scratch(d, ptx_bytes(type) == 8 ? 8 : 4);
    return !d->failed;
  }
  if (o->kind != K_REG || o->negated) return decode_fail(d, "the destination is no register");
  return reg_value(d, o, type, relaxed, &v) && add_dst(d, v);
}

bool def(decoder *d, const ptx_operand *o, ptx_type type) { return def_any(d, o, type, false); }
bool def_relaxed(decoder *d, const ptx_operand *o, ptx_type type) { return def_any(d, o, type, true); }

bool use_predicate(decoder *d, const ptx_operand *o) {
  ptx_operand plain = *o;
  if (o->negated) d->out->mode |= 0x80;
  plain.negated = false;
  return use(d, &plain, T_PRED);
}

bool decode_int_constant(decoder *d, const ptx_operand *o, int64_t *v) {
  if (o->kind != K_INT) return decode_fail(d, "an integer constant is wanted");
  *v = (int64_t)o->value;
  return true;
}

/* --- symbols ------------------------------------------------------------------------------------- */
static uint32_t place(uint32_t *end, const ptx_var *v) {
  uint32_t at = (*end + v->align - 1) & ~(v->align - 1);
  *end = at + (uint32_t)v->bytes;
  return at;
}

/* Shared variables get their place in the kernel that uses them; the arena's `address` is scratch of one decoding. */
static bool symbol_address(decoder *d, ptx_var *v, uint64_t *address, bool *dynamic) {
  program *p = d->p;
  *dynamic = false;
  switch (v->space) {
  case S_GLOBAL:
  case S_CONST:
    if (v->is_extern) return decode_fail(d, "%s is not defined in this module", v->name);
    *address = v->address;
    return true;
  case S_SHARED:
    if (v->bytes == 0) {
      *dynamic = true;
      *address = 0;
      if (v->align > p->dynamic_align) p->dynamic_align = v->align;
      return true;
    }
    if (!v->placed) {
      v->address = place(&p->shared_static, v);
      v->placed = true;
    }
    *address = SHARED_BASE + v->address;
    return true;
  case S_PARAM:
    if (d->function->source->is_entry) {
      for (ptx_var *f = d->function->source->params; f; f = f->next)
        if (f == v) {
          *address = PARAM_WINDOW + v->address;
          return true;
        }
    }
    __attribute__((fallthrough));
  default:
    *address = d->function->locals + v->address;
    return true; /* placed when the function was begun */
  }
}

static ptx_var *find_symbol(decoder *d, const ptx_operand *o) {
  ptx_var *v = o->var ? o->var : ptx_find_var(d->module->ptx, o->name);
  if (!v) decode_fail(d, "%s is not declared", o->name);
  return v;
}

static int special_of(const char *name) {
  for (int i = 0; i < SPECIALS; i++)
    if (!strcmp(special_names[i], name)) return i;
  return -1;
}

static bool use_name(decoder *d, const ptx_operand *o, unsigned width) {
  if (o->name[0] == '%') {
    int special = special_of(o->name);
    if (special < 0) return decode_fail(d, "%s is not known", o->name);
    return add_src(
        d, find_value(
               d, (value){.kind = VALUE_SPECIAL, .width = (uint8_t)width, .bits = (uint64_t)special, .name = o->name}));
  }
  ptx_var *v = find_symbol(d, o);
  uint64_t address = 0;
  bool dynamic = false;
  if (!v || !symbol_address(d, v, &address, &dynamic)) return false;
  return add_src(d, find_value(d, (value){.kind = VALUE_CONST,
                                          .width = (uint8_t)width,
                                          .bits = address + (uint64_t)o->offset,
                                          .dynamic_shared = dynamic}));
}

bool use_address(decoder *d, const ptx_operand *o) {
  if (o->kind != K_ADDRESS) return decode_fail(d, "an address is wanted");
  const ptx_operand *base = &o->items[0];
  d->out->imm = o->offset;
  if (base->kind == K_REG) {
    unsigned width = operand_width(d, base);
    d->out->wide = width == 8;
    return use(d, base, width == 8 ? T_B64 : T_B32);
  }
  d->out->wide = true;
  if (base->kind == K_NAME) return use_name(d, base, 8);
  if (base->kind != K_INT) return decode_fail(d, "not an address");
  use_constant(d, base->value, 8);
  return !d->failed;
}

uint32_t label_number(decoder *d, const char *name) {
  const ptx_label *label = ptx_find_label(d->function->source, name, d->in->scope);
  if (!label || label->targets) {
    decode_fail(d, "label %s is not declared", name);
    return 0;
  }
  return d->function->begin + label->at;
}

/* --- functions ----------------------------------------------------------------------------------- */
static bool begin_function(decoder *d, const ptx_function *source) {
  program *p = d->p;
  code_function *grown = realloc(p->functions, (p->function_count + 1) * sizeof *grown);
  if (!grown) return decode_fail(d, "out of memory");
  p->functions = grown;
  code_function *f = d->function = &grown[p->function_count++];
  *f = (code_function){.source = source, .begin = p->count, .value_first = p->value_count};
  for (uint32_t r = 0; r < source->reg_count; r++) {
    uint8_t width = ptx_bytes(source->regs[r].type) == 8 ? 8 : 4;
    add_value(d, (value){.kind = VALUE_REG,
                         .width = width,
                         .predicate = source->regs[r].type == T_PRED,
                         .name = source->regs[r].name,
                         .number = r});
  }
  f->return_value = add_value(d, (value){.kind = VALUE_REG, .width = 4, .name = "return"});
  f->locals = (p->local_bytes + 15) & ~15u;
  uint32_t end = 0;
  if (!source->is_entry) {
    for (ptx_var *v = source->params; v; v = v->next) v->address = place(&end, v);
    for (ptx_var *v = source->results; v; v = v->next) v->address = place(&end, v);
  }
  for (ptx_var *v = source->vars; v; v = v->next)
    if (v->space != S_SHARED)
      v->address = place(&end, v);
    else
      v->placed = false;
  p->local_bytes = f->locals + end;
  return !d->failed;
}

/* The program's number of a function, decoded later where it is new. */
static bool decode_function(decoder *d, uint32_t number) {
  program *p = d->p;
  const ptx_function *source = p->functions[number].source;
  uint32_t need = p->count + source->code_count + 1;
  if (need > p->room) {
    instr *bigger = realloc(p->code, need * sizeof *bigger);
    if (!bigger) return decode_fail(d, "out of memory");
    p->code = bigger;
    p->room = need;
  }
  d->function = &p->functions[number];
  d->function->begin = p->count;
  for (uint32_t i = 0; i <= source->code_count && !d->failed; i++) {
    static const ptx_instr fall_off = {.text = "ret", .op = "ret", .guard = -1};
    d->in = i < source->code_count ? &source->code[i] : &fall_off;
    d->out = &p->code[p->count];
    d->mod = 0;
    *d->out = (instr){.line = d->in->line, .text = d->in->text};
    if (d->in->guard >= 0) {
      d->out->guard = d->function->value_first + (uint32_t)d->in->guard;
      d->out->guard_negated = d->in->guard_negated;
    }
    decode_fn *decode = decoder_of(d->in->op);
    if (!decode) return decode_fail(d, "unknown instruction");
    if (!decode(d)) return decode_fail(d, "cannot be decoded");
    p->count++;
    d->function = &p->functions[number]; /* a call may have added functions */
  }
  d->function->end = p->count;
  return !d->failed;
}

/* call_target: the number of the function that an instruction calls, begun if it is new. */
uint32_t call_target(decoder *d, const char *name) {
  program *p = d->p;
  for (uint32_t i = 0; i < p->function_count; i++)
    if (!strcmp(p->functions[i].source->name, name)) return i;
  ptx_function *f = ptx_find_function(d->module->ptx, name);
  uint32_t caller = (uint32_t)(d->function - p->functions);
  if (!f) {
    decode_fail(d, "function %s is not defined in this module", name);
    return 0;
  }
  begin_function(d, f);
  d->function = &p->functions[caller];
  return p->function_count - 1;
}

static void resolve_calls(program *p) {
  for (uint32_t i = 0; i < p->count; i++) {
    if (!p->code[i].extra || p->code[i].run != run_call) continue;
    p->code[i].target = p->functions[((const call_info *)p->code[i].extra)->function].begin;
  }
}

/* A call graph with a cycle would need a stack of registers. */
static bool check_recursion(decoder *d) {
  program *p = d->p;
  uint32_t n = p->function_count;
  for (uint32_t round = 0; round < n; round++) { /* depth of calls: longer than n functions means a cycle */
    bool changed = false;
    for (uint32_t f = 0; f < n; f++)
      for (uint32_t i = p->functions[f].begin; i < p->functions[f].end; i++)
        if (p->code[i].run == run_call) {
          uint32_t g = ((const call_info *)p->code[i].extra)->function;
          if (p->functions[g].return_value &&
              p->values[p->functions[g].return_value].number <= p->values[p->functions[f].return_value].number) {
            p->values[p->functions[g].return_value].number = p->values[p->functions[f].return_value].number + 1;
            changed = true;
          }
        }
    if (!changed) return true;
    if (round == n - 1) {
      snprintf(p->error, sizeof p->error, "recursion is not supported");
      return false;
    }
  }
  return true;
}

program *program_create(sim_module *module, const ptx_function *entry) {
  program *p = calloc(1, sizeof *p);
  if (!p) return NULL;
  static const ptx_instr nowhere = {.text = "entry", .op = "entry"};
  decoder d = {.module = module, .p = p, .in = &nowhere};
  p->entry = entry;
  p->module = module;
  p->dynamic_align = 16;
  p->param_bytes = entry->param_bytes;
  for (ptx_var *v = module->ptx->vars; v; v = v->next)
    if (v->space == S_SHARED) v->placed = false;
  add_value(&d, (value){.kind = VALUE_CONST, .width = 4}); /* operand 0: none */
  begin_function(&d, entry);
  for (uint32_t f = 0; f < p->function_count && !d.failed; f++) decode_function(&d, f);
  if (d.failed || !check_recursion(&d)) return p;
  if (!program_order(p)) {
    snprintf(p->error, sizeof p->error, "out of memory");
    return p;
  }
  resolve_calls(p);
  p->shared_static = (p->shared_static + p->dynamic_align - 1) & ~(p->dynamic_align - 1);
  for (uint32_t i = 0; i < p->value_count; i++)
    if (p->values[i].dynamic_shared) p->values[i].bits += SHARED_BASE + p->shared_static;
  if (!program_analyse(p)) snprintf(p->error, sizeof p->error, "out of memory");
  return p;
}

void program_release(program *p) {
  if (!p) return;
  for (uint32_t i = 0; i < p->count; i++) {
    free(p->code[i].check);
    if (p->code[i].extra && (p->code[i].run == run_call || p->code[i].run == run_brx))
      free((void *)(uintptr_t)p->code[i].extra);
  }
  free(p->code);
  free(p->values);
  free(p->functions);
  free(p);
}
