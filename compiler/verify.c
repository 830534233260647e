/* verify.c: from clang's IR to the symbolic form (compiler.h).
 *
 * Input: textual IR of a source that is not trusted. Output: a module whose one function can neither trap, nor hang,
 * nor read or write outside, whatever its arguments, parameters and buffers are; or a refusal with its place in the
 * source. The order of the steps matters: until the guards stand, nothing runs that draws conclusions from undefined
 * behaviour. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <llvm-c/Analysis.h>
#include <llvm-c/DebugInfo.h>
#include <llvm-c/Error.h>
#include <llvm-c/IRReader.h>
#include <llvm-c/Transforms/PassBuilder.h>

#include "watch.h"

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

/* An instruction that clang gave no place has that of its nearest predecessor in the block, or of its function. */
static LLVMValueRef placed(LLVMValueRef at) {
  while (at && LLVMIsAInstruction(at) && (int)LLVMGetDebugLocLine(at) <= 0) {
    LLVMValueRef before = LLVMGetPreviousInstruction(at);
    at = before ? before : LLVMGetBasicBlockParent(LLVMGetInstructionParent(at));
  }
  return at;
}

/* The texts are about masks: words that are not true of a modifier are replaced. */
static void say_modifier(char *message, size_t size) {
  static const char *const words[][2] = {{" mask ", " score modifier "}, {"true or false", "a score"}};
  char text[sizeof((fly_error *)0)->message];
  for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
    snprintf(text, sizeof text, "%s", message);
    const char *at = strstr(text, words[i][0]);
    if (at) snprintf(message, size, "%.*s%s%s", (int)(at - text), text, words[i][1], at + strlen(words[i][0]));
  }
}

fly_status flyi_refuse(const flyi_verifier *v, LLVMValueRef at, const char *format, ...) {
  char message[sizeof v->error->message], file[sizeof v->error->file];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  if (v->is_score) say_modifier(message, sizeof message);
  snprintf(file, sizeof file, "%s", v->name);
  int line = 0, column = 0;
  if ((at = placed(at))) {
    line = (int)LLVMGetDebugLocLine(at);
    if (line < 0) line = 0;
    if (LLVMIsAInstruction(at))
      column = (int)LLVMGetDebugLocColumn(at);
    else if (line)
      column = 1; /* debug information has no columns of globals and functions */
    unsigned size = 0;
    const char *found = LLVMGetDebugLocFilename(at, &size), *ours = "/flymask-include/";
    if (found && size > strlen(ours) && !strncmp(found, ours, strlen(ours)))
      snprintf(file, sizeof file, "%.*s", (int)(size - strlen(ours)), found + strlen(ours));
  }
  return flyi_fail_at(v->error, file, line, column, "%s", message);
}

void flyi_build_before(const flyi_verifier *v, LLVMValueRef instruction) {
  LLVMPositionBuilderBefore(v->builder, instruction);
  LLVMSetCurrentDebugLocation2(v->builder, LLVMInstructionGetDebugLoc(instruction));
}

void flyi_strip_metadata(const flyi_verifier *v, LLVMValueRef instruction) {
  size_t count;
  unsigned location = LLVMGetMDKindIDInContext(v->context, "dbg", 3);
  if (!LLVMHasMetadata(instruction)) return;
  LLVMValueMetadataEntry *entries = LLVMInstructionGetAllMetadataOtherThanDebugLoc(instruction, &count);
  for (size_t i = 0; i < count; i++) { /* which gives the location too, whatever its name says */
    unsigned kind = LLVMValueMetadataEntriesGetKind(entries, (unsigned)i);
    if (kind != location) LLVMSetMetadata(instruction, kind, NULL);
  }
  LLVMDisposeValueMetadataEntries(entries);
}

/* LLVM reports here; its own default would end the process. */
static void on_diagnostic(LLVMDiagnosticInfoRef info, void *unused) { (void)info, (void)unused; }

