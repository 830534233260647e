/* analyze_load.c: loads of the symbolic form as values of a mask program: parameters, sizes, elements of buffers and of
 * constant tables. An address that is not understood gives an unknown value. */
#include <stdlib.h>
#include <string.h>

#include "analyze.h"

enum { MOST_TABLE_ELEMENTS = 1 << 20, MOST_SELECTS = 4 };

/* An address: a base, and an index of elements of `size` bytes. */
typedef struct address {
  LLVMValueRef base; /* a global, or the load of a buffer's data pointer */
  int64_t offset;    /* in bytes */
  int32_t index;     /* a value of 64 bits; -1: none */
} address;

static const char *name_of(LLVMValueRef value) {
  size_t size;
  return LLVMGetValueName2(value, &size);
}

/* What follows `prefix` in a symbol's name; NULL where it does not begin so. */
static const char *symbol(LLVMValueRef global, const char *prefix) {
  if (!LLVMIsAGlobalVariable(global)) return NULL;
  const char *name = name_of(global);
  return strncmp(name, prefix, strlen(prefix)) ? NULL : name + strlen(prefix);
}

/* Up to `end`, or to the last dot for a dimension's symbol. */
static int find_buffer(const flyi_translation *t, const char *name, size_t length) {
  for (int i = 0; i < t->declarations->buffer_count; i++) {
    const char *known = t->declarations->buffers[i].name;
    if (strlen(known) == length && !strncmp(known, name, length)) return i;
  }
  return -1;
}

static int find_parameter(const flyi_translation *t, const char *name) {
  for (int i = 0; i < t->declarations->parameter_count; i++)
    if (!strcmp(t->declarations->parameters[i].name, name)) return i;
  return -1;
}

static bool is_integer(fly_type type) { return type >= FLY_I8; }

/* ---- addresses --------------------------------------------------------------------------------------------------- */

static bool is_gep(LLVMValueRef pointer) {
  if (LLVMIsAConstantExpr(pointer)) return LLVMGetConstOpcode(pointer) == LLVMGetElementPtr;
  return LLVMIsAGetElementPtrInst(pointer) != NULL;
}

/* Adds value * scale bytes to an address of elements of `size` bytes. */
static bool add_index(flyi_translation *t, address *a, LLVMValueRef value, int64_t scale, int64_t size) {
  if (LLVMIsAConstantInt(value))
    return !__builtin_add_overflow(a->offset, LLVMConstIntGetSExtValue(value) * scale, &a->offset);
  int width = flyi_int_width(LLVMTypeOf(value));
  if (!width || scale % size) return false;
  int32_t index = flyi_value(t, value);
  if (width < 64) index = flyi_put(t, (flyi_instruction){.op = FLYI_OP_SEXT, .width = 64, .a = index});
  if (scale != size) index = flyi_put_binary(t, FLYI_OP_MUL, 64, index, flyi_put_constant(t, 64, scale / size));
  a->index = a->index < 0 ? index : flyi_put_binary(t, FLYI_OP_ADD, 64, a->index, index);
  return true;
}

static bool find_address(flyi_translation *t, LLVMValueRef pointer, int64_t size, address *out) {
  if (!is_gep(pointer)) {
    *out = (address){pointer, 0, -1};
    return LLVMIsAGlobalVariable(pointer) || LLVMIsALoadInst(pointer);
  }
  if (!find_address(t, LLVMGetOperand(pointer, 0), size, out)) return false;
  LLVMTypeRef type = LLVMGetGEPSourceElementType(pointer);
  for (int i = 1; i < LLVMGetNumOperands(pointer); i++) {
    if (i > 1) {
      if (LLVMGetTypeKind(type) != LLVMArrayTypeKind) return false;
      type = LLVMGetElementType(type);
    }
    if (!add_index(t, out, LLVMGetOperand(pointer, (unsigned)i), (int64_t)LLVMABISizeOfType(t->layout, type), size))
      return false;
  }
  return true;
}

