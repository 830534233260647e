/* compiler.h: what the files of compiler/ share, in the order in which a mask meets it.
 *
 *   compile.c:  source ── frontend ── verify, guard ──┬── analyze ────> mask program ─┐
 *                                                     └── specialize ── emit ─────────┴── image ── jit ──> fly_mask
 *                                                         straighten, divide (ranges, quotient)
 *
 * A score modifier goes the same way: without analyze, and with differentiate behind straighten.
 *
 * Every stage works in its own LLVMContext, so that several masks can be compiled at once. */
#ifndef FLYMASK_COMPILER_H
#define FLYMASK_COMPILER_H

#include <llvm-c/Core.h>
#include <llvm-c/TargetMachine.h>

#include "../runtime/runtime.h"

/* ---- frontend (frontend.c, toolchain.c, process.c) --------------------------------------------------------------- */

/* Runs clang on the source: textual LLVM IR, unoptimised, with debug locations. The child may open the source, mask.h
 * and clang's freestanding headers only (a virtual file system without fall-through). *ir is the caller's, with a NUL
 * behind its end. Clang's first error becomes ours, with its line and column. */
fly_status flyi_frontend(const char *source, const char *name, const fly_compile_options *options, flyi_bytes *ir,
                         fly_error *error);
/* The same, with signed arithmetic marked as such (nsw): for diagnose.c. */
fly_status flyi_frontend_watched(const char *source, const char *name, const fly_compile_options *options,
                                 flyi_bytes *ir, fly_error *error);

/* ---- verify (verify.h lists its files) --------------------------------------------------------------------------- */

typedef struct flyi_declarations {
  int parameter_count, buffer_count;
  flyi_parameter *parameters;
  fly_buffer_info *buffers;
  void *memory;
} flyi_declarations;
void flyi_declarations_free(flyi_declarations *declarations);

/* Parses the IR, refuses what a mask must not do, and rewrites it to the *symbolic form*: a
 * module whose one definition is
 *
 *     i1 @mask(i32 %b, i32 %h, i32 %q, i32 %kv)
 *
 * everything inlined, locals in registers where possible, every guard of mask.h's table in
 * place, loops capped. It reads
 *
 *     @fly.param.NAME   external constant, loaded directly with the parameter's own type (bool: i8)
 *     @fly.data.NAME    external constant ptr: the loaded pointer is the base of indices (GEPs of the element type)
 *     @fly.count.NAME   external constant i64: elements; every index into the data has been clamped with it
 *     @fly.dim.NAME.K   external constant i64
 *     @fly_token_q(i32 b, i32 h, i32 q), @fly_token_kv(...), @fly_len_q(i32 b), @fly_len_kv(i32 b)
 *                       declared memory(none) nounwind willreturn speculatable
 *     constant tables (private constants of the source), LLVM integer intrinsics, fabs, copysign, sqrt, fpto{s,u}i.sat;
 *     memset and memmove of whole locals or parts of them
 *
 * and nothing else, and writes only to allocas of its own. No instruction can trap or be undefined, so every
 * optimisation of LLVM keeps its meaning. Debug locations are kept. The module belongs to `context`.
 *
 * The symbolic form of a score modifier is
 *
 *     float @score(float %s, i32 %b, i32 %h, i32 %q, i32 %kv)
 *
 * which may also call float @fly_math_NAME(float...), NAME as in math.h: memory(none) nounwind
 * willreturn speculatable. */
fly_status flyi_verify(LLVMContextRef context, flyi_section ir, const char *name, LLVMModuleRef *out,
                       flyi_declarations *declarations, fly_error *error);
fly_status flyi_verify_score(LLVMContextRef context, flyi_section ir, const char *name, LLVMModuleRef *out,
                             flyi_declarations *declarations, fly_error *error);

/* ---- analyze (analyze.c, analyze_load.c, order.c) ---------------------------------------------------------------- */

