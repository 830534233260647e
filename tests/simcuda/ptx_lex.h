/* ptx_lex.h: tokens of PTX text, and the parser's state that its files share. */
#ifndef SIMCUDA_PTX_LEX_H
#define SIMCUDA_PTX_LEX_H

#include <setjmp.h>

#include "ptx.h"

typedef enum token_kind {
  TOKEN_END,
  TOKEN_NAME,
  TOKEN_DIRECTIVE,
  TOKEN_INT,
  TOKEN_F32,
  TOKEN_F64,
  TOKEN_STRING,
  TOKEN_PUNCT
} token_kind;

typedef struct token {
  token_kind kind;
  const char *begin;
  size_t length;
  uint64_t value;
  uint32_t line;
} token;

/* A register declaration: one register, or %r<count>. Later ones come first, so that inner scopes hide outer ones. */
typedef struct reg_decl {
  const char *prefix;
  size_t length;
  uint32_t first, count; /* count 0: exactly this name */
  uint32_t scope;
  struct reg_decl *next;
} reg_decl;

typedef struct parser {
  const char *at;
  uint32_t line;
  token now;
  ptx_module *module;
  ptx_function *function; /* whose body is being read */
  reg_decl *regs;
  uint32_t scope;
  char *message;
  size_t room;
  jmp_buf fail;
} parser;

void lex_next(parser *p); /* now = the next token */
bool lex_is(const parser *p, const char *text);
bool lex_accept(parser *p, const char *text);
void lex_expect(parser *p, const char *text);
const char *lex_name(parser *p); /* takes a name, copied */
uint64_t lex_int(parser *p);     /* takes an integer, with its sign */
const char *lex_opcode(parser *p, uint32_t *line);
bool lex_label_follows(const parser *p); /* is a ':' next, and not '::'? */
_Noreturn void lex_fail(parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
void *parse_alloc(parser *p, size_t bytes);
/* Makes room for one more element. */
void *parse_grow(parser *p, void *items, uint32_t count, uint32_t *room, size_t size);

void parse_body(parser *p);                                     /* ptx_body.c: from '{' to its '}' */
ptx_var *parse_var(parser *p, ptx_space space, bool is_extern); /* after the space's directive; up to ',' ';' ')' */
ptx_space parse_space(const parser *p);                         /* S_GENERIC where the token names none */

#endif
