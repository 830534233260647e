/* ptx_parse.c: a PTX module's directives: version, target, variables with their initial values, functions with their
 * parameters. Input: the text; output: ptx.h's module, or a message with the line. Bodies are ptx_body.c's. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ptx_lex.h"

/* --- memory -------------------------------------------------------------------------------------- */
typedef struct arena_block {
  struct arena_block *next;
  size_t used, room;
  _Alignas(16) char data[];
} arena_block;
struct arena {
  arena_block *blocks;
};

arena *arena_create(void) { return calloc(1, sizeof(arena)); }

void arena_destroy(arena *a) {
  if (!a) return;
  for (arena_block *b = a->blocks, *next; b; b = next) {
    next = b->next;
    free(b);
  }
  free(a);
}

void *arena_alloc(arena *a, size_t bytes) {
  bytes = (bytes + 15) & ~(size_t)15;
  if (!a->blocks || a->blocks->used + bytes > a->blocks->room) {
    size_t room = bytes > 65536 ? bytes : 65536;
    arena_block *b = calloc(1, sizeof *b + room);
    if (!b) return NULL;
    b->room = room;
    b->next = a->blocks;
    a->blocks = b;
  }
  void *memory = a->blocks->data + a->blocks->used;
  a->blocks->used += bytes;
  return memory;
}

char *arena_text(arena *a, const char *begin, size_t length) {
  char *text = arena_alloc(a, length + 1);
  if (text) memcpy(text, begin, length);
  return text;
}

/* --- types --------------------------------------------------------------------------------------- */
static const struct {
  const char *name;
  ptx_type type;
  unsigned bytes;
} types[] = {
    {"pred", T_PRED, 1},   {"b8", T_B8, 1},     {"b16", T_B16, 2},       {"b32", T_B32, 4},   {"b64", T_B64, 8},
    {"b128", T_B128, 16},  {"u8", T_U8, 1},     {"u16", T_U16, 2},       {"u32", T_U32, 4},   {"u64", T_U64, 8},
    {"s8", T_S8, 1},       {"s16", T_S16, 2},   {"s32", T_S32, 4},       {"s64", T_S64, 8},   {"f16", T_F16, 2},
    {"f16x2", T_F16X2, 4}, {"bf16", T_BF16, 2}, {"bf16x2", T_BF16X2, 4}, {"tf32", T_TF32, 4}, {"f32", T_F32, 4},
    {"f64", T_F64, 8},
};
enum { TYPES = sizeof types / sizeof types[0] };

ptx_type ptx_type_of(const char *name) {
  for (int i = 0; i < TYPES; i++)
    if (!strcmp(types[i].name, name)) return types[i].type;
  return T_NONE;
}

const char *ptx_type_name(ptx_type type) {
  for (int i = 0; i < TYPES; i++)
    if (types[i].type == type) return types[i].name;
  return "?";
}

unsigned ptx_bytes(ptx_type type) {
  for (int i = 0; i < TYPES; i++)
    if (types[i].type == type) return types[i].bytes;
  return 0;
}

bool ptx_is_signed(ptx_type type) { return type >= T_S8 && type <= T_S64; }
bool ptx_is_float(ptx_type type) { return type >= T_F16; }

/* --- variables ----------------------------------------------------------------------------------- */
ptx_space parse_space(const parser *p) {
  static const struct {
    const char *name;
    ptx_space space;
  } spaces[] = {
      {".global", S_GLOBAL}, {".shared", S_SHARED}, {".local", S_LOCAL}, {".const", S_CONST}, {".param", S_PARAM}};
  for (int i = 0; i < 5; i++)
    if (lex_is(p, spaces[i].name)) return spaces[i].space;
  return S_GENERIC;
}

static ptx_type take_type(parser *p) {
  char name[16] = "";
  if (p->now.kind != TOKEN_DIRECTIVE || p->now.length > 12)
    lex_fail(p, "a type expected before '%.*s'", (int)p->now.length, p->now.begin);
  memcpy(name, p->now.begin + 1, p->now.length - 1);
  ptx_type type = ptx_type_of(name);
  if (type == T_NONE) lex_fail(p, "unknown type .%s", name);
  lex_next(p);
  return type;
}

