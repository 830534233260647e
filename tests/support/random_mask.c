/* random_mask.c: random mask sources: arithmetic over q, kv, b, h, tokens, lengths, parameters, buffers and tables,
 * in all integer types; nested conditions, loops with and without early exits, switches, local arrays, a little
 * floating point. What C leaves open is written as macros: to Flymask they are the bare operation, to another compiler
 * what mask.h says of it, in C that leaves nothing open. */
#include <stdarg.h>

#include "random_mask.h"

typedef struct text {
  test_random *random;
  char *at, *end;
  int locals; /* int variables x0 .. */
  int loops;  /* around here */
  int budget;
  bool helper; /* inside of helper(): no tokens */
} text;

static int64_t range(text *t, int64_t lo, int64_t hi) { return test_range(t->random, lo, hi); }

static __attribute__((format(printf, 2, 3))) void say(text *t, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int n = vsnprintf(t->at, (size_t)(t->end - t->at), format, arguments);
  va_end(arguments);
  if (n < 0 || n >= t->end - t->at) ck_abort_msg("the source is too long");
  t->at += n;
}

static void expression(text *t, int depth);

static void leaf(text *t) {
  static const char *const arguments[] = {"q", "kv", "q", "kv", "(q - kv)", "(kv - q)", "(q + kv)", "b", "h"};
  static const char *const outside[] = {"fly_token_q(b, h, q)", "fly_token_kv(b, h, kv)", "fly_len_q(b)",
                                        "fly_len_kv(b)"};
  switch (range(t, 0, 11)) {
  case 0:
    say(t, "p%d", (int)range(t, 0, 1));
    break;
  case 1:
    say(t, "%d", (int)range(t, -5, 70));
    break;
  case 2:
    say(t, "%d", 1 << range(t, 0, 12));
    break;
  case 3:
    if (t->locals)
      say(t, "x%d", (int)range(t, 0, t->locals - 1));
    else
      say(t, "3");
    break;
  case 4:
    if (t->loops)
      say(t, "i%d", (int)range(t, 0, t->loops - 1));
    else
      say(t, "q");
    break;
  case 5:
    say(t, "%s", t->helper ? "h" : outside[range(t, 0, 3)]);
    break;
  default:
    say(t, "%s", arguments[range(t, 0, 8)]);
  }
}

static const char macros[] =
    "#ifdef FLYMASK_COMPILING\n"
    "#define NOT_CONSTANT(x) ((x) + (p0 > 1000))\n" /* or it is refused; p0 is small, which the compiler cannot know */
    "#define DIV(x, y) ((x) / NOT_CONSTANT(y))\n"
    "#define MOD(x, y) ((x) % NOT_CONSTANT(y))\n"
    "#define SHL(x, n) ((x) << NOT_CONSTANT(n))\n"
    "#define SHR(x, n) ((x) >> NOT_CONSTANT(n))\n"
    "#define INT(x) ((int)NOT_CONSTANT(x))\n"
    "#define INDEX(i, n) NOT_CONSTANT(i)\n"
    "#else\n"
    "#define SIGNED_(x) ((__typeof__(x))-1 < 0)\n"
    "#define DIV(x, y) __extension__({ __typeof__((x) / (y)) x_ = (x), y_ = (y); \\\n"
    "  y_ == 0 ? 0 : SIGNED_(y_) && y_ == (__typeof__(y_))-1 ? 0 - x_ : x_ / y_; })\n"
    "#define MOD(x, y) __extension__({ __typeof__((x) / (y)) x_ = (x), y_ = (y); \\\n"
    "  y_ == 0 ? x_ : SIGNED_(y_) && y_ == (__typeof__(y_))-1 ? 0 : x_ % y_; })\n"
    "#define SHL(x, n) __extension__({ __typeof__(+(x)) x_ = (x); x_ << ((n) & (int)(8 * sizeof x_ - 1)); })\n"
    "#define SHR(x, n) __extension__({ __typeof__(+(x)) x_ = (x); x_ >> ((n) & (int)(8 * sizeof x_ - 1)); })\n"
    "#define INT(x) __extension__({ float x_ = (x); x_ != x_ ? 0 : x_ >= 2147483648.f ? 2147483647 : \\\n"
    "  x_ < -2147483648.f ? -2147483647 - 1 : (int)x_; })\n"
    "#define INDEX(i, n) __extension__({ int64_t i_ = (i); i_ < 0 ? 0 : i_ >= (n) ? (n) - 1 : i_; })\n"
    "#endif\n";