/* The index of an address as a value of 64 bits. */
static int32_t element_index(flyi_translation *t, const address *a, int64_t size) {
  if (a->index < 0) return flyi_put_constant(t, 64, a->offset / size);
  if (a->offset == 0) return a->index;
  return flyi_put_binary(t, FLYI_OP_ADD, 64, a->index, flyi_put_constant(t, 64, a->offset / size));
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

typedef struct table {
  int width;     /* of an element, in bits */
  uint8_t *data; /* NULL while counting */
  int64_t count;
} table;

/* Appends the integers of a constant, in memory order; false where it holds anything else. */
static bool flatten(LLVMValueRef constant, LLVMTypeRef type, table *out) {
  if (LLVMGetTypeKind(type) == LLVMArrayTypeKind) {
    uint64_t length = LLVMGetArrayLength2(type);
    for (uint64_t i = 0; i < length; i++)
      if (!flatten(LLVMGetAggregateElement(constant, (unsigned)i), LLVMGetElementType(type), out)) return false;
    return true;
  }
  int width = flyi_int_width(type);
  if (!LLVMIsAConstantInt(constant) || width % 8 || (width & (width - 1)) || (out->width && out->width != width))
    return false;
  if (out->count == MOST_TABLE_ELEMENTS) return false;
  uint64_t value = LLVMConstIntGetZExtValue(constant);
  if (out->data)
    memcpy(out->data + out->count * (width / 8), &value, (size_t)width / 8); /* little-endian, as programs are */
  out->width = width;
  out->count++;
  return true;
}

/* The program's table for a constant global of elements of `width` bits; -1 where it is none. */
static int32_t find_table(flyi_translation *t, LLVMValueRef global, int width) {
  LLVMValueRef initial = LLVMGetInitializer(global);
  struct flyi_numbered *slot = flyi_number(t, global);
  if (!slot) return -1;
  if (slot->number >= 0) return t->program.table[slot->number].bytes * 8 == width ? slot->number : -1;
  table all = {0};
  if (!initial || !LLVMIsGlobalConstant(global) || !flatten(initial, LLVMGlobalGetValueType(global), &all)) return -1;
  if (all.width != width || all.count == 0) return -1;
  table filled = {.data = flyi_alloc((size_t)all.count, (size_t)width / 8)};
  if (!filled.data) return t->failed = true, -1;
  flatten(initial, LLVMGlobalGetValueType(global), &filled);
  slot->number = flyi_program_add_table(&t->program, width / 8, all.count, filled.data);
  free(filled.data);
  if (slot->number < 0) t->failed = true;
  return slot->number;
}

/* ---- loads ------------------------------------------------------------------------------------------------------- */

static int32_t load_parameter(flyi_translation *t, const char *name, int width) {
  int which = find_parameter(t, name);
  if (which < 0) return flyi_put_unknown(t, width);
  fly_type type = t->declarations->parameters[which].type;
  if (!is_integer(type) || width != 8 * (int)fly_type_size(type)) return flyi_put_unknown(t, width);
  return flyi_put(t, (flyi_instruction){.op = FLYI_OP_PARAM, .width = (uint8_t)width, .k = which});
}

static int32_t load_size(flyi_translation *t, LLVMValueRef global, int width) {
  const char *count = symbol(global, "fly.count."), *dim = symbol(global, "fly.dim.");
  const char *name = count ? count : dim, *dot = dim ? strrchr(dim, '.') : NULL;
  int buffer = name ? find_buffer(t, name, dot ? (size_t)(dot - name) : strlen(name)) : -1;
  if (buffer < 0 || width != 64 || (dim && (!dot || dot[1] < '0' || dot[1] > '3'))) return flyi_put_unknown(t, width);
  if (count) return flyi_put(t, (flyi_instruction){.op = FLYI_OP_COUNT, .width = 64, .k = buffer});
  return flyi_put(t, (flyi_instruction){.op = FLYI_OP_DIM, .width = 64, .k = 4 * buffer + (dot[1] - '0')});
}

static int32_t load_element(flyi_translation *t, LLVMValueRef pointer, int width) {
  address a;
  int64_t size = width / 8;
  if (width % 8 || !find_address(t, pointer, size, &a) || a.offset % size) return flyi_put_unknown(t, width);
  flyi_instruction load = {.op = FLYI_OP_UNKNOWN, .width = (uint8_t)width};
  if (LLVMIsALoadInst(a.base)) {
    const char *name = symbol(LLVMGetOperand(a.base, 0), "fly.data.");
    int buffer = name ? find_buffer(t, name, strlen(name)) : -1;
    fly_type type = buffer < 0 ? FLY_TYPE_NONE : t->declarations->buffers[buffer].type;
    if (is_integer(type) && (int64_t)fly_type_size(type) == size) load.op = FLYI_OP_LOAD, load.k = buffer;
  } else {
    int32_t table = find_table(t, a.base, width);
    if (table >= 0) load.op = FLYI_OP_TABLE, load.k = table;
  }
  if (load.op != FLYI_OP_UNKNOWN) load.a = element_index(t, &a, size);
  return flyi_put(t, load);
}

static int32_t load_from(flyi_translation *t, LLVMValueRef pointer, int width, int selects) {
  if (LLVMIsASelectInst(pointer) && selects < MOST_SELECTS) {
    int32_t yes = load_from(t, LLVMGetOperand(pointer, 1), width, selects + 1);
    int32_t no = load_from(t, LLVMGetOperand(pointer, 2), width, selects + 1);
    int32_t condition = flyi_value(t, LLVMGetOperand(pointer, 0));
    return flyi_put(
        t, (flyi_instruction){.op = FLYI_OP_SELECT, .width = (uint8_t)width, .a = condition, .b = yes, .c = no});
  }
  if (symbol(pointer, "fly.param.")) return load_parameter(t, symbol(pointer, "fly.param."), width);
  if (symbol(pointer, "fly.count.") || symbol(pointer, "fly.dim.")) return load_size(t, pointer, width);
  return load_element(t, pointer, width);
}

int32_t flyi_translate_load(flyi_translation *t, LLVMValueRef load) {
  return load_from(t, LLVMGetOperand(load, 0), flyi_int_width(LLVMTypeOf(load)), 0);
}
