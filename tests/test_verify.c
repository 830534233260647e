/* From clang's IR to the symbolic form: what is refused, with its place and its golden text; what remains is only what
 * compiler.h promises; and it means what the source means. */
#include <dirent.h>
#include <unistd.h>

#include <llvm-c/Analysis.h>

#include "compiled.h"
#include "compiler/verify.h"
#include "meanings.h"

/* ---- Help -------------------------------------------------------------------------------------------------------- */

typedef struct verified {
  LLVMContextRef context;
  LLVMModuleRef module;
  flyi_declarations declarations;
} verified;

static fly_status verify(const char *source, const char *name, verified *out, fly_error *error) {
  flyi_bytes ir;
  *out = (verified){0};
  *error = (fly_error){0};
  fly_status status = flyi_frontend(source, name, NULL, &ir, error);
  if (status) return status;
  out->context = flyi_context_create();
  status = flyi_verify(out->context, (flyi_section){ir.data, ir.size}, name, &out->module, &out->declarations, error);
  flyi_bytes_free(&ir);
  ck_assert_int_eq(status == FLY_OK, out->module != NULL);
  return status;
}

static void release(verified *v) {
  flyi_declarations_free(&v->declarations);
  if (v->module) LLVMDisposeModule(v->module);
  if (v->context) LLVMContextDispose(v->context);
  *v = (verified){0};
}

static char *read_file(const char *directory, const char *name) {
  char path[512];
  snprintf(path, sizeof path, "%s/%s", directory, name);
  FILE *file = fopen(path, "r");
  ck_assert_msg(file != NULL, "%s", path);
  char *text = calloc(1, 1 << 20);
  ck_assert_uint_lt(fread(text, 1, (1 << 20) - 1, file), (1 << 20) - 1);
  fclose(file);
  return text;
}

