/* pointer.c: what a pointer of the flattened mask is made of: an object, a constant offset, and indices times strides.
 *
 * Input: SSA values of pointer type. Output: their base, and their offset as a linear form in integers. A pointer that
 * a condition or a loop changes is accepted where it stays within one object: the integers then go through a phi or
 * select of their own. */
#include <stdlib.h>

#include "pointer.h"

enum { MOST_POINTERS = 256, MOST_DEPTH = 32 };

int64_t flyi_gcd(int64_t a, int64_t b) {
  uint64_t x = a < 0 ? -(uint64_t)a : (uint64_t)a, y = b < 0 ? -(uint64_t)b : (uint64_t)b;
  while (y) {
    uint64_t rest = x % y;
    x = y, y = rest;
  }
  return (int64_t)x;
}

static int64_t wrap_add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }
static int64_t wrap_mul(int64_t a, int64_t b) { return (int64_t)((uint64_t)a * (uint64_t)b); }

/* What a constant that holds a pointer (const int *const p = table;) holds; NULL for anything else. */
static LLVMValueRef constant_pointer(LLVMValueRef load) {
  LLVMValueRef global = LLVMIsALoadInst(load) ? LLVMGetOperand(load, 0) : NULL;
  if (!global || !LLVMIsAGlobalVariable(global) || !LLVMIsGlobalConstant(global) || LLVMIsDeclaration(global))
    return NULL;
  LLVMValueRef value = LLVMGetInitializer(global);
  return LLVMTypeOf(value) == LLVMTypeOf(load) ? value : NULL;
}

/* ---- Bases ------------------------------------------------------------------------------------------------------- */

/* All pointers from which `pointer` is derived by GEPs, phis and selects, in order of discovery. */
typedef struct closure {
  LLVMValueRef pointers[MOST_POINTERS];
  int count;
} closure;

static bool add(closure *c, LLVMValueRef pointer) {
  for (int i = 0; i < c->count; i++)
    if (c->pointers[i] == pointer) return true;
  if (c->count == MOST_POINTERS) return false;
  c->pointers[c->count++] = pointer;
  return true;
}

/* False: too many. */
static bool close_over(closure *c, LLVMValueRef pointer) {
  c->count = 0;
  bool good = add(c, pointer);
  for (int i = 0; i < c->count && good; i++) {
    LLVMValueRef p = c->pointers[i];
    if (flyi_is_gep(p))
      good = add(c, LLVMGetOperand(p, 0));
    else if (constant_pointer(p))
      good = add(c, constant_pointer(p));
    else if (LLVMIsASelectInst(p))
      good = add(c, LLVMGetOperand(p, 1)) && add(c, LLVMGetOperand(p, 2));
    else if (LLVMIsAPHINode(p))
      for (unsigned k = 0; k < LLVMCountIncoming(p) && good; k++) good = add(c, LLVMGetIncomingValue(p, k));
  }
  return good;
}

static flyi_base_kind leaf(const flyi_verifier *v, LLVMValueRef p, LLVMValueRef *base) {
  *base = p;
  if (LLVMIsAAllocaInst(p) || LLVMIsAGlobalVariable(p)) return FLYI_BASE_FOUND;
  if (LLVMIsAConstantPointerNull(p) || LLVMIsUndef(p)) return FLYI_BASE_NULL;
  if (!LLVMIsALoadInst(p)) return FLYI_BASE_LOADED;
  const flyi_global *global = flyi_find_global(v, LLVMGetOperand(p, 0));
  if (!global || global->kind != FLYI_BUFFER) return FLYI_BASE_LOADED;
  *base = global->value;
  return FLYI_BASE_FOUND;
}

flyi_base_kind flyi_pointer_base(const flyi_verifier *v, LLVMValueRef pointer, LLVMValueRef *base) {
  closure c;
  *base = NULL;
  if (!close_over(&c, pointer)) return FLYI_BASE_MIXED;
  flyi_base_kind worst = FLYI_BASE_FOUND;
  for (int i = 0; i < c.count; i++) {
    LLVMValueRef p = c.pointers[i], found;
    if (flyi_is_gep(p) || constant_pointer(p) || LLVMIsASelectInst(p) || LLVMIsAPHINode(p)) continue;
    flyi_base_kind kind = leaf(v, p, &found);
    if (kind == FLYI_BASE_FOUND && *base && *base != found) kind = FLYI_BASE_MIXED;
    if (kind == FLYI_BASE_LOADED) return kind; /* ask again after SROA */
    if (kind != FLYI_BASE_FOUND)
      worst = kind;
    else
      *base = found;
  }
  return worst;
}

