/* address.c: every access to memory stays inside its object.
 *
 * Input: the flattened mask. Output: the same, each load, store, copy and fill with an address that is rebuilt as an
 * object and one index of 64 bits, clamped to the object; without pointers that are stored, compared or merged.
 * Structs and arrays whose addresses have become constants go to registers (SROA), which may show what further
 * pointers point into: hence rounds. */
#include <stdlib.h>
#include <string.h>

#include "pointer.h"
#include "watch.h"

enum { MOST_ROUNDS = 4 };

typedef struct access_pass {
  flyi_verifier *v;
  flyi_indices indices;
  unsigned done_kind; /* metadata that marks finished accesses */
  LLVMValueRef done;
  bool last;    /* the last round: what is still unknown is refused */
  bool unknown; /* some access is left for the next round */
} access_pass;

static const char *name_of(LLVMValueRef value) {
  size_t size;
  return LLVMGetValueName2(value, &size);
}

/* ---- Objects ----------------------------------------------------------------------------------------------------- */

/* What an access touches. */
typedef struct target {
  LLVMValueRef base;         /* an alloca or a global */
  const flyi_global *global; /* where the source declared it; NULL for locals and tables */
  uint64_t bytes;            /* of a local or table */
} target;

static target target_of(const flyi_verifier *v, LLVMValueRef base) {
  bool local = LLVMIsAAllocaInst(base) != NULL;
  return (target){base, local ? NULL : flyi_find_global(v, base),
                  flyi_type_bytes(v, local ? LLVMGetAllocatedType(base) : LLVMGlobalGetValueType(base))};
}

/* Finds what a pointer points into. *unknown: not yet clear. */
static fly_status find_target(access_pass *pass, LLVMValueRef pointer, LLVMValueRef at, target *out, bool *unknown) {
  LLVMValueRef base;
  flyi_base_kind kind = flyi_pointer_base(pass->v, pointer, &base);
  *unknown = kind == FLYI_BASE_LOADED && !pass->last;
  if (*unknown) {
    pass->unknown = true;
    return FLY_OK;
  }
  if (kind == FLYI_BASE_NULL) return flyi_refuse(pass->v, at, "the pointer may be null: let it point into an array");
  if (kind != FLYI_BASE_FOUND)
    return flyi_refuse(pass->v, at,
                       "the pointer may point into different objects: choose between values, not pointers");
  *out = target_of(pass->v, base);
  return FLY_OK;
}

/* ---- Clamped addresses ------------------------------------------------------------------------------------------- */

static LLVMValueRef i64_of(const flyi_verifier *v, int64_t value) {
  return LLVMConstInt(flyi_int_type(v, 64), (uint64_t)value, true);
}

/* max(min(index, last), 0), in this order: index 0 where last is -1. */
static LLVMValueRef clamp(flyi_verifier *v, LLVMValueRef index, LLVMValueRef last) {
  LLVMTypeRef i64 = flyi_int_type(v, 64);
  int64_t i, end;
  bool constant_index = flyi_constant_int(index, &i), constant_end = flyi_constant_int(last, &end);
  if (constant_index && i <= 0) return i64_of(v, 0);
  if (constant_end && end <= 0) return i64_of(v, 0);
  if (constant_index && constant_end) return i < end ? index : last;
  LLVMValueRef low = flyi_call_intrinsic(v, "llvm.smin", &i64, 1, (LLVMValueRef[]){index, last}, 2);
  return flyi_call_intrinsic(v, "llvm.smax", &i64, 1, (LLVMValueRef[]){low, i64_of(v, 0)}, 2);
}

static void mark_done(access_pass *pass, LLVMValueRef access) { LLVMSetMetadata(access, pass->done_kind, pass->done); }

static LLVMValueRef load_symbol(access_pass *pass, const char *prefix, const flyi_global *global, LLVMTypeRef type) {
  LLVMValueRef load = LLVMBuildLoad2(pass->v->builder, type, flyi_symbol(pass->v, prefix, global, type), "");
  mark_done(pass, load);
  return load;
}