static int compare_names(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* The names of the .c files of a directory, sorted. */
static int list_sources(const char *directory, char *names[], int most) {
  DIR *d = opendir(directory);
  int count = 0;
  ck_assert_msg(d != NULL, "%s", directory);
  for (struct dirent *e; (e = readdir(d)) && count < most;) {
    size_t size = strlen(e->d_name);
    if (size > 2 && !strcmp(e->d_name + size - 2, ".c")) names[count++] = strdup(e->d_name);
  }
  closedir(d);
  qsort(names, (size_t)count, sizeof *names, compare_names);
  return count;
}

/* ---- Refusals ---------------------------------------------------------------------------------------------------- */

/* The first line of each file of refusals/ is "// LINE:COLUMN: MESSAGE"; a message that ends with ... is the beginning
 * of one of clang's. */
static void check_refusal(const char *name, const char *source) {
  int line, column, size;
  char golden[1024];
  verified v;
  fly_error error;
  ck_assert_msg(sscanf(source, "// %d:%d: %n", &line, &column, &size) == 2, "%s has no golden line", name);
  snprintf(golden, sizeof golden, "%.*s", (int)strcspn(source + size, "\n"), source + size);
  fly_status status = verify(source, name, &v, &error);
  size_t end = strlen(golden);
  if (end > 3 && !strcmp(golden + end - 3, "...") && strlen(error.message) > end - 3)
    error.message[end - 3] = golden[end - 3] = 0;
  ck_assert_msg(status == FLY_ERROR_SOURCE, "%s: %s %s", name, fly_status_name(status), error.message);
  ck_assert_str_eq(error.file, name);
  ck_assert_msg(error.line == line && error.column == column, "%s: %d:%d: %s", name, error.line, error.column,
                error.message);
  ck_assert_msg(!strcmp(error.message, golden), "%s:\nexpected %s\ngot      %s", name, golden, error.message);
  ck_assert_int_eq(v.declarations.parameter_count + v.declarations.buffer_count, 0);
  release(&v);
}

START_TEST(refusals_have_their_golden_texts) {
  const char *directory = FLYMASK_SOURCE "/tests/refusals";
  char *names[256];
  int count = list_sources(directory, names, 256);
  ck_assert_int_ge(count, 90);
  for (int i = 0; i < count; i++) {
    char *source = read_file(directory, names[i]);
    check_refusal(names[i], source);
    free(source);
    free(names[i]);
  }
}
END_TEST

/* LLVM's parser ends the process where it meets broken IR; newer clangs fail on some of these themselves. */
START_TEST(names_of_llvms_own_cannot_end_the_process) {
  static const char *const labels[] = {
      "int f(int) __asm__(\"llvm.memcpy.p0.p0.i64\");\nbool mask(int b, int h, int q, int kv) { return f(q); }\n",
      ("void f(void *, const void *, long, bool) __asm__(\"llvm.memcpy.p0.p0.i64\");\n"
       "bool mask(int b, int h, int q, int kv) { int x = 1, y; f(&y, &x, 4, q); return y; }\n"),
      "int x[2] __asm__(\"llvm.used\") = {1};\nbool mask(int b, int h, int q, int kv) { return q; }\n",
      "int f(int x) __asm__(\"llvm.nonsense\");\nbool mask(int b, int h, int q, int kv) { return f(q); }\n"};
  for (size_t i = 0; i < sizeof labels / sizeof *labels; i++) {
    char source[512];
    verified v;
    fly_error error;
    snprintf(source, sizeof source, "#include <flymask/mask.h>\n%s", labels[i]);
    fly_status status = verify(source, "label.c", &v, &error);
    ck_assert_msg(status == FLY_ERROR_SOURCE || status == FLY_ERROR_TOOL, "%s", source);
    release(&v);
  }
}
END_TEST

/* Sources made here because they are long. */
START_TEST(what_is_too_large_is_refused_in_time) {
  const size_t most = 1 << 20;
  char *source = malloc(most + 1);
  static const struct {
    const char *head, *part, *tail;
    size_t parts;
    fly_status status;
  } cases[] = {
      {"#include <flymask/mask.h>\nbool mask(int b, int h, int q, int kv) { return q", " + q * kv", "; }\n", 4000,
       FLY_ERROR_SOURCE},
      {"#include <flymask/mask.h>\nbool mask(int b, int h, int q, int kv) { int x = q;\n", "if (x > kv) x++;\n",
       "return x; }\n", 4000, FLY_ERROR_SOURCE},
      {"#include <flymask/mask.h>\nbool mask(int b, int h, int q, int kv) { return ", "(", "q; }\n", 1000000,
       FLY_ERROR_SOURCE},
      {"", "\n", "#include <flymask/mask.h>\nbool mask(int b, int h, int q, int kv) { return q; }\n", 1000000, FLY_OK},
      {"#include <flymask/mask.h>\nbool mask(int b, int h, int q, int kv) { return q", "+1", "; }\n", 400000,
       FLY_ERROR_TOOL},
      {"#include <flymask/mask.h>\nbool mask(int b, int h, int q, int kv) { ", "while (q > kv) ", "q--; return q; }\n",
       13, FLY_ERROR_SOURCE},
      {"#include <flymask/mask.h>\nbool mask(int b, int h, int q, int kv) { ", "while (q > kv) ", "q--; return q; }\n",
       12, FLY_OK},
      {"#include <flymask/mask.h>\nbool mask(int b, int h, int q, int kv) {",
       "for (long i = q; i < (long)kv + q; i += 3) { if (i & 1) q += i; else kv -= i; }\n", "return q > kv; }\n", 24,
       FLY_ERROR_SOURCE},
      {"#include <flymask/mask.h>\nbool mask(int b, int h, int q, int kv) {",
       "for (int i = 0; i < 7; i++) if ((q += i) > kv) break;\n", "return q > kv; }\n", 129, FLY_ERROR_SOURCE},
      {"#include <flymask/mask.h>\nbool mask(int b, int h, int q, int kv) {",
       "for (int i = 0; i < 7; i++) if ((q += i) > kv) break;\n", "return q > kv; }\n", 128, FLY_OK},
      {"#include <flymask/mask.h>\nbool mask(int b, int h, int q, int kv) { switch (q) { default:",
       "case __COUNTER__ * 9:", "return kv; } }\n", 40000, FLY_ERROR_SOURCE},
      {"#include <flymask/mask.h>\nbool mask(int b, int h, int q, int kv) { switch (q) { default:",
       "case __COUNTER__ * 9:", "return kv; } }\n", 2000, FLY_OK},
      {"#include <flymask/mask.h>\nstatic const int x", "[1]",
       " = {0};\nbool mask(int b, int h, int q, int kv) { return *(const int *)&x; }\n", 100, FLY_ERROR_SOURCE}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    verified v;
    fly_error error;
    char *at = stpcpy(source, cases[i].head);
    for (size_t k = 0; k < cases[i].parts; k++) at = stpcpy(at, cases[i].part);
    stpcpy(at, cases[i].tail);
    fly_status status = verify(source, "large.c", &v, &error);
    /* As clang 22 does on a million brackets. */
    bool fell_over = status == FLY_ERROR_TOOL && cases[i].status == FLY_ERROR_SOURCE;
    ck_assert_msg(status == cases[i].status || fell_over, "case %zu: %s: %s", i, fly_status_name(status),
                  error.message);
    release(&v);
  }
  free(source);
}
END_TEST

/* ---- Declarations ------------------------------------------------------------------------------------------------ */

START_TEST(declarations_come_in_the_order_of_the_source) {
  static const struct {
    const char *name;
    fly_type type;
    uint64_t value;
  } parameters[] = {{"p_int", FLY_I32, (uint64_t)-7},
                    {"p_unsigned", FLY_U32, 4294967289u},
                    {"p_char", FLY_I8, (uint64_t)-1},
                    {"p_uchar", FLY_U8, 255},
                    {"p_short", FLY_I16, (uint64_t)-32768},
                    {"p_ushort", FLY_U16, 65535},
                    {"p_long", FLY_I64, (uint64_t)INT64_MIN},
                    {"p_ulonglong", FLY_U64, UINT64_MAX},
                    {"p_int8", FLY_I8, 127},
                    {"p_size", FLY_U64, 0},
                    {"p_bool", FLY_BOOL, 1},
                    {"p_float", FLY_F32, 0xBFC00000},
                    {"p_double", FLY_F64, 0x4004000000000000},
                    {"p_const", FLY_I32, 5},
                    {"p_mine", FLY_U16, 9},
                    {"p_enum", FLY_U32, 2}};
  static const struct {
    const char *name;
    fly_type type;
    int rank;
  } buffers[] = {{"b_int", FLY_I32, 1},
                 {"b_bool", FLY_BOOL, 2},
                 {"b_float", FLY_F32, 4},
                 {"b_u8", FLY_U8, 3},
                 {"b_i64", FLY_I64, 1}};
  verified v;
  fly_error error;
  ck_fly_ok(verify("#include <flymask/mask.h>\n"
                   "typedef unsigned short mine; enum kind { A, B, C };\n"
                   "FLY_PARAM(int, p_int, -7); FLY_PARAM(unsigned, p_unsigned, -7); FLY_PARAM(char, p_char, 255);\n"
                   "FLY_BUFFER(int, b_int, 1);\n"
                   "FLY_PARAM(unsigned char, p_uchar, -1); FLY_PARAM(short, p_short, -32768);\n"
                   "FLY_PARAM(uint16_t, p_ushort, 65535);\nFLY_PARAM(long, p_long, INT64_MIN);\n"
                   "FLY_PARAM(unsigned long long, p_ulonglong, -1); FLY_PARAM(int8_t, p_int8, INT8_MAX);\n"
                   "FLY_BUFFER(bool, b_bool, 2); FLY_BUFFER(float, b_float, 4);\n"
                   "FLY_PARAM(size_t, p_size, 0); FLY_PARAM(bool, p_bool, 7); FLY_PARAM(float, p_float, -1.5);\n"
                   "FLY_PARAM(double, p_double, 2.5f); FLY_PARAM(const int, p_const, sizeof(int) + 1);\n"
                   "FLY_PARAM(mine, p_mine, 9);\nFLY_PARAM(enum kind, p_enum, C);\n"
                   "FLY_BUFFER(uint8_t, b_u8, 3);\nFLY_BUFFER(const int64_t, b_i64, 1);\n"
                   "bool mask(int b, int h, int q, int kv) { return q > kv + p_const; }\n",
                   "declared.c", &v, &error),
            error);
  ck_assert_int_eq(v.declarations.parameter_count, sizeof parameters / sizeof *parameters);
  for (int i = 0; i < v.declarations.parameter_count; i++) {
    const flyi_parameter *p = &v.declarations.parameters[i];
    ck_assert_str_eq(p->name, parameters[i].name);
    ck_assert_msg(p->type == parameters[i].type, "%s is %s", p->name, fly_type_name(p->type));
    ck_assert_msg(p->value == parameters[i].value, "%s is %lx", p->name, p->value);
    ck_assert(!p->baked);
  }
  ck_assert_int_eq(v.declarations.buffer_count, sizeof buffers / sizeof *buffers);
  for (int i = 0; i < v.declarations.buffer_count; i++) {
    ck_assert_str_eq(v.declarations.buffers[i].name, buffers[i].name);
    ck_assert_int_eq(v.declarations.buffers[i].type, buffers[i].type);
    ck_assert_int_eq(v.declarations.buffers[i].rank, buffers[i].rank);
  }
  release(&v);
}
END_TEST

/* ---- The symbolic form ------------------------------------------------------------------------------------------- */

static const char *name_of(LLVMValueRef value) {
  size_t size;
  return LLVMGetValueName2(value, &size);
}

static void check_globals(LLVMModuleRef module) {
  for (LLVMValueRef g = LLVMGetFirstGlobal(module); g; g = LLVMGetNextGlobal(g)) {
    ck_assert_msg(LLVMIsGlobalConstant(g), "%s", name_of(g));
    if (!LLVMIsDeclaration(g)) continue; /* a table */
    ck_assert_msg(!strncmp(name_of(g), "fly.", 4), "%s", name_of(g));
    for (LLVMUseRef use = LLVMGetFirstUse(g); use; use = LLVMGetNextUse(use)) /* used by loads alone */
      ck_assert_msg(LLVMIsALoadInst(LLVMGetUser(use)) != NULL, "%s", name_of(g));
  }
  ck_assert_ptr_null(LLVMGetFirstGlobalAlias(module));
  ck_assert_ptr_null(LLVMGetFirstGlobalIFunc(module));
  for (LLVMValueRef f = LLVMGetFirstFunction(module); f; f = LLVMGetNextFunction(f)) {
    bool known = !strncmp(name_of(f), "fly_token_", 10) || !strncmp(name_of(f), "fly_len_", 8) ||
                 !strncmp(name_of(f), "llvm.", 5);
    ck_assert_msg(LLVMIsDeclaration(f) ? known : !strcmp(name_of(f), "mask"), "%s", name_of(f));
  }
}

static void check_instruction(LLVMValueRef i) {
  LLVMOpcode opcode = LLVMGetInstructionOpcode(i);
  switch (opcode) {
  case LLVMAdd:
  case LLVMSub:
  case LLVMMul:
  case LLVMShl:
    ck_assert(!LLVMGetNSW(i) && !LLVMGetNUW(i));
    break;
  case LLVMUDiv:
  case LLVMSDiv:
  case LLVMLShr:
  case LLVMAShr:
    ck_assert(!LLVMGetExact(i));
    break;
  case LLVMGetElementPtr:
    ck_assert(!LLVMIsInBounds(i));
    break;
  case LLVMZExt:
    ck_assert(!LLVMGetNNeg(i));
    break;
  case LLVMPtrToInt:
  case LLVMIntToPtr:
  case LLVMUnreachable:
  case LLVMFPToSI:
  case LLVMFPToUI:
    ck_abort_msg("opcode %d", opcode);
  case LLVMPHI:
    ck_assert_int_ne(LLVMGetTypeKind(LLVMTypeOf(i)), LLVMPointerTypeKind);
    break;
  case LLVMLoad:
    ck_assert(!LLVMGetVolatile(i));
    break;
  case LLVMStore: {
    LLVMValueRef to = LLVMGetOperand(i, 1);
    while (LLVMIsAGetElementPtrInst(to)) to = LLVMGetOperand(to, 0);
    ck_assert_ptr_nonnull(LLVMIsAAllocaInst(to));
    break;
  }
  default:
    break;
  }
  for (int k = 0; k < LLVMGetNumOperands(i); k++) ck_assert(!LLVMIsUndef(LLVMGetOperand(i, (unsigned)k)));
}

static void check_symbolic(const char *source, const char *name) {
  verified v;
  fly_error error;
  char *text = NULL;
  ck_fly_ok(verify(source, name, &v, &error), error);
  ck_assert_msg(!LLVMVerifyModule(v.module, LLVMReturnStatusAction, &text), "%s: %s", name, text);
  LLVMDisposeMessage(text);
  LLVMValueRef mask = LLVMGetNamedFunction(v.module, "mask");
  LLVMTypeRef i32 = LLVMInt32TypeInContext(v.context);
  ck_assert_ptr_eq(LLVMGlobalGetValueType(mask),
                   LLVMFunctionType(LLVMInt1TypeInContext(v.context), (LLVMTypeRef[]){i32, i32, i32, i32}, 4, false));
  ck_assert_int_eq(LLVMGetLinkage(mask), LLVMExternalLinkage);
  check_globals(v.module);
  for (EACH_BLOCK(block, mask))
    for (EACH_INSTRUCTION(instruction, block)) check_instruction(instruction);
  release(&v);
}

START_TEST(the_symbolic_form_holds_only_what_it_promises) {
  char *names[128];
  int count = list_sources(FLYMASK_SOURCE "/masks", names, 128);
  ck_assert_int_ge(count, 8);
  for (int i = 0; i < count; i++) {
    char *source = read_file(FLYMASK_SOURCE "/masks", names[i]);
    check_symbolic(source, names[i]);
    free(source);
    free(names[i]);
  }
  for (size_t i = 0; i < meaning_count; i++) check_symbolic(meanings[i].source, "meaning.c");
}
END_TEST

/* However many there are, at whichever place. */
START_TEST(promises_are_stripped_by_the_hundred) {
  LLVMContextRef context = LLVMContextCreate();
  LLVMModuleRef module = LLVMModuleCreateWithNameInContext("m", context);
  LLVMTypeRef i32 = LLVMInt32TypeInContext(context), type = LLVMFunctionType(i32, &i32, 1, false);
  LLVMValueRef function = LLVMAddFunction(module, "f", type);
  static const LLVMAttributeIndex places[] = {0, 1, (LLVMAttributeIndex)LLVMAttributeFunctionIndex};
  for (int count = 1; count <= 300; count += count < 60 ? 29 : 1 + count / 2) {
    for (int p = 0; p < 3; p++)
      for (int i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof name, "promise%d", i);
        LLVMAddAttributeAtIndex(function, places[p],
                                LLVMCreateStringAttribute(context, name, (unsigned)strlen(name), "", 0));
      }
    for (int p = 0; p < 3; p++) ck_assert_int_eq(LLVMGetAttributeCountAtIndex(function, places[p]), count);
    flyi_fail_allocation(1);
    ck_assert_int_eq(flyi_strip_function(function), count <= 32);
    flyi_fail_allocation(0);
    ck_assert(flyi_strip_function(function));
    for (int p = 0; p < 3; p++) ck_assert_int_eq(LLVMGetAttributeCountAtIndex(function, places[p]), 0);
  }
  LLVMDisposeModule(module);
  LLVMContextDispose(context);
}
END_TEST

