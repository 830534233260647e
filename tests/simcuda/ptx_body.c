/* ptx_body.c: a function's body: register and variable declarations, nested scopes, labels, instructions with
 * operands. Input: the parser before '{'; output: the function's code. Registers are resolved to numbers here,
 * since a scope of inline assembly may declare a name anew; labels may be used before they are seen and are
 * resolved by scope later. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "ptx_lex.h"

/* --- registers ----------------------------------------------------------------------------------- */
static void add_regs(parser *p, ptx_type type, const char *name, uint32_t count) {
  ptx_function *f = p->function;
  reg_decl *d = parse_alloc(p, sizeof *d);
  *d = (reg_decl){.prefix = name,
                  .length = strlen(name),
                  .first = f->reg_count,
                  .count = count,
                  .scope = p->scope,
                  .next = p->regs};
  p->regs = d;
  for (uint32_t i = 0; i < (count ? count : 1); i++) {
    f->regs = parse_grow(p, f->regs, f->reg_count, &f->reg_room, sizeof *f->regs);
    f->regs[f->reg_count++] = (ptx_reg){.type = type, .name = name};
  }
}

static void parse_regs(parser *p) {
  ptx_type type = T_NONE;
  char name[16] = "";
  if (p->now.kind == TOKEN_DIRECTIVE && p->now.length < 12) memcpy(name, p->now.begin + 1, p->now.length - 1);
  type = ptx_type_of(name);
  if (type == T_NONE || type == T_B128) lex_fail(p, "registers of type .%s are not supported", name);
  lex_next(p);
  do {
    const char *reg = lex_name(p);
    uint32_t count = 0;
    if (lex_accept(p, "<")) {
      count = (uint32_t)lex_int(p);
      if (count == 0 || count > 1000000) lex_fail(p, "a register range of %u", count);
      lex_expect(p, ">");
    }
    add_regs(p, type, reg, count);
  } while (lex_accept(p, ","));
  lex_expect(p, ";");
}

static bool find_reg(const parser *p, const char *name, size_t length, uint32_t *reg) {
  size_t stem = length;
  while (stem && isdigit((unsigned char)name[stem - 1])) stem--;
  for (const reg_decl *d = p->regs; d; d = d->next) {
    if (!d->count && d->length == length && !memcmp(d->prefix, name, length)) {
      *reg = d->first;
      return true;
    }
    /* digits may belong to the prefix: %r1<3> declares %r10 .. %r12 */
    if (d->count && d->length >= stem && d->length < length && !memcmp(d->prefix, name, d->length)) {
      unsigned long n = strtoul(name + d->length, NULL, 10);
      if (n < d->count && (n == 0 ? length == d->length + 1 : name[d->length] != '0')) {
        *reg = d->first + (uint32_t)n;
        return true;
      }
    }
  }
  return false;
}

/* --- operands ------------------------------------------------------------------------------------ */
static void parse_operand(parser *p, ptx_operand *o);

static void parse_items(parser *p, ptx_operand *o, const char *close) {
  uint32_t room = 0;
  while (!lex_accept(p, close)) {
    o->items = parse_grow(p, o->items, o->count, &room, sizeof *o->items);
    parse_operand(p, &o->items[o->count++]);
    if (!lex_is(p, close)) lex_expect(p, ",");
  }
}

static ptx_var *find_local(const parser *p, const char *name) {
  ptx_var *best = NULL;
  for (uint32_t scope = p->scope;; scope = p->function->scope_parent[scope]) {
    for (ptx_var *v = p->function->vars; v; v = v->next)
      if (v->scope == scope && !strcmp(v->name, name)) best = v; /* the latest */
    if (best || scope == 0) break;
  }
  for (ptx_var *v = p->function->params; !best && v; v = v->next)
    if (!strcmp(v->name, name)) best = v;
  for (ptx_var *v = p->function->results; !best && v; v = v->next)
    if (!strcmp(v->name, name)) best = v;
  return best;
}

static int64_t parse_offset(parser *p) {
  int64_t offset = 0;
  for (;;) {
    if (lex_accept(p, "+"))
      offset += (int64_t)lex_int(p);
    else if (lex_is(p, "-"))
      offset += (int64_t)lex_int(p);
    else
      return offset;
  }
}

static void parse_name_operand(parser *p, ptx_operand *o) {
  if (lex_accept(p, "_")) {
    o->kind = K_SINK;
    return;
  }
  if (find_reg(p, p->now.begin, p->now.length, &o->reg)) {
    o->kind = K_REG;
    lex_next(p);
    return;
  }
  o->kind = K_NAME;
  if (lex_is(p, "WARP_SZ")) {
    o->kind = K_INT;
    o->value = 32;
    lex_next(p);
    return;
  }
  o->name = lex_name(p);
  o->var = find_local(p, o->name);
}

