/* declare.c: the globals of a source.
 *
 * Input: the module that clang wrote. Output: the parameters and buffers that it declares with FLY_PARAM and
 * FLY_BUFFER (see mask.h for what these leave in the IR: sections fly.param, fly.buffer, fly.dim, and in fly.type a
 * constant {size | kind, rank} named fly_type_NAME). What else there is must be a constant table. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "verify.h"

enum { MOST_DECLARATIONS = 64, MOST_NAME = 64 };

static const char *name_of(LLVMValueRef global) {
  size_t size;
  return LLVMGetValueName2(global, &size);
}

static bool in_section(LLVMValueRef global, const char *section) {
  const char *found = LLVMGetSection(global);
  return found && !strcmp(found, section);
}

static bool is_identifier(const char *name) {
  if (strlen(name) > MOST_NAME || isdigit((unsigned char)*name) || !*name) return false;
  for (; *name; name++)
    if (!isalnum((unsigned char)*name) && *name != '_') return false;
  return true;
}

/* mask.h's FLY_TYPE_. */
static fly_type type_of_code(int64_t code) {
  static const struct {
    int code;
    fly_type type;
  } known[] = {{0x11, FLY_I8},  {0x12, FLY_I16}, {0x14, FLY_I32},  {0x18, FLY_I64}, {0x21, FLY_U8}, {0x22, FLY_U16},
               {0x24, FLY_U32}, {0x28, FLY_U64}, {0x31, FLY_BOOL}, {0x44, FLY_F32}, {0x48, FLY_F64}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (known[i].code == code) return known[i].type;
  return FLY_TYPE_NONE;
}

static LLVMTypeRef ir_type(const flyi_verifier *v, fly_type type) {
  if (type == FLY_F32) return LLVMFloatTypeInContext(v->context);
  if (type == FLY_F64) return LLVMDoubleTypeInContext(v->context);
  return flyi_int_type(v, 8 * (unsigned)fly_type_size(type));
}

/* What fly_type_NAME says; false where there is none, as in a global put into our sections by hand. */
static bool read_companion(const flyi_verifier *v, const char *name, fly_type *type, int64_t *rank) {
  char companion[MOST_NAME + 16];
  snprintf(companion, sizeof companion, "fly_type_%s", name);
  LLVMValueRef global = LLVMGetNamedGlobal(v->module, companion), value = global ? LLVMGetInitializer(global) : NULL;
  int64_t code;
  if (!value || !in_section(global, "fly.type") || LLVMGetTypeKind(LLVMTypeOf(value)) != LLVMArrayTypeKind ||
      LLVMGetArrayLength2(LLVMTypeOf(value)) != 2)
    return false;
  if (!flyi_constant_int(LLVMGetAggregateElement(value, 0), &code) ||
      !flyi_constant_int(LLVMGetAggregateElement(value, 1), rank))
    return false;
  *type = type_of_code(code);
  return true;
}

static fly_status declare_parameter(flyi_verifier *v, LLVMValueRef global, flyi_global *entry, fly_type type) {
  const char *name = name_of(global);
  LLVMValueRef value = LLVMGetInitializer(global);
  flyi_parameter *parameter = &v->declarations->parameters[v->declarations->parameter_count];
  if (type == FLY_TYPE_NONE)
    return flyi_refuse(v, global, "parameter '%s' must be an integer, bool, float or double", name);
  *entry = (flyi_global){global, FLYI_PARAMETER, v->declarations->parameter_count++, 0, ir_type(v, type)};
  *parameter = (flyi_parameter){.type = type};
  if (LLVMIsAConstantInt(value)) {
    bool is_signed = type >= FLY_I8 && type <= FLY_I64;
    parameter->value = is_signed ? (uint64_t)LLVMConstIntGetSExtValue(value) : LLVMConstIntGetZExtValue(value);
  } else if (LLVMIsAConstantFP(value)) {
    LLVMBool lossy;
    double real = LLVMConstRealGetDouble(value, &lossy);
    float single = (float)real;
    if (type == FLY_F32)
      memcpy(&parameter->value, &single, sizeof single);
    else
      memcpy(&parameter->value, &real, sizeof real);
  } else {
    return flyi_refuse(v, global, "the default of parameter '%s' is not a number", name);
  }
  return LLVMGlobalGetValueType(global) == entry->type
             ? FLY_OK
             : flyi_refuse(v, global, "declare parameter '%s' with FLY_PARAM(type, name, default)", name);
}

static fly_status declare_buffer(flyi_verifier *v, LLVMValueRef global, flyi_global *entry, fly_type type,
                                 int64_t rank) {
  const char *name = name_of(global);
  if (type == FLY_TYPE_NONE || type == FLY_F64)
    return flyi_refuse(v, global, "the elements of buffer '%s' must be integers, bool or float", name);
  if (rank < 1 || rank > 4) return flyi_refuse(v, global, "the rank of buffer '%s' must be 1 to 4", name);
  if (LLVMGetTypeKind(LLVMGlobalGetValueType(global)) != LLVMPointerTypeKind || !LLVMIsNull(LLVMGetInitializer(global)))
    return flyi_refuse(v, global, "declare buffer '%s' with FLY_BUFFER(type, name, rank)", name);
  v->declarations->buffers[v->declarations->buffer_count] = (fly_buffer_info){.type = type, .rank = (int)rank};
  *entry = (flyi_global){global, FLYI_BUFFER, v->declarations->buffer_count++, 0, ir_type(v, type)};
  return FLY_OK;
}

/* NAME_dimK belongs to the buffer NAME, which has been declared before. */
static fly_status declare_dimension(flyi_verifier *v, LLVMValueRef global, flyi_global *entry) {
  const char *name = name_of(global), *suffix = strlen(name) > 5 ? name + strlen(name) - 5 : "";
  for (int i = 0; i < v->global_count; i++) {
    const flyi_global *buffer = &v->globals[i];
    const char *owner = name_of(buffer->value);
    if (buffer->kind != FLYI_BUFFER || strlen(owner) != strlen(name) - 5 || !flyi_starts(name, owner)) continue;
    if (!flyi_starts(suffix, "_dim") || suffix[4] < '0' || suffix[4] > '3') continue;
    *entry = (flyi_global){global, FLYI_DIMENSION, buffer->index, suffix[4] - '0', flyi_int_type(v, 64)};
    if (LLVMGlobalGetValueType(global) == entry->type && LLVMIsNull(LLVMGetInitializer(global))) return FLY_OK;
  }
  return flyi_refuse(v, global, "'%s' is in a section of Flymask's own: declare buffers with FLY_BUFFER", name);
}

static fly_status declare_one(flyi_verifier *v, LLVMValueRef global) {
  const char *name = name_of(global);
  flyi_global *entry = &v->globals[v->global_count];
  fly_type type = FLY_TYPE_NONE;
  int64_t rank = 0;
  fly_status status;
  if (!is_identifier(name))
    return flyi_refuse(v, global, "the name of a parameter or buffer must have at most %d ASCII letters, digits and _",
                       MOST_NAME);
  if (in_section(global, "fly.dim")) {
    status = declare_dimension(v, global, entry);
  } else if (!read_companion(v, name, &type, &rank)) {
    return flyi_refuse(v, global, "'%s' is in a section of Flymask's own: declare it with FLY_PARAM or FLY_BUFFER",
                       name);
  } else if (v->declarations->parameter_count + v->declarations->buffer_count >= MOST_DECLARATIONS) {
    return flyi_refuse(v, global, "a mask can have at most %d parameters and buffers", MOST_DECLARATIONS);
  } else if (in_section(global, "fly.param")) {
    status = declare_parameter(v, global, entry, type);
  } else {
    status = declare_buffer(v, global, entry, type, rank);
  }
  if (!status) v->global_count++;
  return status;
}

/* ---- The other globals ------------------------------------------------------------------------------------------- */

/* Padding that C leaves undefined becomes 0. NULL: the constant holds poison, which no C constant should. */
static LLVMValueRef defined(LLVMValueRef constant) {
  LLVMTypeRef type = LLVMTypeOf(constant);
  if (LLVMIsPoison(constant)) return NULL;
  if (LLVMIsUndef(constant)) return LLVMConstNull(type);
  if (!LLVMIsAConstantArray(constant) && !LLVMIsAConstantStruct(constant)) return constant;
  unsigned count = (unsigned)LLVMGetNumOperands(constant);
  LLVMValueRef *parts = flyi_alloc(count, sizeof *parts), result = constant;
  bool changed = false;
  for (unsigned i = 0; parts && i < count && result; i++) {
    LLVMValueRef part = LLVMGetOperand(constant, i);
    parts[i] = defined(part);
    changed = changed || parts[i] != part;
    if (!parts[i]) result = NULL;
  }
  if (!parts)
    result = NULL;
  else if (result && changed && LLVMIsAConstantArray(constant))
    result = LLVMConstArray2(LLVMGetElementType(type), parts, count);
  else if (result && changed && LLVMGetStructName(type))
    result = LLVMConstNamedStruct(type, parts, count);
  else if (result && changed)
    result = LLVMConstStructInContext(LLVMGetTypeContext(type), parts, count, LLVMIsPackedStruct(type));
  free(parts);
  return result;
}

/* A declaration has no place of its own: that of its first use. */
static fly_status refuse_undefined(flyi_verifier *v, LLVMValueRef global) {
  LLVMUseRef use = LLVMGetFirstUse(global);
  LLVMValueRef user = use ? LLVMGetUser(use) : NULL;
  for (LLVMUseRef next = use; next; next = LLVMGetNextUse(next))
    user = LLVMGetUser(next); /* uses are listed backwards */
  return flyi_refuse(v, user && LLVMIsAInstruction(user) ? user : global,
                     "'%s' is declared but not defined here: a mask is one file", name_of(global));
}

static fly_status check_table(flyi_verifier *v, LLVMValueRef global, uint64_t *bytes) {
  const char *name = name_of(global);
  if (LLVMIsDeclaration(global)) return refuse_undefined(v, global);
  if (!LLVMIsGlobalConstant(global))
    return flyi_refuse(v, global,
                       "a mask cannot have variables that live on ('%s'): make it const, or a parameter by FLY_PARAM",
                       name);
  uint64_t size = flyi_type_bytes(v, LLVMGlobalGetValueType(global));
  *bytes = size > FLYI_MOST_TABLE_BYTES ? FLYI_MOST_TABLE_BYTES + 1 : *bytes + size;
  if (*bytes > FLYI_MOST_TABLE_BYTES)
    return flyi_refuse(v, global, "the constant tables take more than %d bytes; capture a buffer by FLY_BUFFER instead",
                       FLYI_MOST_TABLE_BYTES);
  LLVMValueRef value = defined(LLVMGetInitializer(global));
  if (!value) return flyi_refuse(v, global, "the value of '%s' is undefined", name);
  LLVMSetInitializer(global, value);
  return FLY_OK;
}

/* Whatever a global is, these it must not have. */
static fly_status check_attributes(flyi_verifier *v, LLVMValueRef global) {
  const char *name = name_of(global), *section = LLVMGetSection(global);
  if (flyi_starts(name, "fly.")) return flyi_refuse(v, global, "a mask cannot use names of Flymask's own ('%s')", name);
  if (LLVMIsThreadLocal(global))
    return flyi_refuse(v, global, "a mask cannot have thread-local variables ('%s')", name);
  if (section && *section && !flyi_starts(section, "fly.") && strcmp(section, "llvm.metadata"))
    return flyi_refuse(v, global, "a mask cannot put '%s' into a section ('%s')", name, section);
  if (LLVMGetPointerAddressSpace(LLVMTypeOf(global)))
    return flyi_refuse(v, global, "a mask cannot use address spaces ('%s')", name);
  return FLY_OK;
}

static fly_status check_llvm_global(flyi_verifier *v, LLVMValueRef global) {
  const char *name = name_of(global);
  if (!flyi_starts(name, "llvm.global_ctors") && !flyi_starts(name, "llvm.global_dtors"))
    return flyi_refuse(v, NULL, "a mask cannot have such an attribute (%s)", name);
  LLVMValueRef list = LLVMGetInitializer(global), entry = list ? LLVMGetAggregateElement(list, 0) : NULL;
  return flyi_refuse(v, entry ? LLVMGetAggregateElement(entry, 1) : NULL,
                     "a mask cannot have constructors or destructors");
}

static fly_status declare_globals(flyi_verifier *v) {
  uint64_t bytes = 0;
  fly_status status = FLY_OK;
  for (int round = 0; round < 3; round++) /* parameters and buffers, then dimensions, which need them, then tables */
    for (EACH_GLOBAL(global, v->module)) {
      const char *name = name_of(global);
      bool dimension = in_section(global, "fly.dim"), type = in_section(global, "fly.type");
      bool declaration = in_section(global, "fly.param") || in_section(global, "fly.buffer");
      if (flyi_starts(name, "llvm.used") || flyi_starts(name, "llvm.compiler.used")) continue;
      if (flyi_starts(name, "llvm.")) return check_llvm_global(v, global);
      if (round == 0) status = check_attributes(v, global);
      if (!status && round == 0 && (declaration || dimension) && LLVMIsDeclaration(global))
        status = check_table(v, global, &bytes);
      if (!status && ((round == 0 && declaration) || (round == 1 && dimension))) status = declare_one(v, global);
      if (!status && round == 2 && !declaration && !dimension) {
        if (!type && LLVMGetSection(global) && flyi_starts(LLVMGetSection(global), "fly."))
          status = flyi_refuse(v, global, "a mask cannot put '%s' into a section of Flymask's own", name);
        else
          status = check_table(v, global, &bytes);
      }
      if (status) return status;
    }
  return FLY_OK;
}

/* Copies the names, which the module will not keep, and orders the memory as flyi_declarations says. */
static bool keep_names(flyi_verifier *v) {
  flyi_declarations *d = v->declarations;
  size_t total = 0;
  for (int i = 0; i < v->global_count; i++) total += strlen(name_of(v->globals[i].value)) + 1;
  char *names = d->memory = flyi_alloc(total, 1);
  for (int i = 0; names && i < v->global_count; i++) {
    const flyi_global *g = &v->globals[i];
    if (g->kind == FLYI_DIMENSION) continue;
    if (g->kind == FLYI_PARAMETER)
      d->parameters[g->index].name = names;
    else
      d->buffers[g->index].name = names;
    names = stpcpy(names, name_of(g->value)) + 1;
  }
  return names != NULL;
}

fly_status flyi_declare(flyi_verifier *v) {
  size_t size;
  const char *assembly = LLVMGetModuleInlineAsm(v->module, &size);
  if (size && *assembly) return flyi_refuse(v, NULL, "a mask cannot have inline assembly");
  LLVMValueRef alias = LLVMGetFirstGlobalAlias(v->module), ifunc = LLVMGetFirstGlobalIFunc(v->module);
  if (alias) return flyi_refuse(v, LLVMAliasGetAliasee(alias), "a mask cannot have an alias ('%s')", name_of(alias));
  if (ifunc)
    return flyi_refuse(v, LLVMGetGlobalIFuncResolver(ifunc), "a mask cannot have an ifunc ('%s')", name_of(ifunc));

  int count = 0;
  for (EACH_GLOBAL(global, v->module)) count++;
  v->globals = flyi_alloc((size_t)count + 1, sizeof *v->globals);
  v->declarations->parameters = flyi_alloc(MOST_DECLARATIONS, sizeof *v->declarations->parameters);
  v->declarations->buffers = flyi_alloc(MOST_DECLARATIONS, sizeof *v->declarations->buffers);
  if (!v->globals || !v->declarations->parameters || !v->declarations->buffers) return flyi_no_memory(v->error);
  fly_status status = declare_globals(v);
  if (!status && !keep_names(v)) status = flyi_no_memory(v->error);
  return status;
}

const flyi_global *flyi_find_global(const flyi_verifier *v, LLVMValueRef value) {
  for (int i = 0; i < v->global_count; i++)
    if (v->globals[i].value == value) return &v->globals[i];
  return NULL;
}

void flyi_declarations_free(flyi_declarations *declarations) {
  free(declarations->parameters);
  free(declarations->buffers);
  free(declarations->memory);
  *declarations = (flyi_declarations){0};
}