START_TEST(places_survive) {
  verified v;
  fly_error error;
  ck_fly_ok(verify("#include <flymask/mask.h>\nstatic int twice(int x) {\n  return x * 2;\n}\n"
                   "bool mask(int b, int h, int q, int kv) {\n  return twice(q) > kv;\n}\n",
                   "places.c", &v, &error),
            error);
  int seen = 0;
  for (EACH_BLOCK(block, LLVMGetNamedFunction(v.module, "mask")))
    for (EACH_INSTRUCTION(i, block)) {
      if (LLVMGetInstructionOpcode(i) == LLVMMul || LLVMGetInstructionOpcode(i) == LLVMShl)
        seen += LLVMGetDebugLocLine(i) == 3 && LLVMGetDebugLocColumn(i) == 12;
      if (LLVMGetInstructionOpcode(i) == LLVMICmp)
        seen += LLVMGetDebugLocLine(i) == 6 && LLVMGetDebugLocColumn(i) == 19;
    }
  ck_assert_int_eq(seen, 2);
  release(&v);
}
END_TEST

/* ---- Meaning ----------------------------------------------------------------------------------------------------- */

START_TEST(it_means_what_the_source_means) {
  const meaning *m = &meanings[_i];
  const int64_t shape[] = {MEANING_DOC};
  fly_error error;
  fly_buffer *buffer;
  compiled c = compiled_from(m->source, NULL, NULL);
  ck_fly_ok(fly_buffer_create(FLY_I32, 1, shape, meaning_doc, &buffer, &error), error);
  const fly_geometry geometry = {FLY_INIT(fly_geometry), .batch = 1, .heads = 4, .len_q = 64, .len_kv = 64};
  const fly_arg argument = FLY_CAPTURE("doc", buffer);
  compiled_call call = compiled_bind(&c, &argument, fly_mask_get_info(c.mask)->buffer_count, &geometry);
  for (int h = 0; h < 4; h++) {
    uint64_t bits[FLYI_BLOCK];
    compiled_bits(&call, 0, h, 0, 0, bits);
    for (int q = 0; q < 64; q++)
      for (int kv = 0; kv < 64; kv++)
        ck_assert_msg((bits[q] >> kv & 1) == m->expected(0, h, q, kv), "h %d, q %d, kv %d\n%s", h, q, kv, m->source);
  }
  compiled_call_free(&call);
  fly_buffer_release(&buffer);
  compiled_free(&c);
}
END_TEST