/* The symbolic module (which it optimises in place) as a mask program, and what it reads (FLYI_READS_...): the
 * arguments that the answer depends on, and the tokens and lengths that code made of the module may ask for. */
fly_status flyi_analyze(LLVMModuleRef module, const flyi_declarations *declarations, flyi_bytes *program,
                        uint32_t *reads, fly_error *error);
/* What a symbolic score modifier reads. */
uint32_t flyi_score_reads(LLVMModuleRef module);

/* ---- straighten (straighten.c) ----------------------------------------------------------------------------------- */

/* Moves what the arguments alone decide to the entry block of the symbolic mask or modifier, and turns branches into
 * selects: a mask without loops returns from its entry block. (What lies behind is then unreachable, and not deleted.)
 * It holds no switch. */
fly_status flyi_straighten(LLVMValueRef mask, fly_error *error);
/* About the cycles that an instruction takes, itself. -1: it reads or writes locals, or ends a block: it must stay. */
int flyi_cost(LLVMValueRef instruction);

/* ---- differentiate (differentiate.c, math_calls.c) --------------------------------------------------------------- */

/* In a module that holds the symbolic @score: puts float @score_slope(float s, i32 b, i32 h, i32 q, i32 kv, ptr slope)
 * in its place, which returns the same and stores its derivative by s. Needs no straightening, and no target: all
 * backends can use it. */
fly_status flyi_differentiate(LLVMModuleRef module, fly_error *error);

/* ---- divide (divide.c, ranges.c, quotient.c) --------------------------------------------------------------------- */

/* In a module that holds the symbolic mask and the mask_tile template: gives the template its fly_row, fly_column,
 * fly_pair, fly_row_repeats and fly_reads_tokens, and deletes @mask. Or @score_slope and the score_tile template,
 * without the last two. */
fly_status flyi_divide(LLVMModuleRef module, fly_error *error);
/* Then: comparisons of fly_pair that order keys become the template's fly_range (ranges.c). */
void flyi_separate_ranges(LLVMModuleRef module);
/* And divisions in fly_pair that become vectors (quotient.c). */
void flyi_quotients(LLVMModuleRef module);

/* ---- connect (connect.c) ----------------------------------------------------------------------------------------- */

/* Loads of baked parameters become constants. */
void flyi_bake(LLVMModuleRef module, const flyi_declarations *declarations);
/* Where functions that a symbolic mask has become part of find flyi_mask_args: `offset` bytes behind what their first
 * argument points to. data_space: the address space of captured data. */
typedef struct flyi_arguments {
  int64_t offset;
  unsigned data_space;
  const char *prefix; /* of the globals' names; NULL: "fly." */
  int first_slot;     /* of the declared parameters and buffers */
} flyi_arguments;
/* All globals and calls of the symbolic form are replaced. */
fly_status flyi_connect(LLVMModuleRef module, const flyi_declarations *declarations, const flyi_arguments *where,
                        fly_error *error);

/* ---- specialize (specialize.c) ----------------------------------------------------------------------------------- */

/* Joins the symbolic module (consumed) with its template for `isa`: globals become loads from flyi_mask_args, baked
 * parameters constants; then O3. What is left exports FLYI_TILE_SYMBOL alone, or FLYI_SCORE_SYMBOL and
 * FLYI_SLOPE_SYMBOL. */
fly_status flyi_specialize(LLVMModuleRef module, const flyi_declarations *declarations, flyi_isa isa,
                           LLVMModuleRef *out, fly_error *error);

/* LLVM's passes by their textual names. machine may be NULL. */
fly_status flyi_passes(LLVMModuleRef module, const char *passes, LLVMTargetMachineRef machine, fly_error *error);

/* ---- NVIDIA's devices (nvptx_plan.c, nvptx_mask.c, nvptx_score.c, nvptx.c, nvptx_compile.c) ---------------------- */