fly_status flyi_run_passes(const flyi_verifier *v, const char *passes) {
  LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
  LLVMErrorRef failed = LLVMRunPasses(v->module, passes, NULL, options);
  LLVMDisposePassBuilderOptions(options);
  if (!failed) return FLY_OK;
  char *text = LLVMGetErrorMessage(failed);
  fly_status status = flyi_fail(v->error, FLY_ERROR_INTERNAL, "LLVM cannot run %s: %s", passes, text);
  LLVMDisposeErrorMessage(text);
  return status;
}

/* ---- Types and constants ----------------------------------------------------------------------------------------- */

LLVMTypeRef flyi_int_type(const flyi_verifier *v, unsigned bits) { return LLVMIntTypeInContext(v->context, bits); }

bool flyi_is_int(LLVMTypeRef type, unsigned bits) {
  return LLVMGetTypeKind(type) == LLVMIntegerTypeKind && LLVMGetIntTypeWidth(type) == bits;
}

bool flyi_is_scalar(LLVMTypeRef type) {
  switch (LLVMGetTypeKind(type)) {
  case LLVMFloatTypeKind:
  case LLVMDoubleTypeKind:
    return true;
  case LLVMIntegerTypeKind: {
    unsigned bits = LLVMGetIntTypeWidth(type);
    return bits == 1 || bits == 8 || bits == 16 || bits == 32 || bits == 64;
  }
  default:
    return false;
  }
}

/* LLVM's own function wraps around for types like int[1 << 62]. */
uint64_t flyi_type_bytes(const flyi_verifier *v, LLVMTypeRef type) {
  const uint64_t most = UINT64_MAX / 2;
  uint64_t sum = 0;
  switch (LLVMGetTypeKind(type)) {
  case LLVMArrayTypeKind: {
    uint64_t element = flyi_type_bytes(v, LLVMGetElementType(type)), count = LLVMGetArrayLength2(type);
    return element && count > most / element ? most : element * count;
  }
  case LLVMStructTypeKind:
    for (unsigned i = 0; i < LLVMCountStructElementTypes(type); i++) {
      uint64_t bytes = flyi_type_bytes(v, LLVMStructGetTypeAtIndex(type, i));
      if (bytes >= most - sum) return most;
      sum += bytes;
    }
    return LLVMABISizeOfType(v->layout, type);
  default:
    return LLVMABISizeOfType(v->layout, type);
  }
}

bool flyi_is_gep(LLVMValueRef value) {
  return LLVMIsAGetElementPtrInst(value) ||
         (LLVMIsAConstantExpr(value) && LLVMGetConstOpcode(value) == LLVMGetElementPtr);
}

bool flyi_constant_int(LLVMValueRef value, int64_t *out) {
  if (!LLVMIsAConstantInt(value) || LLVMGetIntTypeWidth(LLVMTypeOf(value)) > 64) return false;
  *out = LLVMConstIntGetSExtValue(value);
  return true;
}

bool flyi_starts(const char *text, const char *prefix) { return !strncmp(text, prefix, strlen(prefix)); }

const char *flyi_intrinsic(LLVMValueRef instruction) {
  LLVMValueRef callee = LLVMIsACallInst(instruction) ? LLVMGetCalledValue(instruction) : NULL;
  size_t size;
  return callee && LLVMIsAFunction(callee) && LLVMGetIntrinsicID(callee) ? LLVMGetValueName2(callee, &size) : "";
}

LLVMValueRef flyi_call_intrinsic(const flyi_verifier *v, const char *name, LLVMTypeRef *types, int type_count,
                                 LLVMValueRef *arguments, int count) {
  unsigned id = LLVMLookupIntrinsicID(name, strlen(name));
  LLVMValueRef function = LLVMGetIntrinsicDeclaration(v->module, id, types, (size_t)type_count);
  LLVMTypeRef type = LLVMIntrinsicGetType(v->context, id, types, (size_t)type_count);
  return LLVMBuildCall2(v->builder, type, function, arguments, (unsigned)count, "");
}