/* An element of a buffer. The data's base is loaded where it is needed: later passes share it. */
static fly_status buffer_address(access_pass *pass, LLVMValueRef at, const target *object, const flyi_address *address,
                                 LLVMTypeRef type, LLVMValueRef *out) {
  flyi_verifier *v = pass->v;
  const flyi_global *global = object->global;
  LLVMTypeRef i64 = flyi_int_type(v, 64), pointer = LLVMPointerTypeInContext(v->context, 0);
  int64_t size = (int64_t)flyi_type_bytes(v, global->type);
  if (type != global->type || address->offset % size || address->unit % size)
    return flyi_refuse(v, at, "a mask cannot read buffer '%s' as something else than its %s elements",
                       name_of(object->base), fly_type_name(v->declarations->buffers[global->index].type));
  flyi_build_before(v, at);
  LLVMValueRef index = flyi_address_index(v, address, size, 0);
  int64_t constant;
  if (v->watch) {
    LLVMValueRef count = load_symbol(pass, "fly.count", global, i64);
    fly_status status = flyi_watch_index(v, at, name_of(object->base), index, count);
    if (status) return status;
  }
  if (!flyi_constant_int(index, &constant) || constant > 0) {
    LLVMValueRef count = load_symbol(pass, "fly.count", global, i64);
    index = clamp(v, index, LLVMBuildSub(v->builder, count, i64_of(v, 1), ""));
  } else {
    index = i64_of(v, 0);
  }
  LLVMValueRef data = load_symbol(pass, "fly.data", global, pointer);
  *out = LLVMBuildGEP2(v->builder, type, data, &index, 1, "");
  return FLY_OK;
}

/* For messages: clang puts the function before the name of a table in it, and does not name locals. */
static const char *array_name(LLVMValueRef base) {
  const char *name = name_of(base), *dot = strrchr(name, '.');
  return dot ? dot + 1 : *name ? name : "an array";
}

/* `bytes` bytes of a local or table. The object is seen as rows of address->unit bytes, of which the access takes a
 * part that begins at `rest`; the row is clamped. So the last element of an array is the last one also where elements
 * are structs. */
static fly_status object_address(access_pass *pass, LLVMValueRef at, const target *object, const flyi_address *address,
                                 LLVMTypeRef type, uint64_t bytes, LLVMValueRef *out, unsigned *align) {
  flyi_verifier *v = pass->v;
  int64_t unit = address->unit ? address->unit : bytes ? (int64_t)bytes : 1, offset;
  int64_t rest = address->offset % unit < 0 ? address->offset % unit + unit : address->offset % unit;
  if (bytes > object->bytes || (uint64_t)rest > object->bytes - bytes)
    return flyi_refuse(v, at, "a mask cannot access %llu bytes of an object of %llu", (unsigned long long)bytes,
                       (unsigned long long)object->bytes);
  flyi_build_before(v, at);
  LLVMValueRef row = flyi_address_index(v, address, unit, rest);
  int64_t last = (int64_t)((object->bytes - bytes - (uint64_t)rest) / (uint64_t)unit);
  fly_status status = v->watch ? flyi_watch_index(v, at, array_name(object->base), row, i64_of(v, last + 1)) : FLY_OK;
  if (status) return status;
  row = clamp(v, row, i64_of(v, last));
  LLVMTypeRef i8 = flyi_int_type(v, 8), unit_type = LLVMArrayType2(i8, (uint64_t)unit);
  int64_t size = (int64_t)bytes, step = unit | rest;
  if (flyi_constant_int(row, &offset)) {
    offset = offset * unit + rest;
    *out = offset ? LLVMBuildGEP2(v->builder, i8, object->base, (LLVMValueRef[]){i64_of(v, offset)}, 1, "")
                  : object->base;
    step = offset;
  } else if (type && flyi_is_scalar(type) && unit % size == 0 && rest % size == 0) {
    if (unit != size) row = LLVMBuildMul(v->builder, row, i64_of(v, unit / size), "");
    if (rest) row = LLVMBuildAdd(v->builder, row, i64_of(v, rest / size), "");
    *out = LLVMBuildGEP2(v->builder, type, object->base, &row, 1, "");
  } else {
    *out = LLVMBuildGEP2(v->builder, unit_type, object->base, &row, 1, "");
    if (rest) *out = LLVMBuildGEP2(v->builder, i8, *out, (LLVMValueRef[]){i64_of(v, rest)}, 1, "");
  }
  unsigned most = LLVMGetAlignment(object->base), lowest = (unsigned)(step & -step & 0x7fffffff);
  *align = !most ? 1 : !lowest || lowest > most ? most : lowest;
  return FLY_OK;
}

/* ---- Accesses ---------------------------------------------------------------------------------------------------- */

static fly_status refuse_store(access_pass *pass, LLVMValueRef at, const target *object) {
  const char *what = !object->global                          ? "the constant"
                     : object->global->kind == FLYI_PARAMETER ? "parameter"
                     : object->global->kind == FLYI_BUFFER    ? "buffer"
                                                              : "the dimension";
  return flyi_refuse(pass->v, at, "a mask cannot write to %s '%s', only to its own locals", what,
                     name_of(object->base));
}