/* ---- Loops ------------------------------------------------------------------------------------------------------- */

/* True where the mask counts its rounds. */
static bool counts(const char *body) {
  char source[1024];
  verified v;
  fly_error error;
  snprintf(source, sizeof source,
           "#include <flymask/mask.h>\nFLY_PARAM(int, n, 3);\nbool mask(int b, int h, int q, int kv) {\n%s\n}\n", body);
  ck_fly_ok(verify(source, "loop.c", &v, &error), error);
  char *text = LLVMPrintModuleToString(v.module);
  bool found = false; /* the counter's comparison; no source here has an unsigned > */
  for (const char *at = text; !found && (at = strstr(at, "icmp ugt ")); at++)
    found = !strncmp(at + strcspn(at, ",!\n"), ", 65536", 7);
  LLVMDisposeMessage(text);
  release(&v);
  return found;
}

START_TEST(loops_with_small_constant_bounds_are_not_counted) {
  static const char *const bodies[] = {
      "int s = 0; for (int i = 0; i < 64; i++) s += q >> i; return s & 1;",
      "int s = 0; for (int i = 64; i-- > 0;) s += q >> i; return s & 1;",
      "int s = 0; for (unsigned i = 1; i <= 4096; i *= 2) s += q & i; return s & 1;",
      ("int s = 0; for (int i = 0; i < 100; i++) for (int j = 0; j < 100; j++) { if (s > kv) break; s += q; } return s "
       "& 1;"),
      "int i = 0; do { if (i == q) return true; i += 3; } while (i < 300); return false;",
      "int i = 0; while (i < 20) { i++; if (i == q) continue; if (i == kv) return true; } return false;",
      "unsigned char c = 250; while (c) c++; return q > c;",
      "for (int i = 0; i < 10 && i < n; i++) if (i == q) return true; return false;",
      "for (int64_t i = -5; i != 5; i++) if (i == q) return true; return false;",
      "int s = 0; for (int i = 0; i < 65536; i++) s += q; return s & 1;"};
  for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) ck_assert_msg(!counts(bodies[i]), "%s", bodies[i]);
}
END_TEST