static void parse_operand(parser *p, ptx_operand *o) {
  if (lex_accept(p, "!")) o->negated = true;
  if (lex_accept(p, "{")) {
    o->kind = K_VECTOR;
    parse_items(p, o, "}");
  } else if (lex_accept(p, "(")) {
    o->kind = K_LIST;
    parse_items(p, o, ")");
  } else if (lex_accept(p, "[")) {
    o->kind = K_ADDRESS;
    o->items = parse_alloc(p, sizeof *o->items);
    o->count = 1;
    parse_operand(p, o->items);
    o->offset = parse_offset(p) + o->items->offset;
    o->items->offset = 0;
    lex_expect(p, "]");
  } else if (p->now.kind == TOKEN_F32 || p->now.kind == TOKEN_F64) {
    o->kind = p->now.kind == TOKEN_F32 ? K_F32 : K_F64;
    o->value = p->now.value;
    lex_next(p);
  } else if (p->now.kind == TOKEN_INT || lex_is(p, "-")) {
    o->kind = K_INT;
    o->value = lex_int(p);
  } else if (p->now.kind == TOKEN_NAME) {
    parse_name_operand(p, o);
  } else {
    lex_fail(p, "an operand expected before '%.*s'", (int)p->now.length, p->now.begin);
  }
  if (o->kind == K_NAME) o->offset = parse_offset(p);
  if (lex_is(p, "|")) {
    lex_next(p);
    ptx_operand first = *o;
    *o = (ptx_operand){.kind = K_PAIR, .count = 2, .items = parse_alloc(p, 2 * sizeof *o)};
    o->items[0] = first;
    parse_operand(p, &o->items[1]);
  }
}

/* --- instructions and labels --------------------------------------------------------------------- */
static void split_opcode(parser *p, ptx_instr *in) {
  char *copy = arena_text(p->module->memory, in->text, strlen(in->text));
  if (!copy) lex_fail(p, "out of memory");
  in->op = copy;
  for (char *dot = strchr(copy, '.'); dot; dot = strchr(dot, '.')) {
    *dot++ = 0;
    if (in->mod_count == PTX_MODIFIERS) lex_fail(p, "too many modifiers in '%s'", in->text);
    in->mods[in->mod_count++] = dot;
  }
}

static void parse_instr(parser *p) {
  ptx_function *f = p->function;
  f->code = parse_grow(p, f->code, f->code_count, &f->code_room, sizeof *f->code);
  ptx_instr *in = &f->code[f->code_count];
  memset(in, 0, sizeof *in);
  in->guard = -1;
  in->scope = p->scope;
  if (lex_accept(p, "@")) {
    uint32_t reg;
    in->guard_negated = lex_accept(p, "!");
    if (!find_reg(p, p->now.begin, p->now.length, &reg) || f->regs[reg].type != T_PRED)
      lex_fail(p, "'%.*s' is no predicate", (int)p->now.length, p->now.begin);
    in->guard = (int32_t)reg;
    lex_next(p);
  }
  in->text = lex_opcode(p, &in->line);
  split_opcode(p, in);
  while (!lex_accept(p, ";")) {
    if (in->operand_count == PTX_OPERANDS) lex_fail(p, "too many operands of '%s'", in->text);
    parse_operand(p, &in->operands[in->operand_count++]);
    if (!lex_is(p, ";")) lex_expect(p, ",");
  }
  f->code_count++;
}

static void parse_label(parser *p) {
  ptx_function *f = p->function;
  f->labels = parse_grow(p, f->labels, f->label_count, &f->label_room, sizeof *f->labels);
  ptx_label *label = &f->labels[f->label_count];
  *label = (ptx_label){.name = lex_name(p), .scope = p->scope, .at = f->code_count};
  lex_expect(p, ":");
  if (lex_accept(p, ".branchtargets")) {
    uint32_t room = 0;
    do {
      label->targets = parse_grow(p, label->targets, label->target_count, &room, sizeof *label->targets);
      label->targets[label->target_count++] = lex_name(p);
    } while (lex_accept(p, ","));
    lex_expect(p, ";");
  }
  f->label_count++;
}

static void parse_locals(parser *p, ptx_space space) {
  ptx_function *f = p->function;
  lex_next(p);
  do {
    ptx_var *var = parse_var(p, space, false);
    var->scope = p->scope;
    ptx_var **end = &f->vars;
    while (*end) end = &(*end)->next;
    *end = var;
  } while (lex_accept(p, ","));
  lex_expect(p, ";");
}

static void parse_scope(parser *p, uint32_t parent) {
  ptx_function *f = p->function;
  reg_decl *outer = p->regs;
  f->scope_parent = parse_grow(p, f->scope_parent, f->scope_count, &f->scope_room, sizeof *f->scope_parent);
  f->scope_parent[f->scope_count] = parent;
  p->scope = f->scope_count++;
  uint32_t mine = p->scope;
  while (!lex_accept(p, "}")) {
    if (p->now.kind == TOKEN_END) lex_fail(p, "the body of %s does not end", f->name);
    if (lex_accept(p, "{")) {
      parse_scope(p, mine);
      p->scope = mine;
    } else if (lex_accept(p, ".reg")) {
      parse_regs(p);
    } else if (lex_is(p, ".loc") || lex_is(p, ".file")) {
      uint32_t line = p->now.line;
      while (p->now.line == line && p->now.kind != TOKEN_END) lex_next(p);
    } else if (lex_is(p, ".pragma")) {
      while (!lex_accept(p, ";")) lex_next(p);
    } else if (parse_space(p) != S_GENERIC) {
      parse_locals(p, parse_space(p));
    } else if (p->now.kind == TOKEN_NAME && lex_label_follows(p)) {
      parse_label(p);
    } else {
      parse_instr(p);
    }
  }
  p->regs = outer;
}

void parse_body(parser *p) {
  lex_expect(p, "{");
  parse_scope(p, 0);
}

const ptx_label *ptx_find_label(const ptx_function *function, const char *name, uint32_t scope) {
  for (;; scope = function->scope_parent[scope]) {
    for (uint32_t i = 0; i < function->label_count; i++)
      if (function->labels[i].scope == scope && !strcmp(function->labels[i].name, name)) return &function->labels[i];
    if (scope == 0) return NULL;
  }
}