/* The new pointer of an access of `bytes` bytes, as `type` (NULL: a copy or fill). *out NULL: not yet clear. */
static fly_status resolve(access_pass *pass, LLVMValueRef at, LLVMValueRef pointer, LLVMTypeRef type, uint64_t bytes,
                          bool write, LLVMValueRef *out, unsigned *align) {
  flyi_verifier *v = pass->v;
  target object = {0};
  flyi_address address;
  bool unknown;
  *out = NULL;
  fly_status status = find_target(pass, pointer, at, &object, &unknown);
  if (status || unknown) return status;
  if (write && !LLVMIsAAllocaInst(object.base)) return refuse_store(pass, at, &object);
  if ((status = flyi_pointer_address(v, &pass->indices, pointer, &address))) return status;
  if (!object.global) return object_address(pass, at, &object, &address, type, bytes, out, align);
  *align = (unsigned)flyi_type_bytes(v, object.global->type);
  if (object.global->kind == FLYI_BUFFER && pointer != object.base)
    return buffer_address(pass, at, &object, &address, type, out);
  if (type != object.global->type || address.offset || address.term_count)
    return flyi_refuse(v, at, "a mask cannot read '%s' as something else than it is", name_of(object.base));
  *out = object.base;
  return FLY_OK;
}

/* True for the load of a buffer's own pointer, which becomes a base and then vanishes. */
static bool is_buffer_pointer(const flyi_verifier *v, LLVMValueRef load) {
  const flyi_global *global = LLVMIsALoadInst(load) ? flyi_find_global(v, LLVMGetOperand(load, 0)) : NULL;
  return global && global->kind == FLYI_BUFFER;
}

static fly_status rewrite_access(access_pass *pass, LLVMValueRef access) {
  flyi_verifier *v = pass->v;
  bool write = LLVMIsAStoreInst(access) != NULL;
  LLVMTypeRef type = LLVMTypeOf(write ? LLVMGetOperand(access, 0) : access);
  LLVMValueRef pointer;
  unsigned align;
  if (!write && is_buffer_pointer(v, access)) return FLY_OK;
  fly_status status = resolve(pass, access, LLVMGetOperand(access, write), type, flyi_type_bytes(v, type), write,
                              &pointer, &align);
  if (status || !pointer) return status;
  LLVMSetOperand(access, write, pointer);
  LLVMSetAlignment(access, align);
  mark_done(pass, access);
  return FLY_OK;
}

/* memcpy, memmove, memset: of a constant size, which refuse.c has seen to. They are built anew: the old ones'
 * arguments may promise an alignment. */
static fly_status rewrite_block(access_pass *pass, LLVMValueRef call, bool fill) {
  flyi_verifier *v = pass->v;
  LLVMValueRef size = LLVMGetOperand(call, 2), to, from = LLVMGetOperand(call, 1), made;
  unsigned to_align, from_align = 1;
  uint64_t bytes = LLVMConstIntGetZExtValue(size);
  fly_status status = resolve(pass, call, LLVMGetOperand(call, 0), NULL, bytes, true, &to, &to_align);
  if (status || !to) return status;
  if (!fill) {
    status = resolve(pass, call, from, NULL, bytes, false, &from, &from_align);
    if (status || !from) return status;
  }
  flyi_build_before(v, call);
  if (fill)
    made = LLVMBuildMemSet(v->builder, to, from, size, to_align);
  else
    made = LLVMBuildMemMove(v->builder, to, to_align, from, from_align, size);
  mark_done(pass, made);
  LLVMInstructionEraseFromParent(call);
  return FLY_OK;
}

/* A comparison of pointers into one object compares their indices. */
static fly_status rewrite_comparison(access_pass *pass, LLVMValueRef compare) {
  static const LLVMIntPredicate as_signed[] = {
      [LLVMIntEQ] = LLVMIntEQ,   [LLVMIntNE] = LLVMIntNE,   [LLVMIntUGT] = LLVMIntSGT, [LLVMIntUGE] = LLVMIntSGE,
      [LLVMIntULT] = LLVMIntSLT, [LLVMIntULE] = LLVMIntSLE, [LLVMIntSGT] = LLVMIntSGT, [LLVMIntSGE] = LLVMIntSGE,
      [LLVMIntSLT] = LLVMIntSLT, [LLVMIntSLE] = LLVMIntSLE};
  flyi_verifier *v = pass->v;
  target object[2] = {0};
  flyi_address address[2];
  for (unsigned i = 0; i < 2; i++) {
    LLVMValueRef pointer = LLVMGetOperand(compare, i);
    bool unknown;
    fly_status status = find_target(pass, pointer, compare, &object[i], &unknown);
    if (status || unknown) return status;
    if ((status = flyi_pointer_address(v, &pass->indices, pointer, &address[i]))) return status;
  }
  if (object[0].base != object[1].base)
    return flyi_refuse(v, compare, "a mask cannot compare pointers into different objects");
  int64_t unit = flyi_gcd(flyi_gcd(address[0].unit, address[0].offset), flyi_gcd(address[1].unit, address[1].offset));
  flyi_build_before(v, compare);
  LLVMValueRef left = flyi_address_index(v, &address[0], unit ? unit : 1, 0);
  LLVMValueRef right = flyi_address_index(v, &address[1], unit ? unit : 1, 0);
  LLVMReplaceAllUsesWith(compare, LLVMBuildICmp(v->builder, as_signed[LLVMGetICmpPredicate(compare)], left, right, ""));
  LLVMInstructionEraseFromParent(compare);
  return FLY_OK;
}

