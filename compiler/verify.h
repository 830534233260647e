/* verify.h: what the files between clang's IR and the symbolic form share, in the order in which they work:
 *
 *   verify.c    flyi_verify: parses, and calls the others
 *   declare.c   globals: parameters, buffers, constant tables; refuses the rest
 *   refuse.c    functions: refuses what a mask must not do
 *   guard.c     divisions, shifts, conversions: total
 *   flatten.c   one function without calls, its scalars in registers   (cfg.c: its graph)
 *   address.c   every access: an object and a clamped index       (pointer.c: what a pointer is made of)
 *   bound.c     loops: at most FLYI_ROUNDS rounds                 (loop.c: where they are, round.c: how long they run)
 *   finish.c    names of the symbolic form; last checks */
#ifndef FLYMASK_VERIFY_H
#define FLYMASK_VERIFY_H

#include "compiler.h"

enum {
  FLYI_ROUNDS = 65536,           /* mask.h */
  FLYI_MOST_INSTRUCTIONS = 8192, /* of the mask with everything inlined, as clang emits it */
  FLYI_MATH_WEIGHT = 100,        /* a call of a function of score.h counts as so many instructions */
  FLYI_CASE_WEIGHT = 4,          /* and a case of a switch as so many: LLVM's time grows with their number squared */
  FLYI_MOST_FUNCTIONS = 256,
  FLYI_MOST_NESTING = 32, /* of brackets in the IR, and so of array types */
  FLYI_MOST_STRUCTS = 64, /* types of its own */
  FLYI_MOST_LOCAL_BYTES = 16384,
  FLYI_MOST_TABLE_BYTES = 1 << 20
};

typedef enum flyi_global_kind { FLYI_PARAMETER, FLYI_BUFFER, FLYI_DIMENSION } flyi_global_kind;

/* A global of the source that FLY_PARAM or FLY_BUFFER declared. */
typedef struct flyi_global {
  LLVMValueRef value;
  flyi_global_kind kind;
  int index;        /* of the parameter, or of the buffer that it is or belongs to */
  int dimension;    /* FLYI_DIMENSION: 0 to 3 */
  LLVMTypeRef type; /* what a load gives: of the parameter, of an element, i64 */
} flyi_global;

typedef struct flyi_verifier {
  LLVMContextRef context;
  LLVMModuleRef module;
  LLVMBuilderRef builder;
  LLVMTargetDataRef layout; /* the module's */
  const char *name;         /* of the source, for errors */
  bool is_score;            /* a score modifier */
  LLVMValueRef mask;        /* or score */
  flyi_declarations *declarations;
  flyi_global *globals;
  int global_count;
  struct flyi_watch *watch; /* watch.h; NULL: nothing is watched */
  fly_error *error;
} flyi_verifier;

#define EACH_FUNCTION(f, module)                                                                                       \
  LLVMValueRef f = LLVMGetFirstFunction(module);                                                                       \
  f;                                                                                                                   \
  f = LLVMGetNextFunction(f)
#define EACH_GLOBAL(g, module)                                                                                         \
  LLVMValueRef g = LLVMGetFirstGlobal(module);                                                                         \
  g;                                                                                                                   \
  g = LLVMGetNextGlobal(g)
#define EACH_BLOCK(b, function)                                                                                        \
  LLVMBasicBlockRef b = LLVMGetFirstBasicBlock(function);                                                              \
  b;                                                                                                                   \
  b = LLVMGetNextBasicBlock(b)
#define EACH_INSTRUCTION(i, block)                                                                                     \
  LLVMValueRef i = LLVMGetFirstInstruction(block);                                                                     \
  i;                                                                                                                   \
  i = LLVMGetNextInstruction(i)
/* The same, where the body may erase i. */
#define EACH_INSTRUCTION_SAFE(i, next, block)                                                                          \
  LLVMValueRef i = LLVMGetFirstInstruction(block), next = NULL;                                                        \
  i && (next = LLVMGetNextInstruction(i), true);                                                                       \
  i = next

/* FLY_ERROR_SOURCE at the place of `at` (an instruction, function or global; NULL: no place). */
fly_status flyi_refuse(const flyi_verifier *v, LLVMValueRef at, const char *format, ...) FLYI_PRINTF(3, 4);
/* Sets the builder's place, and the debug location of what it builds. */
void flyi_build_before(const flyi_verifier *v, LLVMValueRef instruction);
/* Removes all metadata but the debug location: what remains are promises (range, nonnull, mustprogress, ...). */
void flyi_strip_metadata(const flyi_verifier *v, LLVMValueRef instruction);
fly_status flyi_run_passes(const flyi_verifier *v, const char *passes);

/* ---- types and constants (verify.c) */
LLVMTypeRef flyi_int_type(const flyi_verifier *v, unsigned bits);
bool flyi_is_int(LLVMTypeRef type, unsigned bits);
bool flyi_is_scalar(LLVMTypeRef type);                              /* i1, i8 .. i64, float, double */
uint64_t flyi_type_bytes(const flyi_verifier *v, LLVMTypeRef type); /* saturates at UINT64_MAX / 2 */
bool flyi_is_gep(LLVMValueRef value);                               /* an instruction or a constant expression */
bool flyi_constant_int(LLVMValueRef value, int64_t *out);
/* The intrinsic that a call calls ("llvm.ctpop"), or "" for any other instruction. */
const char *flyi_intrinsic(LLVMValueRef instruction);
bool flyi_starts(const char *text, const char *prefix);
/* A call of intrinsic `name`, overloaded on `types`, at the builder's place. */
LLVMValueRef flyi_call_intrinsic(const flyi_verifier *v, const char *name, LLVMTypeRef *types, int type_count,
                                 LLVMValueRef *arguments, int count);

/* The global PREFIX.NAME of the symbolic form (fly.data.doc, fly.dim.doc.0, ...) that goes with a declared one. */
LLVMValueRef flyi_symbol(const flyi_verifier *v, const char *prefix, const flyi_global *global, LLVMTypeRef type);

/* ---- the steps */
fly_status flyi_declare(flyi_verifier *v);
const flyi_global *flyi_find_global(const flyi_verifier *v, LLVMValueRef value);
fly_status flyi_refuse_functions(flyi_verifier *v);
bool flyi_guard(flyi_verifier *v, LLVMValueRef function) FLYI_MUST_CHECK; /* false: no memory */
/* Removes attributes that promise something. False: no memory. */
bool flyi_strip_function(LLVMValueRef function) FLYI_MUST_CHECK;
fly_status flyi_flatten(flyi_verifier *v);
fly_status flyi_resolve_addresses(flyi_verifier *v);
fly_status flyi_bound_loops(flyi_verifier *v);
fly_status flyi_finish(flyi_verifier *v);

#endif