/* ---- Addresses --------------------------------------------------------------------------------------------------- */

static bool add_term(flyi_address *to, LLVMValueRef value, int64_t stride) {
  if (!stride) return true;
  to->unit = flyi_gcd(to->unit, stride);
  for (int i = 0; i < to->term_count; i++)
    if (to->terms[i].value == value) return to->terms[i].stride = wrap_add(to->terms[i].stride, stride), true;
  if (to->term_count == FLYI_MOST_TERMS) return false;
  to->terms[to->term_count++] = (flyi_term){value, stride};
  return true;
}

/* Adds what one GEP adds to its operand. */
static bool add_gep(const flyi_verifier *v, LLVMValueRef gep, flyi_address *to) {
  LLVMTypeRef type = LLVMGetGEPSourceElementType(gep);
  for (int i = 1; i < LLVMGetNumOperands(gep); i++) {
    LLVMValueRef index = LLVMGetOperand(gep, (unsigned)i);
    int64_t constant, stride;
    bool is_constant = flyi_constant_int(index, &constant);
    if (i > 1 && LLVMGetTypeKind(type) == LLVMStructTypeKind) {
      to->offset = wrap_add(to->offset, (int64_t)LLVMOffsetOfElement(v->layout, type, (unsigned)constant));
      type = LLVMStructGetTypeAtIndex(type, (unsigned)constant);
      continue;
    }
    if (i > 1) type = LLVMGetElementType(type);
    stride = (int64_t)flyi_type_bytes(v, type);
    if (!is_constant && !add_term(to, index, stride)) return false;
    if (!is_constant) continue;
    to->offset = wrap_add(to->offset, wrap_mul(constant, stride));
    if (constant && stride > 1) to->unit = flyi_gcd(to->unit, stride); /* byte strides: LLVM's folded form of a field */
  }
  return true;
}

/* What the offsets of all of its pointers have in common; 0 where all are the base itself. */
static int64_t unit_of(const flyi_verifier *v, LLVMValueRef pointer, fly_status *status) {
  closure c;
  int64_t unit = 0;
  if (!close_over(&c, pointer)) *status = FLY_ERROR_SOURCE;
  for (int i = 0; i < c.count; i++) {
    flyi_address step = {0};
    if (!flyi_is_gep(c.pointers[i])) continue;
    if (!add_gep(v, c.pointers[i], &step)) *status = FLY_ERROR_SOURCE;
    unit = flyi_gcd(flyi_gcd(unit, step.unit), step.offset);
  }
  return unit;
}

LLVMValueRef flyi_address_index(flyi_verifier *v, const flyi_address *address, int64_t unit, int64_t rest) {
  LLVMTypeRef i64 = flyi_int_type(v, 64);
  LLVMValueRef sum = NULL;
  for (int i = 0; i < address->term_count; i++) {
    LLVMValueRef value = address->terms[i].value;
    int64_t factor = address->terms[i].stride / unit;
    if (LLVMTypeOf(value) != i64) value = LLVMBuildSExt(v->builder, value, i64, "");
    if (factor != 1) value = LLVMBuildMul(v->builder, value, LLVMConstInt(i64, (uint64_t)factor, true), "");
    sum = sum ? LLVMBuildAdd(v->builder, sum, value, "") : value;
  }
  int64_t constant = wrap_add(address->offset, -rest) / unit;
  LLVMValueRef offset = LLVMConstInt(i64, (uint64_t)constant, true);
  return !sum ? offset : constant ? LLVMBuildAdd(v->builder, sum, offset, "") : sum;
}

static fly_status too_complicated(flyi_verifier *v, LLVMValueRef at) {
  return flyi_refuse(v, at, "the pointer is made of too many parts: index the array directly");
}

/* The index of `pointer` in units, built before `place`. */
static fly_status index_at(flyi_verifier *v, flyi_indices *indices, LLVMValueRef pointer, int64_t unit,
                           LLVMValueRef place, LLVMValueRef *out) {
  flyi_address address;
  fly_status status = flyi_pointer_address(v, indices, pointer, &address);
  if (status) return status;
  flyi_build_before(v, place);
  *out = flyi_address_index(v, &address, unit, 0);
  return FLY_OK;
}