/* ---- The stage --------------------------------------------------------------------------------------------------- */

static fly_status parse(flyi_verifier *v, const char *text, size_t size, LLVMModuleRef *out) {
  char *message = NULL;
  LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(text, size, v->name);
  bool failed = LLVMParseIRInContext(v->context, buffer, out, &message); /* takes the buffer */
  fly_status status = failed ? flyi_fail(v->error, FLY_ERROR_TOOL, "LLVM %d cannot read what clang wrote: %s",
                                         FLYI_LLVM_MAJOR, message)
                             : FLY_OK;
  if (failed) *out = NULL;
  LLVMDisposeMessage(message);
  return status;
}

/* LLVM reads nested types by recursion: what is too deep for a thread with a small stack is refused before. Anything
 * nested in the source is nested in the IR's text, by brackets or by names of structs. */
static fly_status check_nesting(flyi_verifier *v, const char *text) {
  int depth = 0, structs = 0;
  for (const char *c = text; *c; c++) {
    if (*c == '"')
      c += 1 + strcspn(c + 1, "\""); /* quotes within are written \22 */
    else if (*c == ';')
      c += strcspn(c, "\n");
    if (!*c) break;
    if (strchr("[{(<", *c))
      depth++;
    else if (strchr("]})>", *c))
      depth--;
    else if (*c == '\n' && c[1] == '%')
      structs++;
    else if (*c == '\n')
      depth = 0;
    if (depth > FLYI_MOST_NESTING)
      return flyi_refuse(v, NULL, "a mask cannot have arrays, structs or initializers nested more than %d deep",
                         FLYI_MOST_NESTING);
    if (structs > FLYI_MOST_STRUCTS)
      return flyi_refuse(v, NULL, "a mask cannot have more than %d struct types", FLYI_MOST_STRUCTS);
  }
  return FLY_OK;
}

/* Where a module with debug information is broken, LLVM's parser ends the process. Clang's own IR is sound, but an asm
 * label can name a function or variable after one of LLVM's, with another type. So the IR is parsed first as one whose
 * debug information is of another version, which LLVM drops without a check, and checked here. */
static fly_status check_ir(flyi_verifier *v, flyi_section ir) {
  static const char flag[] = "!\"Debug Info Version\", i32 3";
  LLVMModuleRef module = NULL;
  char *text = flyi_alloc(ir.size + 1, 1), *message = NULL;
  if (!text) return flyi_no_memory(v->error);
  memcpy(text, ir.data, ir.size);
  char *found = strstr(text, flag);
  fly_status status = check_nesting(v, text);
  if (!status && !found) status = flyi_fail(v->error, FLY_ERROR_TOOL, "clang wrote no debug information");
  if (found) found[sizeof flag - 2] = '0';
  if (!status) status = parse(v, text, ir.size, &module);
  if (!status && LLVMVerifyModule(module, LLVMReturnStatusAction, &message))
    status = flyi_refuse(v, NULL, "a mask cannot declare functions or variables of LLVM's own: %.*s",
                         (int)strcspn(message, "\n"), message);
  LLVMDisposeMessage(message);
  if (module) LLVMDisposeModule(module);
  free(text);
  return status;
}

static fly_status find_score(flyi_verifier *v) {
  LLVMTypeRef i32 = flyi_int_type(v, 32), real = LLVMFloatTypeInContext(v->context);
  LLVMTypeRef wanted = LLVMFunctionType(real, (LLVMTypeRef[]){real, i32, i32, i32, i32}, 5, false);
  v->mask = LLVMGetNamedFunction(v->module, "score");
  if (!v->mask || LLVMIsDeclaration(v->mask))
    return flyi_refuse(
        v, NULL, "the source defines no function float score(float s, int b, int h, int q, int kv), or a static one");
  if (LLVMGlobalGetValueType(v->mask) != wanted)
    return flyi_refuse(v, v->mask,
                       "score is declared differently: it must be float score(float s, int b, int h, int q, int kv)");
  return FLY_OK;
}