START_TEST(all_other_loops_are_counted) {
  static const char *const bodies[] = {
      "for (;;) if (q == kv) return true;",
      "while (q != kv) ; return true;",
      "int s = 0; for (int i = 0; i < n; i++) s += q; return s & 1;",
      "int s = 0; for (int i = 0; i < q; i++) s += q; return s & 1;",
      "int s = 0; for (int i = 0; i < 65537; i++) s += q; return s & 1;",
      "int s = 0; for (int i = 0; i < 300; i++) for (int j = 0; j < 300; j++) s += q; return s & 1;",
      "int s = 0; for (int i = 1; i != 0; i *= 3) s += q; return s & 1;",
      "int i = 0; again: if (i == kv) return true; i += q; goto again;",
      "unsigned x = q; while (x) x &= x - 1; return kv > x;"};
  for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) ck_assert_msg(counts(bodies[i]), "%s", bodies[i]);
}
END_TEST

/* Row q of the block at (0, 0) of a mask with one int parameter n. */
static uint64_t row_of(const char *source, int n, int q) {
  const fly_geometry geometry = {FLY_INIT(fly_geometry), .batch = 1, .heads = 1, .len_q = 64, .len_kv = 64};
  compiled c = compiled_from(source, NULL, NULL);
  compiled_call call = compiled_bind(&c, &FLY_INT("n", n), 1, &geometry);
  uint64_t bits[FLYI_BLOCK];
  compiled_bits(&call, 0, 0, 0, 0, bits);
  compiled_call_free(&call);
  compiled_free(&c);
  return bits[q];
}