static fly_status fill_phi(flyi_verifier *v, flyi_indices *indices, LLVMValueRef phi, LLVMValueRef index,
                           int64_t unit) {
  for (unsigned i = 0; i < LLVMCountIncoming(phi); i++) {
    LLVMBasicBlockRef block = LLVMGetIncomingBlock(phi, i);
    LLVMValueRef value = NULL;
    for (unsigned k = 0; k < i && !value; k++) /* a switch may come from one block several times, with one value */
      if (LLVMGetIncomingBlock(index, k) == block) value = LLVMGetIncomingValue(index, k);
    fly_status status = FLY_OK;
    if (!value)
      status = index_at(v, indices, LLVMGetIncomingValue(phi, i), unit, LLVMGetBasicBlockTerminator(block), &value);
    if (status) return status;
    LLVMAddIncoming(index, &value, &block, 1);
  }
  return FLY_OK;
}

static fly_status remember(flyi_verifier *v, flyi_indices *indices, const struct flyi_index *entry) {
  if (indices->count == indices->capacity) {
    int capacity = indices->capacity ? 2 * indices->capacity : 16;
    struct flyi_index *grown = flyi_grow(indices->entries, (size_t)capacity, sizeof *grown);
    if (!grown) return flyi_no_memory(v->error);
    indices->entries = grown, indices->capacity = capacity;
  }
  indices->entries[indices->count++] = *entry;
  return FLY_OK;
}

static fly_status select_index(flyi_verifier *v, flyi_indices *indices, LLVMValueRef select, struct flyi_index *out) {
  LLVMValueRef yes, no;
  fly_status status = index_at(v, indices, LLVMGetOperand(select, 1), out->unit, select, &yes);
  if (!status) status = index_at(v, indices, LLVMGetOperand(select, 2), out->unit, select, &no);
  if (status) return status;
  flyi_build_before(v, select);
  out->index = LLVMBuildSelect(v->builder, LLVMGetOperand(select, 0), yes, no, "");
  return remember(v, indices, out);
}

/* The index that goes with a phi or select; unit 0: it needs none. */
static fly_status index_of(flyi_verifier *v, flyi_indices *indices, LLVMValueRef pointer, struct flyi_index *out) {
  for (int i = 0; i < indices->count; i++)
    if (indices->entries[i].pointer == pointer) return *out = indices->entries[i], FLY_OK;
  fly_status status = FLY_OK;
  *out = (struct flyi_index){.pointer = pointer, .unit = unit_of(v, pointer, &status)};
  if (status || indices->depth >= MOST_DEPTH) return too_complicated(v, pointer);
  if (!out->unit) return FLY_OK;
  indices->depth++;
  if (LLVMIsAPHINode(pointer)) { /* known before its incoming values: they may depend on it */
    flyi_build_before(v, pointer);
    out->index = LLVMBuildPhi(v->builder, flyi_int_type(v, 64), "");
    status = remember(v, indices, out);
    if (!status) status = fill_phi(v, indices, pointer, out->index, out->unit);
  } else {
    status = select_index(v, indices, pointer, out);
  }
  indices->depth--;
  return status;
}

fly_status flyi_pointer_address(flyi_verifier *v, flyi_indices *indices, LLVMValueRef pointer, flyi_address *out) {
  LLVMValueRef at = pointer;
  *out = (flyi_address){0};
  for (int steps = 0;; steps++) {
    LLVMValueRef constant = constant_pointer(pointer);
    if (!constant && !flyi_is_gep(pointer)) break;
    if (!constant && !add_gep(v, pointer, out)) return too_complicated(v, at);
    if (steps > 4096) return too_complicated(v, at);
    pointer = constant ? constant : LLVMGetOperand(pointer, 0);
  }
  if (!LLVMIsAPHINode(pointer) && !LLVMIsASelectInst(pointer)) return FLY_OK;
  struct flyi_index entry;
  fly_status status = index_of(v, indices, pointer, &entry);
  if (!status && entry.unit && !add_term(out, entry.index, entry.unit)) status = too_complicated(v, at);
  return status;
}
