/* combine.c: and, or, not of masks. Input: masks with their verified IR. Output: a mask that is compiled like any
 * other.
 *
 * The parts' symbolic modules are linked under one function that calls both and joins the answers; inlined, that is
 * a symbolic module again. Both parts are always evaluated: they are total, and a join without a branch stays a
 * vector. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <llvm-c/BitReader.h>
#include <llvm-c/Linker.h>
#include <llvm-c/Transforms/PassBuilder.h>

#include "compiler.h"

enum { LEFT, RIGHT };
enum { MAX_NAME = 1000, MARK = '?' }; /* an image takes a little more */

/* A parameter or buffer of the combined mask. */
typedef struct entry {
  const char *old;
  char *name;
  int side;
  bool suffixed;
} entry;

typedef struct combination {
  const fly_mask *sides[2];
  int side_count;
  entry *entries; /* left's parameters, left's buffers, right's parameters, right's buffers */
  int count;
  char *names; /* memory of the new names */
} combination;

static const char *const suffixes[2] = {".left", ".right"};
static const char *const functions[2] = {"fly.left", "fly.right"};

/* ---- names ------------------------------------------------------------------------------------------------------- */

static void write_name(entry *e) {
  snprintf(e->name, MAX_NAME + 8, "%s%s", e->old, e->suffixed ? suffixes[e->side] : "");
}

/* Gives both of two names that clash their suffix, until none do. A suffixed name may meet one that an earlier
 * combination made; then that gets its suffix too. It ends: with every name suffixed, the sides differ in their last
 * letters. */
static void settle_names(combination *c) {
  for (bool changed = true; changed;) {
    changed = false;
    for (int i = 0; i < c->count; i++) {
      for (int j = 0; j < i; j++) {
        entry *a = &c->entries[i], *b = &c->entries[j];
        if (strcmp(a->name, b->name) != 0) continue;
        a->suffixed = b->suffixed = changed = true;
        write_name(a), write_name(b);
      }
    }
  }
}

static fly_status check_counts(const combination *c, fly_error *error) {
  int parameters = 0, buffers = 0;
  for (int s = 0; s < c->side_count; s++) {
    parameters += c->sides[s]->image.parameter_count;
    buffers += c->sides[s]->image.buffer_count;
  }
  if (parameters > FLYI_MAX_PARAMETERS)
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED, "the masks have %d parameters together: an image holds %d",
                     parameters, FLYI_MAX_PARAMETERS);
  if (buffers > FLYI_MAX_BUFFERS)
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED, "the masks have %d buffers together: an image holds %d", buffers,
                     FLYI_MAX_BUFFERS);
  return FLY_OK;
}

static fly_status name_entries(combination *c, fly_error *error) {
  for (int s = 0; s < c->side_count; s++)
    c->count += c->sides[s]->image.parameter_count + c->sides[s]->image.buffer_count;
  c->entries = flyi_alloc((size_t)c->count, sizeof *c->entries);
  c->names = flyi_alloc((size_t)c->count, MAX_NAME + 8);
  if (!c->entries || !c->names) return flyi_no_memory(error);
  int n = 0;
  for (int s = 0; s < c->side_count; s++) {
    const flyi_image *image = &c->sides[s]->image;
    for (int i = 0; i < image->parameter_count + image->buffer_count; i++, n++) {
      bool parameter = i < image->parameter_count;
      const char *old = parameter ? image->parameters[i].name : image->buffers[i - image->parameter_count].name;
      if (strlen(old) >= MAX_NAME)
        return flyi_fail(error, FLY_ERROR_UNSUPPORTED, "masks combined so often that their names are too long: %.60s",
                         old);
      c->entries[n] = (entry){.old = old, .name = c->names + (size_t)n * (MAX_NAME + 8), .side = s};
      write_name(&c->entries[n]);
    }
  }
  settle_names(c);
  return FLY_OK;
}

/* The combined mask's declarations: parameters of both sides, then buffers of both sides. Names stay the
 * combination's. */
static fly_status declare(const combination *c, flyi_declarations *out, fly_error *error) {
  int parameters = 0, buffers = 0, n = 0;
  for (int s = 0; s < c->side_count; s++) {
    parameters += c->sides[s]->image.parameter_count;
    buffers += c->sides[s]->image.buffer_count;
  }
  out->parameters = flyi_alloc((size_t)parameters, sizeof *out->parameters);
  out->buffers = flyi_alloc((size_t)buffers, sizeof *out->buffers);
  if (!out->parameters || !out->buffers) return flyi_no_memory(error);
  for (int s = 0; s < c->side_count; s++) {
    const flyi_image *image = &c->sides[s]->image;
    for (int i = 0; i < image->parameter_count; i++, n++) {
      out->parameters[out->parameter_count] = image->parameters[i];
      out->parameters[out->parameter_count++].name = c->entries[n].name;
    }
    for (int i = 0; i < image->buffer_count; i++, n++) {
      out->buffers[out->buffer_count] = image->buffers[i];
      out->buffers[out->buffer_count++].name = c->entries[n].name;
    }
  }
  return FLY_OK;
}