START_TEST(the_rounds_of_all_loops_count_together) {
  static const char one[] =
      "#include <flymask/mask.h>\nFLY_PARAM(int, n, 0);\nbool mask(int b, int h, int q, int kv) {\n"
      "  if (q || kv) return kv & 1;\n  int s = 0;\n"
      "  for (int i = 0; i < n; i++) s += i;\n  return true;\n}\n";
  static const char nested[] =
      "#include <flymask/mask.h>\nFLY_PARAM(int, n, 0);\nbool mask(int b, int h, int q, int kv) {\n"
      "  if (q || kv) return kv & 1;\n  int s = 0;\n" /* 256 * (n + 1) rounds */
      "  for (int i = 0; i < 256; i++)\n    for (int j = 0; j < n; j++) s += i;\n  return true;\n}\n";
  const uint64_t odd = 0xAAAAAAAAAAAAAAAA;
  ck_assert_uint_eq(row_of(one, 65536, 0), odd | 1);
  ck_assert_uint_eq(row_of(one, 65537, 0), odd);
  ck_assert_uint_eq(row_of(one, INT32_MAX, 0), odd);
  ck_assert_uint_eq(row_of(nested, 255, 0), odd | 1);
  ck_assert_uint_eq(row_of(nested, 256, 0), odd);
  ck_assert_uint_eq(row_of(nested, INT32_MAX, 0), odd);
}
END_TEST