/* A template, and the values of its constants. */
typedef struct flyi_cuda_part {
  flyi_section bitcode;
  struct {
    const char *name;
    int value;
  } constants[16];
  int constant_count;
} flyi_cuda_part;
/* What templates become for one element type, shape and target: one module. */
typedef struct flyi_cuda_plan {
  flyi_cuda_part parts[4];
  int part_count;
  bool set_tokens;        /* every part asks the mask by visible() of cuda_tile.h */
  bool differentiate;     /* the parts want a score modifier's slope */
  bool all_registers;     /* ptxas may give a thread as many as one block on a multiprocessor leaves it */
  flyi_cuda_entry entries[8];
  int entry_count;
} flyi_cuda_plan;
/* What a plan asks of its sources. A modifier's tables, captured buffers of two dimensions and more, are read for each
 * pair of every tile, at addresses of 64 bits each: tiles have fewer scores a thread then. */
typedef struct flyi_cuda_sources {
  int slots;      /* of the mask and the modifier (launch.h) */
  bool modified;  /* there is a modifier */
  bool tables;    /* it has such tables */
} flyi_cuda_sources;
/* FLY_ERROR_UNSUPPORTED: no such kernels; says which there are. */
fly_status flyi_cuda_plan_make(const fly_kernel_desc *desc, flyi_direction direction, const char *target,
                               flyi_cuda_sources sources, flyi_cuda_plan *plan, fly_error *error);
/* The same for the backward direction, of a device with so many bytes of shared memory for a block
 * (nvptx_plan_backward.c). */
void flyi_cuda_plan_backward(const fly_kernel_desc *desc, int shared_bytes, int argument_bytes,
                             flyi_cuda_sources sources, flyi_cuda_plan *plan);
/* And for the direction of few queries (nvptx_plan_split.c). */
void flyi_cuda_plan_split(const fly_kernel_desc *desc, int argument_bytes, flyi_cuda_plan *plan);
/* The PTX version that a target needs, times 10; 0: unknown. */
int flyi_cuda_ptx_version(const char *target);
/* What a mask or modifier decides about its templates: constants of theirs. */
typedef struct flyi_cuda_traits {
  int in_loop; /* 0: inlined for each pair that a thread holds; otherwise so many pairs a round of a loop */
  int tokens;
} flyi_cuda_traits;
/* Before it is joined with templates; set_variables: those of the plan. */
flyi_cuda_traits flyi_cuda_prepare(LLVMValueRef mask, bool set_variables);
/* A symbolic module and what it declares. module NULL: there is none. */
typedef struct flyi_symbolic {
  LLVMModuleRef module;
  const flyi_declarations *declarations;
} flyi_symbolic;
/* The same for a module with a modifier: it then holds float @modifier(float s, i32 b, i32 h, i32 q, i32 kv) or, with
 * the plan's `differentiate`, float @modifier_slope(..., ptr slope), and all functions that these call; the names of
 * its globals begin with FLYI_SCORE_PREFIX. On failure the module is still the caller's. */
#define FLYI_SCORE_PREFIX "score."
fly_status flyi_cuda_prepare_score(const flyi_symbolic *score, const flyi_cuda_plan *plan, flyi_cuda_traits *traits,
                                   fly_error *error);
/* When everything is inlined. */
fly_status flyi_cuda_place_variables(LLVMModuleRef module, fly_error *error);
/* From the symbolic modules (consumed) to PTX, or optimised IR, as text with a NUL. */
fly_status flyi_nvptx(flyi_symbolic mask, flyi_symbolic score, const flyi_cuda_plan *plan, const char *target,
                      fly_emit what, flyi_bytes *out, fly_error *error);

/* ---- emit (emit.c) ----------------------------------------------------------------------------------------------- */

const char *flyi_triple(flyi_isa isa);
const char *flyi_processor(flyi_isa isa); /* LLVM's name of it */
LLVMTargetMachineRef flyi_target_machine(flyi_isa isa, fly_error *error); /* NULL: failed */
/* An object file or, with `assembly`, its text. */
fly_status flyi_emit(LLVMModuleRef module, LLVMTargetMachineRef machine, bool assembly, flyi_bytes *out,
                     fly_error *error);