/* ---- modules ----------------------------------------------------------------------------------------------------- */

static fly_status parse_side(LLVMContextRef context, const fly_mask *mask, LLVMModuleRef *out, fly_error *error) {
  flyi_section ir = mask->image.ir;
  *out = NULL;
  if (ir.size == 0)
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED,
                     "%s comes from an image without IR, and cannot be combined: compile it", mask->image.name);
  LLVMMemoryBufferRef buffer = LLVMCreateMemoryBufferWithMemoryRangeCopy(ir.data, ir.size, "ir");
  bool failed = LLVMParseBitcodeInContext2(context, buffer, out);
  LLVMDisposeMemoryBuffer(buffer);
  if (!failed) return FLY_OK;
  *out = NULL;
  return flyi_fail(error, FLY_ERROR_UNSUPPORTED, "the IR of %s cannot be read by this LLVM: compile it again",
                   mask->image.name);
}

/* `text` with `old` behind `prefix` replaced, for the globals fly.KIND.NAME and fly.dim.NAME.K. */
static bool renamed(const char *text, const char *prefix, const entry *e, char *out, size_t size) {
  size_t start = strlen(prefix), length = strlen(e->old);
  if (strncmp(text, prefix, start) != 0 || strncmp(text + start, e->old, length) != 0) return false;
  const char *rest = text + start + length;
  bool dim = strcmp(prefix, "fly.dim.") == 0;
  if (dim ? !(rest[0] == '.' && rest[1] >= '0' && rest[1] <= '3' && rest[2] == 0) : *rest != 0) return false;
  snprintf(out, size, "%s%s%s", prefix, e->name, rest);
  return true;
}

/* A name of `side` that gets its suffix: with a mark before it, because it may still be another global's. */
static void rename_global(const combination *c, int side, LLVMValueRef global) {
  static const char *const prefixes[] = {"fly.param.", "fly.data.", "fly.count.", "fly.dim."};
  char name[MAX_NAME + 32] = {MARK};
  size_t length;
  const char *old = LLVMGetValueName2(global, &length);
  for (int i = 0; i < c->count; i++) {
    if (c->entries[i].side != side || !c->entries[i].suffixed) continue;
    for (size_t p = 0; p < sizeof prefixes / sizeof *prefixes; p++) {
      if (!renamed(old, prefixes[p], &c->entries[i], name + 1, sizeof name - 1)) continue;
      LLVMSetValueName2(global, name, strlen(name));
      return;
    }
  }
}

static void rename_side(const combination *c, int side, LLVMModuleRef module) {
  char name[MAX_NAME + 32];
  size_t length;
  LLVMValueRef mask = LLVMGetNamedFunction(module, "mask");
  unsigned always = LLVMGetEnumAttributeKindForName("alwaysinline", 12);
  if (mask) {
    LLVMSetValueName2(mask, functions[side], strlen(functions[side]));
    LLVMAddAttributeAtIndex(mask, LLVMAttributeFunctionIndex,
                            LLVMCreateEnumAttribute(LLVMGetModuleContext(module), always, 0));
  }
  for (LLVMValueRef global = LLVMGetFirstGlobal(module); global; global = LLVMGetNextGlobal(global))
    rename_global(c, side, global);
  for (LLVMValueRef global = LLVMGetFirstGlobal(module); global; global = LLVMGetNextGlobal(global)) {
    const char *marked = LLVMGetValueName2(global, &length);
    if (length == 0 || marked[0] != MARK) continue;
    snprintf(name, sizeof name, "%s", marked + 1);
    LLVMSetValueName2(global, name, strlen(name));
  }
}

static LLVMValueRef call_side(LLVMModuleRef module, LLVMBuilderRef builder, LLVMValueRef mask, int side) {
  LLVMValueRef callee = LLVMGetNamedFunction(module, functions[side]), arguments[4];
  for (unsigned i = 0; i < 4; i++) arguments[i] = LLVMGetParam(mask, i);
  return LLVMBuildCall2(builder, LLVMGlobalGetValueType(callee), callee, arguments, 4, "");
}

/* Adds i1 @mask(i32, i32, i32, i32) that calls the sides. */
static void add_mask(LLVMModuleRef module, fly_combine how) {
  LLVMContextRef context = LLVMGetModuleContext(module);
  LLVMTypeRef i32 = LLVMInt32TypeInContext(context), truth = LLVMInt1TypeInContext(context);
  LLVMTypeRef type = LLVMFunctionType(truth, (LLVMTypeRef[]){i32, i32, i32, i32}, 4, false);
  LLVMValueRef mask = LLVMAddFunction(module, "mask", type);
  LLVMBuilderRef builder = LLVMCreateBuilderInContext(context);
  LLVMPositionBuilderAtEnd(builder, LLVMAppendBasicBlockInContext(context, mask, ""));
  LLVMValueRef answer = call_side(module, builder, mask, LEFT);
  if (how == FLY_NOT)
    answer = LLVMBuildNot(builder, answer, "");
  else if (how == FLY_AND)
    answer = LLVMBuildAnd(builder, answer, call_side(module, builder, mask, RIGHT), "");
  else
    answer = LLVMBuildOr(builder, answer, call_side(module, builder, mask, RIGHT), "");
  LLVMBuildRet(builder, answer);
  LLVMDisposeBuilder(builder);
}

