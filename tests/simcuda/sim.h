/* sim.h: the simulator's inside, from a decoded kernel to its execution. A kernel is decoded once into `instr`s,
 * whose handler carries out one instruction for the 32 lanes of a warp: registers are arrays of lanes, a mask says
 * which lanes take part. Every check that fails goes through `fault`, which ends the launch and keeps the first
 * report. */
#ifndef SIMCUDA_SIM_H
#define SIMCUDA_SIM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "driver.h"
#include "ptx.h"
#include "simcuda.h"

/* --- limits and the address map ------------------------------------------------------------------ */
enum { LANES = 32, MAX_WARPS = 32, BARRIERS = 16, SHARED_BASE = 1024, MAX_SRC = 10, MAX_DST = 4 };
#define ALL_LANES 0xffffffffu
#define WINDOW_BYTES (UINT64_C(1) << 32)
#define SHARED_WINDOW UINT64_C(0x0b0000000000)
#define LOCAL_WINDOW UINT64_C(0x0c0000000000)
#define PARAM_WINDOW UINT64_C(0x0d0000000000)

/* --- device memory (memory.c) -------------------------------------------------------------------- */
typedef enum memory_kind { MEMORY_DEVICE, MEMORY_PINNED, MEMORY_VARIABLE, MEMORY_CONST } memory_kind;
typedef struct touched {
  atomic_uint_fast64_t writer, reader; /* of a word: the last plain store and load (access.c); 0: none */
} touched;
typedef struct allocation {
  uint64_t base, size;
  uint8_t *host; /* what backs it; NULL once freed */
  memory_kind kind;
  bool freed;
  void *context;
  _Atomic(touched *) touched; /* by word; NULL: no kernel has stored there */
  struct allocation *next;
} allocation;

allocation *memory_create(uint64_t size, memory_kind kind, void *context); /* filled with 0xff */
bool memory_destroy(uint64_t base, memory_kind kind);                      /* false: `base` begins nothing alive */
allocation *memory_find(uint64_t address); /* also a freed one; NULL: nothing was ever there */
/* An allocation's words, made when first wanted; NULL: no memory. */
touched *memory_touched(allocation *a);
void memory_forget_touched(void);
uint64_t memory_in_use(void);
void memory_count(simcuda_counts *counts);
void memory_drop_context(void *context);

/* --- a decoded kernel (decode.c) ----------------------------------------------------------------- */
typedef struct warp warp;
typedef struct instr instr;
typedef void run_fn(warp *w, const instr *i);

/* Values an instruction names. Until decode is finished an operand is an index into the program's values; afterwards
 * it is a byte offset into a warp's register file. */
typedef enum value_kind { VALUE_REG, VALUE_CONST, VALUE_SPECIAL } value_kind;
typedef struct value {
  value_kind kind;
  uint8_t width; /* 4 or 8 bytes a lane */
  bool predicate;
  bool dynamic_shared; /* a constant relative to where dynamic shared memory begins */
  uint64_t bits;       /* constant; or which special register */
  uint32_t offset;     /* in the register file */
  uint32_t tracked;    /* offset of the mask of initialised lanes; 0: no need */
  const char *name;
  uint32_t number; /* of a register within its function */
} value;

typedef struct init_check init_check;

struct instr {
  run_fn *run;
  uint32_t s[MAX_SRC], d[MAX_DST];
  uint32_t guard;    /* predicate; 0: none */
  uint32_t target;   /* of a branch */
  int64_t imm;       /* offset of an address; a handler's number */
  const void *extra; /* a handler's table */
  init_check *check; /* registers that may be uninitialised */
  uint32_t line;
  uint8_t ns, nd;
  bool guard_negated, special; /* special: has a guard or a check */
  bool ends;                   /* control never goes on to the next instruction, but for lanes a guard leaves out */
  bool branches, moves;        /* moves: hands an uninitialised value on, which is no use of it */
  bool wide;                   /* 64-bit address register */
  uint8_t space, bytes, count, mode, type;
  const char *text;
};

struct init_check {
  uint32_t src_count, dst_count;
  uint32_t src[MAX_SRC + 1], dst[MAX_DST]; /* offsets of masks; 0: always initialised */
  const char *src_name[MAX_SRC + 1];
  uint32_t src_number[MAX_SRC + 1];
};

typedef struct code_function { /* a function's part of a program */
  const ptx_function *source;
  uint32_t begin, end, value_first;
  uint32_t return_value; /* register with the instruction to return to */
  uint32_t locals;       /* where its .local and .param variables begin in a lane's local memory */
} code_function;