static fly_status find_mask(flyi_verifier *v) {
  if (v->is_score) return find_score(v);
  LLVMTypeRef i32 = flyi_int_type(v, 32),
              wanted = LLVMFunctionType(flyi_int_type(v, 1), (LLVMTypeRef[]){i32, i32, i32, i32}, 4, false);
  v->mask = LLVMGetNamedFunction(v->module, "mask");
  if (!v->mask || LLVMIsDeclaration(v->mask))
    return flyi_refuse(v, NULL,
                       "the source defines no function bool mask(int b, int h, int q, int kv), or a static one");
  if (LLVMGlobalGetValueType(v->mask) != wanted)
    return flyi_refuse(v, v->mask, "mask is declared differently: it must be bool mask(int b, int h, int q, int kv)");
  return FLY_OK;
}

static fly_status check_module(flyi_verifier *v) {
  char *text = NULL;
  bool broken = LLVMVerifyModule(v->module, LLVMReturnStatusAction, &text);
  fly_status status = broken ? flyi_fail(v->error, FLY_ERROR_INTERNAL, "the verified mask of %s is broken IR: %s",
                                         v->name, text)
                             : FLY_OK;
  LLVMDisposeMessage(text);
  return status;
}

static fly_status verify(flyi_verifier *v, flyi_section ir, LLVMModuleRef *out) {
  LLVMContextRef context = v->context;
  flyi_declarations *declarations = v->declarations;
  fly_error own;
  if (!v->error) v->error = &own;
  *out = NULL;
  *declarations = (flyi_declarations){0};
  LLVMDiagnosticHandler handler = LLVMContextGetDiagnosticHandler(context);
  void *handler_data = LLVMContextGetDiagnosticContext(context);
  LLVMContextSetDiagnosticHandler(context, on_diagnostic, NULL);

  fly_status status = check_ir(v, ir);
  if (!status) status = parse(v, ir.data, ir.size, &v->module);
  if (status) goto done;
  v->layout = LLVMGetModuleDataLayout(v->module);
  v->builder = LLVMCreateBuilderInContext(context);
  status = flyi_declare(v);
  if (!status) status = find_mask(v);
  if (!status) status = flyi_refuse_functions(v);
  if (!status) status = flyi_flatten(v);
  if (!status) status = flyi_resolve_addresses(v);
  if (!status) status = flyi_bound_loops(v);
  if (!status) status = flyi_finish(v);
  if (!status) status = check_module(v);

done:
  free(v->globals);
  if (v->builder) LLVMDisposeBuilder(v->builder);
  if (status && v->module) LLVMDisposeModule(v->module);
  if (status)
    flyi_declarations_free(declarations);
  else
    *out = v->module;
  LLVMContextSetDiagnosticHandler(context, handler, handler_data);
  return status;
}

fly_status flyi_verify(LLVMContextRef context, flyi_section ir, const char *name, LLVMModuleRef *out,
                       flyi_declarations *declarations, fly_error *error) {
  return flyi_verify_watched(context, ir, name, false, out, declarations, NULL, error);
}

fly_status flyi_verify_score(LLVMContextRef context, flyi_section ir, const char *name, LLVMModuleRef *out,
                             flyi_declarations *declarations, fly_error *error) {
  return flyi_verify_watched(context, ir, name, true, out, declarations, NULL, error);
}

fly_status flyi_verify_watched(LLVMContextRef context, flyi_section ir, const char *name, bool is_score,
                               LLVMModuleRef *out, flyi_declarations *declarations, flyi_watch *watch,
                               fly_error *error) {
  flyi_verifier v = {.context = context,
                     .name = name,
                     .is_score = is_score,
                     .declarations = declarations,
                     .watch = watch,
                     .error = error};
  return verify(&v, ir, out);
}