static void parse_initial(parser *p, ptx_var *var) {
  unsigned size = ptx_bytes(var->type);
  bool braces = lex_accept(p, "{");
  if (!var->bytes) lex_fail(p, "%s has a value but no size", var->name);
  var->data = parse_alloc(p, var->bytes);
  for (uint64_t at = 0;; at += size) {
    if (lex_is(p, "}")) break;
    if (at + size > var->bytes) lex_fail(p, "too many values for %s", var->name);
    uint64_t value;
    if (p->now.kind == TOKEN_F32 || p->now.kind == TOKEN_F64) {
      value = p->now.value;
      lex_next(p);
    } else if (p->now.kind == TOKEN_INT || lex_is(p, "-")) {
      value = lex_int(p);
    } else {
      lex_fail(p, "the value of %s is no constant: not supported", var->name);
    }
    memcpy(var->data + at, &value, size);
    if (!braces || !lex_accept(p, ",")) break;
  }
  if (braces) lex_expect(p, "}");
}

/* .align n .attribute(...) .type name[n][m] = {...}, and for parameters .ptr .space .align n */
ptx_var *parse_var(parser *p, ptx_space space, bool is_extern) {
  ptx_var *var = parse_alloc(p, sizeof *var);
  var->space = space;
  var->is_extern = is_extern;
  var->line = p->now.line;
  uint64_t lanes = 1;
  for (;;) {
    if (lex_accept(p, ".align"))
      var->align = (uint32_t)lex_int(p);
    else if (lex_accept(p, ".v2"))
      lanes = 2;
    else if (lex_accept(p, ".v4"))
      lanes = 4;
    else if (lex_accept(p, ".attribute")) {
      while (!lex_accept(p, ")")) lex_next(p);
    } else
      break;
  }
  var->type = take_type(p);
  while (lex_accept(p, ".ptr") || parse_space(p) != S_GENERIC || lex_is(p, ".align")) {
    if (lex_accept(p, ".align"))
      lex_int(p);
    else if (parse_space(p) != S_GENERIC)
      lex_next(p);
  }
  if (!var->align) var->align = ptx_bytes(var->type) * (uint32_t)lanes;
  if (var->align & (var->align - 1)) lex_fail(p, "alignment %u is no power of two", var->align);
  var->name = lex_name(p);
  var->bytes = ptx_bytes(var->type) * lanes;
  while (lex_accept(p, "[")) {
    var->bytes *= lex_is(p, "]") ? 0 : lex_int(p);
    lex_expect(p, "]");
  }
  if (lex_accept(p, "=")) parse_initial(p, var);
  return var;
}

static void append_var(ptx_var **list, ptx_var *var) {
  while (*list) list = &(*list)->next;
  *list = var;
}

/* --- functions ----------------------------------------------------------------------------------- */
static ptx_var *parse_params(parser *p, uint32_t *bytes) {
  ptx_var *list = NULL;
  uint32_t at = 0, index = 0;
  lex_expect(p, "(");
  while (!lex_accept(p, ")")) {
    lex_expect(p, ".param");
    ptx_var *var = parse_var(p, S_PARAM, false);
    at = (at + var->align - 1) & ~(var->align - 1);
    var->address = at;
    var->placed = true;
    var->index = index++;
    at += (uint32_t)var->bytes;
    append_var(&list, var);
    if (!lex_is(p, ")")) lex_expect(p, ",");
  }
  *bytes = at;
  return list;
}

static void parse_limits(parser *p, ptx_function *f) {
  for (;;) {
    uint32_t n[3] = {1, 1, 1};
    bool most = lex_is(p, ".maxntid"), exact = lex_is(p, ".reqntid");
    if (most || exact || lex_is(p, ".minnctapersm") || lex_is(p, ".maxnreg") || lex_is(p, ".reqnctapercluster")) {
      lex_next(p);
      int i = 0;
      do n[i < 3 ? i++ : 2] = (uint32_t)lex_int(p);
      while (lex_accept(p, ","));
      if (most) f->max_threads = n[0] * n[1] * n[2];
      if (exact) memcpy(f->required_threads, n, sizeof n);
    } else if (lex_is(p, ".pragma")) {
      while (!lex_accept(p, ";")) lex_next(p);
    } else if (!lex_accept(p, ".noreturn") && !lex_accept(p, ".explicitcluster")) {
      return;
    }
  }
}

