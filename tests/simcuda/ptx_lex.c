/* ptx_lex.c: PTX text to tokens. Input: the text; output: one token at a time in parser.now. Comments are skipped. */
#include "ptx_lex.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void lex_fail(parser *p, const char *format, ...) {
  int n = snprintf(p->message, p->room, "PTX line %u: ", p->now.line ? p->now.line : p->line);
  if (n > 0 && (size_t)n < p->room) {
    va_list list;
    va_start(list, format);
    vsnprintf(p->message + n, p->room - (size_t)n, format, list);
    va_end(list);
  }
  longjmp(p->fail, 1);
}

void *parse_alloc(parser *p, size_t bytes) {
  void *memory = arena_alloc(p->module->memory, bytes);
  if (!memory) lex_fail(p, "out of memory");
  return memory;
}

void *parse_grow(parser *p, void *items, uint32_t count, uint32_t *room, size_t size) {
  if (count < *room) return items;
  uint32_t more = *room ? 2 * *room : 16;
  void *bigger = parse_alloc(p, more * size);
  if (count) memcpy(bigger, items, count * size);
  *room = more;
  return bigger;
}

static void skip_space(parser *p) {
  for (;;) {
    if (*p->at == '\n') {
      p->line++;
      p->at++;
    } else if (isspace((unsigned char)*p->at)) {
      p->at++;
    } else if (p->at[0] == '/' && p->at[1] == '/') {
      while (*p->at && *p->at != '\n') p->at++;
    } else if (p->at[0] == '/' && p->at[1] == '*') {
      for (p->at += 2; *p->at && !(p->at[0] == '*' && p->at[1] == '/'); p->at++) p->line += *p->at == '\n';
      if (*p->at) p->at += 2;
    } else {
      return;
    }
  }
}

static bool name_char(char c) { return isalnum((unsigned char)c) || c == '_' || c == '$'; }

static void lex_number(parser *p) {
  const char *s = p->at;
  char *end = NULL;
  p->now.kind = TOKEN_INT;
  if (s[0] == '0' && (s[1] == 'f' || s[1] == 'F' || s[1] == 'd' || s[1] == 'D')) {
    bool wide = s[1] == 'd' || s[1] == 'D';
    p->now.kind = wide ? TOKEN_F64 : TOKEN_F32;
    p->now.value = strtoull(s + 2, &end, 16);
    if (end - s != (wide ? 18 : 10)) lex_fail(p, "a floating-point constant has %d hexadecimal digits", wide ? 16 : 8);
  } else if (s[0] == '0' && (s[1] == 'b' || s[1] == 'B')) {
    p->now.value = strtoull(s + 2, &end, 2);
  } else {
    p->now.value = strtoull(s, &end, 0);
    if (*end == '.' || *end == 'e' || *end == 'E') {
      double x = strtod(s, &end);
      p->now.kind = TOKEN_F64;
      memcpy(&p->now.value, &x, sizeof x);
    }
  }
  if (*end == 'U') end++;
  if (name_char(*end)) lex_fail(p, "bad number '%.20s'", s);
  p->at = end;
}

void lex_next(parser *p) {
  skip_space(p);
  const char *s = p->at;
  p->now = (token){.begin = s, .line = p->line};
  if (!*s) {
    p->now.kind = TOKEN_END;
  } else if (isdigit((unsigned char)*s)) {
    lex_number(p);
  } else if (*s == '"') {
    p->now.kind = TOKEN_STRING;
    for (p->at++; *p->at && *p->at != '"'; p->at++) p->line += *p->at == '\n';
    if (*p->at) p->at++;
  } else if (*s == '.' && (isalpha((unsigned char)s[1]) || s[1] == '_')) {
    p->now.kind = TOKEN_DIRECTIVE;
    for (p->at++; name_char(*p->at); p->at++) continue;
  } else if (isalpha((unsigned char)*s) || *s == '_' || *s == '$' || *s == '%') {
    p->now.kind = TOKEN_NAME;
    for (p->at++; name_char(*p->at); p->at++) continue;
    if (*s == '%' && p->at[0] == '.' && strchr("xyzw", p->at[1]) && p->at[1] && !name_char(p->at[2])) p->at += 2;
  } else {
    p->now.kind = TOKEN_PUNCT;
    p->at++;
  }
  p->now.length = (size_t)(p->at - s);
}

bool lex_is(const parser *p, const char *text) {
  return p->now.kind != TOKEN_END && p->now.kind != TOKEN_STRING && strlen(text) == p->now.length &&
         memcmp(text, p->now.begin, p->now.length) == 0;
}

bool lex_accept(parser *p, const char *text) {
  if (!lex_is(p, text)) return false;
  lex_next(p);
  return true;
}

void lex_expect(parser *p, const char *text) {
  if (!lex_accept(p, text)) lex_fail(p, "'%s' expected before '%.*s'", text, (int)p->now.length, p->now.begin);
}

const char *lex_name(parser *p) {
  if (p->now.kind != TOKEN_NAME) lex_fail(p, "a name expected before '%.*s'", (int)p->now.length, p->now.begin);
  const char *name = arena_text(p->module->memory, p->now.begin, p->now.length);
  if (!name) lex_fail(p, "out of memory");
  lex_next(p);
  return name;
}

uint64_t lex_int(parser *p) {
  bool minus = lex_accept(p, "-");
  if (p->now.kind != TOKEN_INT) lex_fail(p, "an integer expected before '%.*s'", (int)p->now.length, p->now.begin);
  uint64_t value = p->now.value;
  lex_next(p);
  return minus ? 0 - value : value;
}

bool lex_label_follows(const parser *p) {
  const char *s = p->at;
  while (*s == ' ' || *s == '\t') s++;
  return s[0] == ':' && s[1] != ':';
}

/* An opcode with its modifiers is one word with dots and double colons: mbarrier.try_wait.shared::cta.b64. */
const char *lex_opcode(parser *p, uint32_t *line) {
  if (p->now.kind != TOKEN_NAME) lex_fail(p, "an instruction expected before '%.*s'", (int)p->now.length, p->now.begin);
  const char *s = p->now.begin, *e = s;
  while (name_char(*e) || (*e == '.' && name_char(e[1])) || (e[0] == ':' && e[1] == ':')) e += *e == ':' ? 2 : 1;
  *line = p->now.line;
  const char *text = arena_text(p->module->memory, s, (size_t)(e - s));
  if (!text) lex_fail(p, "out of memory");
  p->at = e;
  lex_next(p);
  return text;
}