typedef struct program {
  const ptx_function *entry;
  struct sim_module *module;
  instr *code;
  uint32_t count, room;
  value *values;
  uint32_t value_count, value_room;
  uint32_t *const_hash;
  uint32_t const_room;
  code_function *functions;
  uint32_t function_count;
  uint32_t register_bytes; /* of a warp */
  uint32_t tracked_first, tracked_bytes;
  uint32_t registers; /* 32-bit registers a thread would need at least: what is alive at once */
  uint32_t shared_static, local_bytes, param_bytes;
  uint32_t dynamic_align;
  bool communicates;    /* blocks can synchronise: global atomics or ordered accesses */
  uint32_t max_dynamic; /* set by cuFuncSetAttribute */
  char error[400];      /* why it cannot run; "" where it can */
  uint32_t error_line;
  struct program *next;
} program;

typedef struct sim_module {
  ptx_module *ptx;
  allocation **globals;
  uint32_t global_count;
  program *programs;
  void *context;
} sim_module;

program *program_create(sim_module *module, const ptx_function *entry); /* NULL: out of memory; else see its error */
void program_release(program *p);
bool program_order(program *p);   /* cfg.c: blocks in an order in which lanes that part meet again */
bool program_analyse(program *p); /* analyse.c: liveness, register slots, uses of uninitialised registers */

/* --- decoding one instruction -------------------------------------------------------------------- */
typedef struct decoder {
  sim_module *module;
  program *p;
  code_function *function;
  const ptx_instr *in;
  instr *out;
  uint32_t mod; /* the next modifier */
  bool failed;
} decoder;
typedef bool decode_fn(decoder *d);