/* ---- jit (jit.c) ------------------------------------------------------------------------------------------------- */

/* Links the object into the process by ORC. */
fly_status flyi_jit_load(flyi_section object, flyi_code *out, fly_error *error);

/* ---- compile (compile.c, combine.c) ------------------------------------------------------------------------------ */

/* What a compilation is asked for, checked. */
typedef struct flyi_request {
  fly_compile_options options;
  flyi_isa isa;
  flyi_kind kind;
  const char *name; /* of the source */
  flyi_hash base;   /* of the mask's meaning without baked values */
  flyi_hash key;    /* in the cache */
} flyi_request;

/* Checks options (NULL: none) and completes the request: kind, name and base are the caller's. The key covers them, the
 * options that matter, and what compiles: the template, LLVM and clang, our build. */
fly_status flyi_request_check(const fly_compile_options *options, flyi_request *request, fly_error *error);
/* The mask from the cache; *out is NULL where there is none, or none that can be trusted. */
void flyi_request_cached(const flyi_request *request, fly_mask **out);
/* From the symbolic module (consumed) to a mask or modifier, and to the cache: all that follows verification. */
fly_status flyi_request_finish(const flyi_request *request, LLVMModuleRef module, flyi_declarations *declarations,
                               fly_mask **out, fly_error *error);
/* An object file of the symbolic module (consumed). */
fly_status flyi_make_object(LLVMModuleRef module, const flyi_declarations *declarations, flyi_isa isa, flyi_bytes *out,
                            fly_error *error);
/* A context that neither prints nor exits on errors. */
LLVMContextRef flyi_context_create(void);

/* ---- embedded files (embed.S) ------------------------------------------------------------------------------------ */

extern const char flyi_tile_bitcode[], flyi_tile_bitcode_end[]; /* templates/mask_tile.c */
extern const char flyi_fwd_cuda_bitcode[], flyi_fwd_cuda_bitcode_end[]; /* templates/attn_fwd_cuda.c */
extern const char flyi_fwd_f32_cuda_bitcode[], flyi_fwd_f32_cuda_bitcode_end[]; /* templates/attn_fwd_f32_cuda.c */
extern const char flyi_split_cuda_bitcode[], flyi_split_cuda_bitcode_end[];         /* templates/attn_split_cuda.c */
/* templates/attn_split_f32_cuda.c */
extern const char flyi_split_f32_cuda_bitcode[], flyi_split_f32_cuda_bitcode_end[];
extern const char flyi_bwd_rows_cuda_bitcode[], flyi_bwd_rows_cuda_bitcode_end[]; /* templates/attn_bwd_rows_cuda.c */
extern const char flyi_bwd_keys_cuda_bitcode[], flyi_bwd_keys_cuda_bitcode_end[]; /* templates/attn_bwd_keys_cuda.c */
extern const char flyi_bwd_keys_f32_cuda_bitcode[], flyi_bwd_keys_f32_cuda_bitcode_end[];
extern const char flyi_bwd_queries_f32_cuda_bitcode[], flyi_bwd_queries_f32_cuda_bitcode_end[];
/* templates/attn_bwd_queries_cuda.c */
extern const char flyi_bwd_queries_cuda_bitcode[], flyi_bwd_queries_cuda_bitcode_end[];
extern const char flyi_mask_header[], flyi_mask_header_end[];   /* include/flymask/mask.h, NUL-terminated */
extern const char flyi_score_bitcode[], flyi_score_bitcode_end[]; /* templates/score_tile.c */
extern const char flyi_math_bitcode[], flyi_math_bitcode_end[];   /* templates/score_math.c */
extern const char flyi_score_header[], flyi_score_header_end[];   /* include/flymask/score.h, NUL-terminated */

#endif