/* An index that is clamped by the meaning of masks. */
static void any_index(text *t, int depth, int count) { say(t, "INDEX("), expression(t, depth), say(t, ", %d)", count); }

/* An index that is in range: clamped or masked. */
static void index_of(text *t, int depth, int count) {
  bool masked = !(count & (count - 1)) && range(t, 0, 1);
  say(t, masked ? "((" : "fly_clamp(");
  expression(t, depth);
  if (masked)
    say(t, ") & %d)", count - 1);
  else
    say(t, ", 0, %d)", count - 1);
}

static const char *const narrow_types[] = {"uint8_t", "int8_t", "uint16_t", "int16_t"};

/* A row times a constant plus a column, as tables are read; each step may be cut to a narrow type, where it wraps. */
static void row_and_column(text *t, int depth) {
  static const char *const cuts[] = {"uint8_t", "int", "uint8_t", "uint16_t", "int", "unsigned", "int8_t", "int64_t"};
  if (range(t, 0, 1)) { /* rows that count beyond a byte */
    int bits = (int)range(t, 2, 5);
    say(t, "((uint8_t)(bytes["), index_of(t, depth, RANDOM_MASK_BYTES), say(t, "] * %d) + ((", 1 << bits);
    leaf(t), say(t, ") & %d))", (1 << bits) - 1);
    return;
  }
  int columns = range(t, 0, 2) ? 1 << range(t, 2, 7) : (int)range(t, 3, 100);
  say(t, "(%s)((%s)(", cuts[range(t, 0, 7)], cuts[range(t, 0, 7)]);
  if (range(t, 0, 1))
    say(t, "bytes["), index_of(t, depth, RANDOM_MASK_BYTES), say(t, "]");
  else
    expression(t, depth);
  if (!(columns & (columns - 1)) && range(t, 0, 1))
    say(t, " << %d) + ((", __builtin_ctz((unsigned)columns));
  else
    say(t, " * %d) + ((", columns);
  expression(t, depth);
  say(t, ") & %d))", (1 << (range(t, 0, 1) ? __builtin_ctz((unsigned)columns) : range(t, 0, 6))) - 1);
}

static void read(text *t, int depth) {
  switch (range(t, 0, 5)) {
  case 4:
  case 5: /* larger than what a byte counts to */
    say(t, "wide[fly_clamp("), row_and_column(t, depth), say(t, ", 0, %d)]", RANDOM_MASK_WIDE - 1);
    break;
  case 0:
    say(t, "words["), any_index(t, depth, RANDOM_MASK_WORDS), say(t, "]");
    break;
  case 1:
    say(t, "bytes["), index_of(t, depth, RANDOM_MASK_BYTES), say(t, "]");
    break;
  case 2:
    say(t, "fly_at2(table, "), index_of(t, depth, RANDOM_MASK_ROWS), say(t, ", ");
    index_of(t, depth, RANDOM_MASK_COLUMNS), say(t, ")");
    break;
  default:
    say(t, "constants["), any_index(t, depth, 16), say(t, "]");
  }
}

static const char *const comparisons[] = {"<", "<=", ">", ">=", "==", "!="};

static void wide_condition(text *t) {
  say(t, "((int)wide[fly_clamp("), row_and_column(t, 0), say(t, ", 0, %d)] ", RANDOM_MASK_WIDE - 1);
  say(t, "%s %d)", comparisons[range(t, 0, 5)], (int)range(t, 0, 3));
}