/* What SROA leaves of structs that were returned by value: the element that was inserted last. */
static void forward_element(LLVMValueRef extract) {
  if (LLVMGetNumIndices(extract) != 1) return;
  unsigned wanted = *LLVMGetIndices(extract);
  LLVMValueRef from = LLVMGetOperand(extract, 0);
  while (LLVMIsAInsertValueInst(from) && LLVMGetNumIndices(from) == 1) {
    if (*LLVMGetIndices(from) == wanted) {
      LLVMReplaceAllUsesWith(extract, LLVMGetOperand(from, 1));
      LLVMInstructionEraseFromParent(extract);
      return;
    }
    from = LLVMGetOperand(from, 0);
  }
}

static fly_status rewrite(access_pass *pass, LLVMValueRef instruction) {
  const char *intrinsic = flyi_intrinsic(instruction);
  if (flyi_starts(intrinsic, "llvm.lifetime.")) return LLVMInstructionEraseFromParent(instruction), FLY_OK;
  if (LLVMIsAExtractValueInst(instruction)) return forward_element(instruction), FLY_OK;
  if (LLVMIsAICmpInst(instruction) &&
      LLVMGetTypeKind(LLVMTypeOf(LLVMGetOperand(instruction, 0))) == LLVMPointerTypeKind)
    return rewrite_comparison(pass, instruction);
  bool access = LLVMIsALoadInst(instruction) || LLVMIsAStoreInst(instruction);
  if ((!access && !flyi_starts(intrinsic, "llvm.mem")) || LLVMGetMetadata(instruction, pass->done_kind)) return FLY_OK;
  return access ? rewrite_access(pass, instruction)
                : rewrite_block(pass, instruction, flyi_starts(intrinsic, "llvm.memset"));
}

/* ---- The step ---------------------------------------------------------------------------------------------------- */

/* Pointers in memory, and what is left of pointers that went around a loop. */
static fly_status finish_pointers(flyi_verifier *v) {
  for (EACH_BLOCK(block, v->mask))
    for (EACH_INSTRUCTION_SAFE(instruction, next, block)) {
      bool pointer = LLVMGetTypeKind(LLVMTypeOf(instruction)) == LLVMPointerTypeKind;
      bool stores = LLVMIsAStoreInst(instruction) &&
                    LLVMGetTypeKind(LLVMTypeOf(LLVMGetOperand(instruction, 0))) == LLVMPointerTypeKind;
      if (stores || (pointer && LLVMIsALoadInst(instruction) && LLVMIsAAllocaInst(LLVMGetOperand(instruction, 0))))
        return flyi_refuse(v, instruction, "a mask cannot keep pointers in an array: keep indices instead");
      if (!pointer || !LLVMIsAPHINode(instruction)) continue;
      LLVMReplaceAllUsesWith(instruction, LLVMConstNull(LLVMTypeOf(instruction)));
      LLVMInstructionEraseFromParent(instruction);
    }
  return FLY_OK;
}

static bool has_locals(const flyi_verifier *v) {
  for (EACH_INSTRUCTION(instruction, LLVMGetEntryBasicBlock(v->mask)))
    if (LLVMIsAAllocaInst(instruction)) return true;
  return false;
}

fly_status flyi_resolve_addresses(flyi_verifier *v) {
  access_pass pass = {.v = v, .done_kind = LLVMGetMDKindIDInContext(v->context, "fly.done", 8)};
  pass.done = LLVMMetadataAsValue(v->context, LLVMMDNodeInContext2(v->context, NULL, 0));
  fly_status status = FLY_OK;
  for (int round = 0; round < MOST_ROUNDS && !status; round++) {
    pass.last = round == MOST_ROUNDS - 1;
    pass.unknown = false;
    pass.indices.count = 0; /* SROA may have replaced what they belong to */
    for (EACH_BLOCK(block, v->mask))
      for (EACH_INSTRUCTION_SAFE(instruction, next, block))
        if (!status) status = rewrite(&pass, instruction);
    if (!status && has_locals(v)) status = flyi_run_passes(v, "function(sroa)");
    if (!pass.unknown && !pass.last) round = MOST_ROUNDS - 2; /* one more, for what SROA wrote */
    if (pass.last) break;
  }
  free(pass.indices.entries);
  if (!status) status = finish_pointers(v);
  return status;
}