/* ---- A good library ---------------------------------------------------------------------------------------------- */

static void count_diagnostic(LLVMDiagnosticInfoRef info, void *count) { (void)info, ++*(int *)count; }

START_TEST(damaged_ir_is_an_error_and_the_contexts_handler_stays) {
  flyi_bytes ir;
  fly_error error;
  int count = 0;
  LLVMContextRef context = LLVMContextCreate();
  LLVMContextSetDiagnosticHandler(context, count_diagnostic, &count);
  ck_fly_ok(flyi_frontend(meanings[0].source, "damaged.c", NULL, &ir, &error), error);
  for (size_t size = 0; size < ir.size - 1; size += ir.size / 37) {
    LLVMModuleRef module;
    flyi_declarations declarations;
    fly_status status = flyi_verify(context, (flyi_section){ir.data, size}, "damaged.c", &module, &declarations,
                                    &error);
    ck_assert_int_ne(status, FLY_OK);
    ck_assert_ptr_null(module);
  }
  flyi_bytes_free(&ir);
  ck_assert(LLVMContextGetDiagnosticHandler(context) == count_diagnostic);
  ck_assert_ptr_eq(LLVMContextGetDiagnosticContext(context), &count);
  LLVMContextDispose(context);
}
END_TEST

START_TEST(running_out_of_memory_is_an_error) {
  flyi_bytes ir;
  fly_error error;
  ck_fly_ok(flyi_frontend(meanings[0].source, "memory.c", NULL, &ir, &error), error);
  fly_status status = FLY_ERROR_MEMORY;
  for (int nth = 1; status; nth++) {
    LLVMContextRef context = LLVMContextCreate();
    LLVMModuleRef module;
    flyi_declarations declarations;
    flyi_fail_allocation(nth);
    status = flyi_verify(context, (flyi_section){ir.data, ir.size}, "memory.c", &module, &declarations, &error);
    flyi_fail_allocation(0);
    ck_assert_msg(status == FLY_OK || status == FLY_ERROR_MEMORY, "allocation %d: %s", nth, error.message);
    ck_assert_int_lt(nth, 200);
    if (!status) LLVMDisposeModule(module);
    flyi_declarations_free(&declarations);
    LLVMContextDispose(context);
  }
  flyi_bytes_free(&ir);
}
END_TEST