bool decode_fail(decoder *d, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool mod_take(decoder *d, const char *name); /* is it the next modifier? */
bool mod_last_is(const decoder *d, const char *name);
ptx_type mod_type(decoder *d); /* takes a type; T_NONE and failed where there is none */
ptx_type mod_last_type(const decoder *d);
bool want_operands(decoder *d, uint32_t least, uint32_t most);
/* Appends the operand as a source or destination of the width of `type`; relaxed: the register may be wider. */
bool use(decoder *d, const ptx_operand *o, ptx_type type);
bool use_relaxed(decoder *d, const ptx_operand *o, ptx_type type);
bool def(decoder *d, const ptx_operand *o, ptx_type type);
bool def_relaxed(decoder *d, const ptx_operand *o, ptx_type type);
bool use_predicate(decoder *d, const ptx_operand *o); /* a !p becomes mode |= 0x80 */
bool use_address(decoder *d, const ptx_operand *o);   /* base in s, offset in imm, wide */
void use_constant(decoder *d, uint64_t bits, unsigned width);
void def_scratch(decoder *d, unsigned width);
unsigned operand_width(const decoder *d, const ptx_operand *o); /* 4 or 8; 0: no register */
bool decode_done(decoder *d, run_fn *run);                      /* all modifiers taken? sets the handler */
bool decode_int_constant(decoder *d, const ptx_operand *o, int64_t *value);
uint32_t label_number(decoder *d, const char *name); /* the label's instruction */

decode_fn decode_add, decode_mul, decode_mad, decode_int2, decode_int1, decode_div, decode_min, decode_neg,
    decode_carry;
decode_fn decode_bits2, decode_not, decode_shift, decode_lop3, decode_prmt, decode_shf, decode_bfe, decode_bfi,
    decode_bmsk;
decode_fn decode_mov, decode_selp, decode_slct, decode_setp, decode_set, decode_cvta, decode_isspacep, decode_testp;
decode_fn decode_copysign, decode_dot;
decode_fn decode_cvt, decode_fma, decode_approx, decode_float_add, decode_float_mul, decode_float_min, decode_float_neg;
decode_fn decode_float_div, decode_half;
decode_fn decode_ld, decode_st, decode_atom, decode_red, decode_nothing, decode_fence;
decode_fn decode_shfl, decode_vote, decode_match, decode_activemask, decode_redux, decode_elect;
decode_fn decode_mma, decode_ldmatrix, decode_stmatrix, decode_movmatrix, decode_cp, decode_mbarrier;
decode_fn decode_bra, decode_brx, decode_call, decode_ret, decode_exit, decode_trap, decode_bar;

/* --- execution (machine.c) ----------------------------------------------------------------------- */
typedef struct launch launch;
typedef struct shadow shadow;
typedef struct copy_queue copy_queue;
typedef struct mbarrier mbarrier;
typedef struct flag_clocks flag_clocks;

typedef struct named_barrier {
  uint32_t expected, arrived;  /* threads; expected 0: not in use */
  uint32_t seen[MAX_WARPS];    /* lanes that have arrived */
  uint32_t waiting[MAX_WARPS]; /* those of them that wait */
  const instr *by[MAX_WARPS];  /* the instruction a warp waits in */
  uint32_t clocks[MAX_WARPS];
  uint32_t trues; /* bar.red: threads whose predicate holds */
  uint32_t line;
} named_barrier;

typedef struct cta {
  launch *run;
  const program *p;
  uint64_t index;
  uint32_t id[3], warps;
  warp *warp;
  uint8_t *shared; /* SHARED_BASE bytes before it are not accessible */
  uint32_t shared_bytes;
  shadow *shadow;
  named_barrier barriers[BARRIERS];
  mbarrier *mbarriers;
  uint32_t mbarrier_count, mbarrier_room;
  flag_clocks *flags; /* sync.c */
  uint32_t flag_count, flag_room;
  uint64_t instructions, random;
  bool progress; /* something happened in this round that others may wait for */
} cta;

typedef enum lane_state { LANE_READY, LANE_BARRIER, LANE_EXITED } lane_state;

struct warp {
  uint8_t *regs;
  const int32_t *m;                 /* lanes of the instruction in work: -1 or 0 */
  uint32_t active;                  /* the same as bits */
  uint32_t pc, limit;               /* next instruction; the group must be settled anew when pc reaches limit */
  uint32_t group;                   /* lanes that run together now */
  uint32_t exists, exited, blocked; /* blocked: in a barrier */
  uint32_t lane_pc[LANES];
  uint32_t depth[LANES]; /* of calls */
  bool yield, failed;
  bool polling; /* its last look at an mbarrier was in vain: that it goes on looping is no progress */
  uint32_t index;
  cta *cta;
  uint8_t *local;
  uint32_t fuel;
  uint64_t executed;
  uint32_t clocks[MAX_WARPS];   /* vector clock; clocks[index] is its own time */
  uint32_t released[MAX_WARPS]; /* clocks at its last fence */
  uint32_t found[MAX_WARPS];    /* what came with flags it has read */
  copy_queue *copies;
  uint32_t fenced; /* what it wrote up to then is seen by the async proxy */
  _Alignas(64) int32_t lanes[LANES];
  _Alignas(64) int32_t guarded[LANES];
  _Alignas(64) uint32_t carry[LANES];
};

struct launch {
  const program *p;
  const char *kernel;
  uint32_t grid[3], block[3], dynamic, total_shared;
  uint8_t *params;
  simcuda_config config;
  atomic_uint_fast64_t next_cta, instructions;
  uint64_t ctas, serial; /* serial: which launch of the process */
  atomic_int failed;
  CUresult result;
  char report[700];
};

CUresult launch_run(launch *run); /* launch.c: all blocks; report is set on failure */
bool cta_create(cta *c, launch *run);
void cta_destroy(cta *c);
void cta_run(cta *c, uint64_t index);

/* Ends the launch. lane -1: the warp. */
void fault(warp *w, const instr *i, int lane, CUresult code, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
void warp_stop(warp *w);                                     /* leaves the loop after this instruction */
void warp_diverge(warp *w, uint32_t taken, uint32_t target); /* lanes `taken` go to target, the others on */
void warp_exit(warp *w, uint32_t lanes);
bool need_whole_warp(warp *w, const instr *i); /* for .aligned: false after a fault */
uint64_t random_next(uint64_t *state);

static inline void *reg(const warp *w, uint32_t offset) { return w->regs + offset; }
static inline uint32_t *r32(const warp *w, uint32_t offset) { return (uint32_t *)(void *)(w->regs + offset); }
static inline uint64_t *r64(const warp *w, uint32_t offset) { return (uint64_t *)(void *)(w->regs + offset); }

#ifdef __clang__
#define VECTOR _Pragma("clang loop vectorize(assume_safety)") for (int l = 0; l < LANES; l++)
#else
#define VECTOR _Pragma("GCC ivdep") for (int l = 0; l < LANES; l++)
#endif
/* Visits the lanes whose bit is set. */
#define EACH_LANE(bits)                                                                                                \
  for (uint32_t bits_ = (bits), l = 0; bits_ && ((l = (uint32_t)__builtin_ctz(bits_)), 1); bits_ &= bits_ - 1)

/* --- memory as kernels see it (access.c, shared.c) ----------------------------------------------- */
enum { ACCESS_READ = 1, ACCESS_WRITE = 2, ACCESS_ATOMIC = 4 };
void lane_addresses(const warp *w, const instr *i, uint32_t at, uint64_t address[LANES]); /* s[at] + imm */
/* Host memory behind a lane's bytes, checked (kind: of access): space, bounds, alignment, life. NULL after a
 * fault. */
uint8_t *data_at(warp *w, const instr *i, int lane, ptx_space space, uint64_t address, uint32_t bytes, uint32_t align,
                 int kind);
/* The same for an atomic operation, whose caller has recorded it where it is in shared memory. */
uint8_t *atomic_at(warp *w, const instr *i, int lane, ptx_space space, uint64_t address, uint32_t bytes);

bool shadow_create(shadow **s, uint32_t bytes, uint32_t warps, bool races);
void shadow_release(shadow *s);
void shadow_reset(shadow *s);
/* Checks one access of a lane (-1: all lanes of the warp together), and records it. False after a fault. */
bool shadow_access(warp *w, const instr *i, int lane, uint32_t address, uint32_t bytes, int kind);
bool shadow_begin_copy(warp *w, const instr *i, int lane, uint32_t address, uint32_t bytes);
/* The source of an asynchronous copy from shared memory: read until its end. */
bool shadow_begin_source(warp *w, const instr *i, int lane, uint32_t address, uint32_t bytes);
void shadow_end_source(warp *w, uint32_t address, uint32_t bytes);
void shadow_end_copy(warp *w, int lane, uint32_t address, uint32_t bytes);
void clocks_join(uint32_t *into, const uint32_t *from, uint32_t warps);
void clocks_release(warp *w); /* its own time goes on */

/* sync.c. order: of a strong access to shared memory: relaxed or volatile, or with acquire or release. */
enum { ORDER_WEAK, ORDER_RELAXED, ORDER_STRONG };
void sync_reset(cta *c);
void sync_fence(warp *w);
void sync_load(warp *w, uint32_t address, int order);
void sync_store(warp *w, uint32_t address, int order, bool also_reads);

/* --- asynchronous copies (async.c), mbarriers (mbarrier.c) --------------------------------------- */
copy_queue *copies_create(void);
void copies_destroy(copy_queue *q);
void copies_reset(copy_queue *q);
/* Copies of the lanes' groups older than the newest `keep` land; -1: all, committed or not. */
void copies_wait(warp *w, uint32_t lanes, int keep);
void copies_wait_stores(warp *w, uint32_t lanes, int keep);
bool copies_pending(const warp *w);
void copies_random(warp *w);                        /* lets some land, where copies land at random */
void copies_exit(warp *w, uint32_t lanes);          /* a thread that ends leaves its copies to land */
void copies_for_mbarrier(cta *c, uint32_t address); /* those that complete on it land */
void mbarriers_reset(cta *c);
bool mbarrier_prepare(warp *w, const instr *i, int lane, uint32_t address,
                      bool more);                                          /* more: one more arrival is pending */
bool mbarrier_fenced(warp *w, const instr *i, int lane, uint32_t address); /* seen by the async proxy? else a fault */
void mbarrier_arrive_async(warp *w, uint32_t address);
void mbarrier_complete_bytes(warp *w, uint32_t address, uint32_t bytes);

/* --- number formats (format.c) ------------------------------------------------------------------- */
typedef enum rounding { RN, RZ, RM, RP, RNA } rounding;
float from_f16(uint16_t h);
uint16_t to_f16(double x, rounding mode);
uint16_t to_bf16(double x, rounding mode);
uint32_t to_tf32(float x, rounding mode);
static inline float as_f32(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
static inline uint32_t bits_f32(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}
/* An f16's value as the bits of an f32, without branches. */
static inline uint32_t f16_bits(uint32_t h) {
  uint32_t sign = h << 16 & 0x80000000, a = h & 0x7fff;
  return sign | (a >= 0x7c00 ? 0x7f800000 | a << 13 : bits_f32(as_f32(a << 13) * 0x1p112f));
}
static inline float from_bf16(uint16_t h) { return as_f32((uint32_t)h << 16); }
/* One operation under another rounding: op is + - * / or s (square root), f (a * b + c). */
float round_f32(char op, float a, float b, float c, rounding mode);
double round_f64(char op, double a, double b, double c, rounding mode);
static inline float flush(float x) { return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0, x) : x; }

#endif