static void parse_function(parser *p, bool is_entry) {
  ptx_function *f = parse_alloc(p, sizeof *f);
  uint32_t bytes = 0;
  f->is_entry = is_entry;
  f->line = p->now.line;
  if (!is_entry && lex_is(p, "(")) f->results = parse_params(p, &bytes);
  f->name = lex_name(p);
  if (lex_is(p, "(")) f->params = parse_params(p, &f->param_bytes);
  parse_limits(p, f);
  if (lex_accept(p, ";")) { /* a declaration: known when it is defined */
    return;
  }
  if (ptx_find_function(p->module, f->name)) lex_fail(p, "%s is defined twice", f->name);
  f->has_body = true;
  p->function = f;
  p->regs = NULL;
  parse_body(p);
  p->function = NULL;
  f->next = p->module->functions;
  p->module->functions = f;
}

static void parse_target(parser *p) {
  do {
    const char *name = lex_name(p);
    if (!strncmp(name, "sm_", 3)) {
      p->module->target = atoi(name + 3);
      p->module->target_specific = strchr(name + 3, 'a') != NULL;
    }
  } while (lex_accept(p, ","));
}

static void skip_section(parser *p) {
  while (!lex_is(p, "{") && p->now.kind != TOKEN_END) lex_next(p);
  while (!lex_is(p, "}") && p->now.kind != TOKEN_END) lex_next(p);
  lex_expect(p, "}");
}

static void parse_directive(parser *p) {
  bool is_extern = false;
  uint32_t line = p->now.line;
  for (;;) {
    if (lex_accept(p, ".extern"))
      is_extern = true;
    else if (!lex_accept(p, ".visible") && !lex_accept(p, ".weak") && !lex_accept(p, ".common"))
      break;
  }
  ptx_space space = parse_space(p);
  if (space != S_GENERIC) {
    lex_next(p);
    append_var(&p->module->vars, parse_var(p, space, is_extern));
    lex_expect(p, ";");
  } else if (lex_accept(p, ".entry")) {
    parse_function(p, true);
  } else if (lex_accept(p, ".func")) {
    parse_function(p, false);
  } else if (lex_is(p, ".version")) {
    lex_next(p); /* lexed as a decimal fraction */
    double x;
    memcpy(&x, &p->now.value, sizeof x);
    if (p->now.kind != TOKEN_F64) lex_fail(p, ".version has the form 8.3");
    p->module->version = (int)(x * 10 + 0.5);
    lex_next(p);
  } else if (lex_accept(p, ".target")) {
    parse_target(p);
  } else if (lex_accept(p, ".address_size")) {
    if (lex_int(p) != 64) lex_fail(p, "addresses have 64 bits");
  } else if (lex_is(p, ".file") || lex_is(p, ".loc")) {
    while (p->now.line == line && p->now.kind != TOKEN_END) lex_next(p);
  } else if (lex_is(p, ".pragma")) {
    while (!lex_accept(p, ";")) lex_next(p);
  } else if (lex_is(p, ".section")) {
    skip_section(p);
  } else {
    lex_fail(p, "unknown directive '%.*s'", (int)p->now.length, p->now.begin);
  }
}

ptx_module *ptx_parse(const char *text, char *message, size_t room) {
  parser *p = calloc(1, sizeof *p);
  ptx_module *module = calloc(1, sizeof *module);
  if (module) module->memory = arena_create();
  if (!p || !module || !module->memory) {
    snprintf(message, room, "out of memory");
    ptx_release(module);
    free(p);
    return NULL;
  }
  *p = (parser){.at = text, .line = 1, .module = module, .message = message, .room = room};
  if (setjmp(p->fail)) {
    ptx_release(p->module);
    free(p);
    return NULL;
  }
  lex_next(p);
  while (p->now.kind != TOKEN_END) parse_directive(p);
  if (!p->module->version || !p->module->target) lex_fail(p, ".version and .target are missing");
  module = p->module;
  free(p);
  return module;
}

void ptx_release(ptx_module *module) {
  if (!module) return;
  arena_destroy(module->memory);
  free(module);
}

ptx_function *ptx_find_function(const ptx_module *module, const char *name) {
  for (ptx_function *f = module->functions; f; f = f->next)
    if (!strcmp(f->name, name)) return f;
  return NULL;
}

ptx_var *ptx_find_var(const ptx_module *module, const char *name) {
  for (ptx_var *v = module->vars; v; v = v->next)
    if (!strcmp(v->name, name)) return v;
  return NULL;
}