static Suite *verify_suite(void) {
  Suite *suite = suite_create("verify");
  TCase *refusals = tcase_create("refusals"), *form = tcase_create("form"), *meaning_case = tcase_create("meaning"),
        *loops = tcase_create("loops"), *library = tcase_create("library");
  tcase_add_test(refusals, refusals_have_their_golden_texts);
  tcase_add_test(refusals, names_of_llvms_own_cannot_end_the_process);
  tcase_add_test(refusals, what_is_too_large_is_refused_in_time);
  tcase_add_test(form, declarations_come_in_the_order_of_the_source);
  tcase_add_test(form, the_symbolic_form_holds_only_what_it_promises);
  tcase_add_test(form, promises_are_stripped_by_the_hundred);
  tcase_add_test(form, places_survive);
  tcase_add_loop_test(meaning_case, it_means_what_the_source_means, 0, (int)meaning_count);
  tcase_add_test(loops, loops_with_small_constant_bounds_are_not_counted);
  tcase_add_test(loops, all_other_loops_are_counted);
  tcase_add_test(loops, the_rounds_of_all_loops_count_together);
  tcase_add_test(library, damaged_ir_is_an_error_and_the_contexts_handler_stays);
  tcase_add_test(library, running_out_of_memory_is_an_error);
  suite_add_tcase(suite, refusals);
  suite_add_tcase(suite, form);
  suite_add_tcase(suite, meaning_case);
  suite_add_tcase(suite, loops);
  suite_add_tcase(suite, library);
  return suite;
}

FLY_TEST_MAIN(verify_suite)
