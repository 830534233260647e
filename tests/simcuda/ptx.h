/* ptx.h: what the parser makes of a PTX module. Names and operands are as written; what an instruction means is
 * decided when a kernel is decoded (sim.h). Everything lives in the module's arena. */
#ifndef SIMCUDA_PTX_H
#define SIMCUDA_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- types (PTX ISA, "Fundamental Types") -------------------------------------------------------- */
typedef enum ptx_type {
  T_NONE,
  T_PRED,
  T_B8,
  T_B16,
  T_B32,
  T_B64,
  T_B128,
  T_U8,
  T_U16,
  T_U32,
  T_U64,
  T_S8,
  T_S16,
  T_S32,
  T_S64,
  T_F16,
  T_F16X2,
  T_BF16,
  T_BF16X2,
  T_TF32,
  T_F32,
  T_F64,
} ptx_type;

ptx_type ptx_type_of(const char *name); /* T_NONE where there is no such type */
const char *ptx_type_name(ptx_type type);
unsigned ptx_bytes(ptx_type type);
bool ptx_is_signed(ptx_type type);
bool ptx_is_float(ptx_type type);

/* --- memory of a module -------------------------------------------------------------------------- */
typedef struct arena arena;
arena *arena_create(void);
void arena_destroy(arena *a);
void *arena_alloc(arena *a, size_t bytes); /* zeroed; NULL where there is no memory */
char *arena_text(arena *a, const char *begin, size_t length);

/* --- variables ----------------------------------------------------------------------------------- */
typedef enum ptx_space { S_GENERIC, S_GLOBAL, S_SHARED, S_LOCAL, S_CONST, S_PARAM } ptx_space;

typedef struct ptx_var {
  const char *name;
  ptx_space space;
  ptx_type type;
  uint32_t align;
  uint64_t bytes; /* 0: an extern array without a size */
  bool is_extern;
  uint8_t *data;  /* initial value or NULL */
  uint32_t scope; /* of a function's variable */
  uint32_t line;
  uint32_t index;   /* a formal parameter's position */
  uint64_t address; /* where the loader or decoder has put it */
  bool placed;
  struct ptx_var *next;
} ptx_var;

/* --- operands ------------------------------------------------------------------------------------ */
typedef enum ptx_kind {
  K_REG, /* reg */
  K_INT, /* value */
  K_F32, /* value holds the bits */
  K_F64,
  K_NAME,    /* a symbol, label, function or special register; var where it is a variable of the function */
  K_ADDRESS, /* [base + offset]: base is items[0] */
  K_VECTOR,  /* {items} */
  K_LIST,    /* (items) */
  K_PAIR,    /* items[0]|items[1] */
  K_SINK,    /* _ */
} ptx_kind;

typedef struct ptx_operand {
  ptx_kind kind;
  bool negated; /* !p */
  uint32_t reg;
  uint64_t value;
  int64_t offset; /* of an address, or symbol+offset */
  const char *name;
  ptx_var *var;
  struct ptx_operand *items;
  uint32_t count;
} ptx_operand;

enum { PTX_MODIFIERS = 20, PTX_OPERANDS = 8 };

typedef struct ptx_instr {
  uint32_t line, scope;
  int32_t guard; /* register or -1 */
  bool guard_negated;
  const char *text; /* the opcode as written */
  const char *op;
  const char *mods[PTX_MODIFIERS];
  uint32_t mod_count, operand_count;
  ptx_operand operands[PTX_OPERANDS];
} ptx_instr;

/* --- functions and modules ----------------------------------------------------------------------- */
typedef struct ptx_reg {
  ptx_type type;
  const char *name;
} ptx_reg;

typedef struct ptx_label {
  const char *name;
  uint32_t scope, at;   /* index of the instruction that follows */
  const char **targets; /* .branchtargets: the list */
  uint32_t target_count;
} ptx_label;

typedef struct ptx_function {
  const char *name;
  bool is_entry, has_body;
  uint32_t line;
  ptx_var *params, *results, *vars; /* in order of declaration */
  uint32_t param_bytes;
  uint32_t max_threads, required_threads[3]; /* 0: not said */
  ptx_reg *regs;
  uint32_t reg_count, reg_room;
  ptx_instr *code;
  uint32_t code_count, code_room;
  ptx_label *labels;
  uint32_t label_count, label_room;
  uint32_t *scope_parent;
  uint32_t scope_count, scope_room;
  struct ptx_function *next;
} ptx_function;

typedef struct ptx_module {
  arena *memory;
  int version;          /* 10 * major + minor */
  int target;           /* 80, 86, 90 */
  bool target_specific; /* sm_90a */
  ptx_var *vars;
  ptx_function *functions;
} ptx_module;

/* Parses `text`. NULL and a message with the line where it is no PTX. */
ptx_module *ptx_parse(const char *text, char *message, size_t room);
void ptx_release(ptx_module *module);
ptx_function *ptx_find_function(const ptx_module *module, const char *name);
ptx_var *ptx_find_var(const ptx_module *module, const char *name);
/* The index of the instruction a label names, seen from `scope`; NULL where there is none. */
const ptx_label *ptx_find_label(const ptx_function *function, const char *name, uint32_t scope);

#endif