static void condition(text *t, int depth) {
  if (depth > 0 && range(t, 0, 3) == 0) {
    say(t, range(t, 0, 3) ? "(" : "!(");
    condition(t, depth - 1), say(t, range(t, 0, 1) ? " && " : " || "), condition(t, depth - 1), say(t, ")");
    return;
  }
  if (range(t, 0, 5) == 0) {
    wide_condition(t);
    return;
  }
  bool is_unsigned = range(t, 0, 5) == 0, real = !is_unsigned && range(t, 0, 20) == 0;
  say(t, is_unsigned ? "((unsigned)(" : real ? "((float)(" : "((");
  expression(t, depth - 1);
  say(t, ") %s (", comparisons[range(t, 0, 5)]);
  expression(t, depth - 1);
  say(t, real ? ") * 0.75f)" : "))");
}

/* An operation that C leaves open for some operands. */
static void open_operation(text *t, int depth) {
  static const char *const names[] = {"DIV", "MOD", "SHL", "SHR"};
  if (range(t, 0, 5) == 0) { /* infinities and NaN too */
    say(t, "INT((float)("), expression(t, depth), say(t, ") * 99999.f / (float)("), expression(t, depth), say(t, "))");
    return;
  }
  say(t, "(int)%s(", names[range(t, 0, 3)]);
  if (range(t, 0, 2) == 0) say(t, "(%s)", range(t, 0, 1) ? "unsigned" : "int64_t");
  say(t, "("), expression(t, depth), say(t, "), "), expression(t, depth), say(t, ")");
}

static void expression(text *t, int depth) {
  static const char *const operators[] = {"+", "-", "*", "&", "|", "^", "+", "-"};
  static const char *const types[] = {"int8_t", "uint8_t", "int16_t", "uint16_t", "unsigned", "int64_t"};
  const char *narrow, *divisor;
  t->budget--;
  if (depth > 0 && range(t, 0, 7) == 0) say(t, "(int)(%s)", narrow_types[range(t, 0, 3)]);
  if (depth <= 0 || t->budget < 0 || range(t, 0, 3) == 0) {
    leaf(t);
    return;
  }
  say(t, "(");
  switch (range(t, 0, 15)) {
  case 12:
  case 13:
  case 14:
  case 15:
    open_operation(t, depth - 1);
    break;
  case 10: /* rounds down to a multiple, in some width */
    narrow = narrow_types[range(t, 0, 3)], divisor = range(t, 0, 1)   ? "p3"
                                                     : range(t, 0, 1) ? "(p2 | 1)"
                                                                      : "((p0 & 31) | 1)";
    say(t, "(int)(%s)((", narrow), expression(t, depth - 1), say(t, ") / %s * %s)", divisor, divisor);
    break;
  case 11:
    say(t, "(int)"), row_and_column(t, depth - 2);
    break;
  case 0:
    say(t, "(int)("), expression(t, depth - 1), say(t, range(t, 0, 1) ? ") / (((" : ") %% ((("),
        expression(t, depth - 1), say(t, ") & 15) + 1)");
    break;
  case 1:
    say(t, "("), expression(t, depth - 1), say(t, ")%s %d", range(t, 0, 1) ? " /" : " %", (int)range(t, 1, 40));
    break;
  case 2:
    say(t, range(t, 0, 1) ? "(int)((unsigned)(" : "((int)("), expression(t, depth - 1),
        say(t, range(t, 0, 1) ? ") >> ((" : ") << (("), expression(t, depth - 1), say(t, ") & 7))");
    break;
  case 3:
    say(t, "(int)(%s)(", types[range(t, 0, 5)]), expression(t, depth - 1), say(t, ")");
    break;
  case 4:
    say(t, "(int)"), read(t, depth - 2);
    break;
  case 5:
    condition(t, depth - 1), say(t, " ? "), expression(t, depth - 1), say(t, " : "), expression(t, depth - 1);
    break;
  case 6:
    say(t, "fly_%s(", range(t, 0, 1) ? "min" : "max"), expression(t, depth - 1), say(t, ", "), expression(t, depth - 1),
        say(t, ")");
    break;
  case 7:
    say(t, range(t, 0, 1) ? "fly_abs(" : "__builtin_popcount("), expression(t, depth - 1), say(t, ")");
    break;
  case 8:
    if (t->helper)
      leaf(t);
    else
      say(t, "helper("), expression(t, depth - 1), say(t, ", "), expression(t, depth - 1), say(t, ")");
    break;
  default:
    expression(t, depth - 1), say(t, " %s ", operators[range(t, 0, 7)]), expression(t, depth - 1);
  }
  say(t, ")");
}