/* Inlines the sides into @mask, so that it is the only definition. */
static fly_status make_symbolic(LLVMModuleRef module, fly_error *error) {
  for (int side = 0; side < 2; side++) {
    LLVMValueRef function = LLVMGetNamedFunction(module, functions[side]);
    if (function) LLVMSetLinkage(function, LLVMInternalLinkage);
  }
  LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
  LLVMErrorRef failed = LLVMRunPasses(module, "always-inline,globaldce", NULL, options);
  LLVMDisposePassBuilderOptions(options);
  if (!failed) return FLY_OK;
  LLVMConsumeError(failed);
  return flyi_fail(error, FLY_ERROR_INTERNAL, "the masks cannot be inlined into one");
}

static fly_status link_sides(LLVMContextRef context, const combination *c, fly_combine how, LLVMModuleRef *out,
                             fly_error *error) {
  LLVMModuleRef sides[2] = {0};
  fly_status status = FLY_OK;
  for (int s = 0; s < c->side_count; s++) {
    if ((status = parse_side(context, c->sides[s], &sides[s], error))) goto done;
    rename_side(c, s, sides[s]);
    if (!LLVMGetNamedFunction(sides[s], functions[s])) {
      status = flyi_fail(error, FLY_ERROR_IMAGE, "the IR of %s has no mask", c->sides[s]->image.name);
      goto done;
    }
  }
  if (sides[RIGHT]) {
    bool failed = LLVMLinkModules2(sides[LEFT], sides[RIGHT]); /* consumes the right one */
    sides[RIGHT] = NULL;
    if (failed) {
      status = flyi_fail(error, FLY_ERROR_INTERNAL, "the masks cannot be linked");
      goto done;
    }
  }
  add_mask(sides[LEFT], how);
  if ((status = make_symbolic(sides[LEFT], error))) goto done;
  *out = sides[LEFT];
  sides[LEFT] = NULL;
done:
  for (int s = 0; s < 2; s++)
    if (sides[s]) LLVMDisposeModule(sides[s]);
  return status;
}

/* ---- the whole --------------------------------------------------------------------------------------------------- */

static void name_mask(const combination *c, fly_combine how, char *name, size_t size) {
  const char *left = c->sides[LEFT]->image.name;
  int length = how == FLY_NOT ? snprintf(name, size, "(not %s)", left)
                              : snprintf(name, size, "(%s %s %s)", left, how == FLY_AND ? "and" : "or",
                                         c->sides[RIGHT]->image.name);
  if (length >= (int)size) memcpy(name + size - 4, "...", 4);
}

static fly_status check_sides(fly_combine how, const fly_mask *left, const fly_mask *right, fly_error *error) {
  if (how != FLY_AND && how != FLY_OR && how != FLY_NOT)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "how is %d: it must be FLY_AND, FLY_OR or FLY_NOT", (int)how);
  if (!left) return flyi_fail(error, FLY_ERROR_ARGUMENT, "left is NULL");
  if (how == FLY_NOT && right)
    return flyi_fail(error, FLY_ERROR_ARGUMENT, "FLY_NOT takes one mask: right must be NULL");
  if (how != FLY_NOT && !right) return flyi_fail(error, FLY_ERROR_ARGUMENT, "right is NULL");
  return FLY_OK;
}

fly_status fly_mask_combine(fly_combine how, const fly_mask *left, const fly_mask *right,
                            const fly_compile_options *options, fly_mask **out, fly_error *error) {
  char name[2048];
  if (!out) return flyi_fail(error, FLY_ERROR_ARGUMENT, "out is NULL");
  *out = NULL;
  fly_status status = check_sides(how, left, right, error);
  if (status) return status;
  combination c = {.sides = {left, right}, .side_count = right ? 2 : 1};
  flyi_request request = {.name = name};
  flyi_declarations declarations = {0};
  LLVMContextRef context = NULL;
  LLVMModuleRef module = NULL;
  struct {
    uint64_t how, unused;
    flyi_hash left, right;
  } meaning = {how, 0, left->image.identity, right ? right->image.identity : (flyi_hash){0}};
  name_mask(&c, how, name, sizeof name);
  request.base = flyi_hash_bytes(&meaning, sizeof meaning);
  if ((status = flyi_request_check(options, &request, error))) goto done;
  flyi_request_cached(&request, out);
  if (*out) goto done;
  context = flyi_context_create();
  if ((status = check_counts(&c, error)) || (status = name_entries(&c, error)) ||
      (status = declare(&c, &declarations, error)) || (status = link_sides(context, &c, how, &module, error)))
    goto done;
  status = flyi_request_finish(&request, module, &declarations, out, error); /* consumes the module */
done:
  free(declarations.parameters), free(declarations.buffers);
  free(c.entries), free(c.names);
  if (context) LLVMContextDispose(context);
  return status;
}