static void statements(text *t, int depth);

static void loop(text *t, int depth) {
  int i = t->loops;
  say(t, "for (int i%d = 0; i%d < ", i, i);
  if (range(t, 0, 1))
    say(t, "%d", (int)range(t, 0, 6));
  else if (range(t, 0, 1))
    say(t, "(p0 & 7)");
  else
    say(t, "(("), expression(t, 1), say(t, ") & 7)");
  say(t, "; i%d++) {\n", i);
  t->loops++;
  statements(t, depth - 1);
  t->loops--;
  if (range(t, 0, 2) == 0)
    say(t, "if "), say(t, "("), condition(t, 1), say(t, range(t, 0, 1) ? ") break;\n" : ") continue;\n");
  say(t, "x%d += %d;\n}\n", (int)range(t, 0, t->locals - 1), (int)range(t, -3, 3));
}

static void statements(text *t, int depth) {
  for (int64_t n = range(t, 1, 3); n > 0; n--) {
    int x = (int)range(t, 0, t->locals - 1);
    switch (depth > 0 ? range(t, 0, 7) : 7) {
    case 0:
      loop(t, depth);
      break;
    case 1:
      say(t, "if ("), condition(t, 2), say(t, ") {\n"), statements(t, depth - 1), say(t, "} else {\n");
      statements(t, depth - 1), say(t, "}\n");
      break;
    case 2:
      say(t, "if ("), condition(t, 2), say(t, ") return "), condition(t, 2), say(t, ";\n");
      break;
    case 3:
      say(t, "switch (("), expression(t, 2), say(t, ") & 3) {\ncase 0: x%d = ", x), expression(t, 2),
          say(t, "; break;\ncase 2: ");
      say(t, "x%d += ", x), expression(t, 2), say(t, "; break;\ndefault: x%d--;\n}\n", x);
      break;
    case 4:
      say(t, "{ int a[4] = {1, q, kv, 7}; a["), any_index(t, 1, 4), say(t, "] = "), expression(t, 2),
          say(t, "; x%d = a[", x), any_index(t, 1, 4), say(t, "]; }\n");
      break;
    default:
      say(t, "x%d %s= ", x, range(t, 0, 1) ? "" : "+"), expression(t, 3), say(t, ";\n");
    }
  }
}

void random_mask(test_random *random, char *out, size_t size) {
  text t = {.random = random, .at = out, .end = out + size, .budget = 60};
  say(&t, "#include <flymask/mask.h>\n%s", macros);
  say(&t, "FLY_PARAM(int, p0, 3);\nFLY_PARAM(int, p1, 40);\nFLY_BUFFER(int32_t, words, 1);\n"
          "FLY_BUFFER(uint8_t, bytes, 1);\nFLY_BUFFER(int16_t, table, 2);\n"
          "FLY_BUFFER(uint8_t, wide, 1);\nFLY_PARAM(uint8_t, p2, 7);\nFLY_PARAM(int8_t, p3, 100);\nstatic const int "
          "constants[16] = {");
  for (int i = 0; i < 16; i++) say(&t, "%d, ", (int)range(&t, -9, 90));
  say(&t, "};\nstatic int helper(int q, int kv) {\nint b = 0, h = 1;\n(void)b, (void)h;\nreturn ");
  t.helper = true;
  expression(&t, 2);
  t.helper = false;
  say(&t, ";\n}\nbool mask(int b, int h, int q, int kv) {\n(void)b, (void)h, (void)helper, (void)constants;\n");
  bool simple = range(&t, 0, 2) == 0;
  for (int i = 0; i < 3; i++) say(&t, "int x%d = ", i), expression(&t, 2), say(&t, ";\n"), t.locals++;
  t.budget = 120;
  if (!simple) statements(&t, 3);
  t.budget = 30;
  say(&t, "(void)x0, (void)x1, (void)x2;\nreturn ");
  if (range(&t, 0, 3))
    condition(&t, 3);
  else
    wide_condition(&t);
  say(&t, ";\n}\n");
}
