/* nvptx_plan.c: which kernels a mask is made into on a CUDA device. Input: element type, dimensions, direction, target.
 * Output: the template, values of its constants, and the entries of the image.
 *
 * Shapes are those whose inner loops are limited by the tensor units on paper (bench/ptx_report), within the registers
 * of a thread (255) and the shared memory that every device of the target has. */
#include <stdio.h>
#include <string.h>

#include "compiler.h"

/* What a compute capability needs and has. ptx: the first PTX version that knows it, times 10. */
typedef struct device {
  int number, ptx, shared_bytes; /* shared: of one block */
} device;

static const device devices[] = {
    {80, 70, 163 << 10},  {86, 71, 99 << 10},  {87, 74, 163 << 10}, {89, 78, 99 << 10}, {90, 78, 227 << 10},
#if FLYI_LLVM_MAJOR >= 20
    {100, 86, 227 << 10}, {120, 87, 99 << 10},
#endif
};

/* To the letter: LLVM ends the process for "sm_080", which it does not know. */
static const device *device_of(const char *target) {
  for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
    char name[16];
    snprintf(name, sizeof name, "sm_%d", devices[i].number);
    if (strcmp(target, name) == 0) return &devices[i];
  }
  return NULL;
}

int flyi_cuda_ptx_version(const char *target) {
  const device *d = device_of(target);
  return d ? d->ptx : 0;
}

/* ---- making a plan ----------------------------------------------------------------------------------------------- */

static void set(flyi_cuda_part *part, const char *name, int value) {
  part->constants[part->constant_count].name = name;
  part->constants[part->constant_count++].value = value;
}

static void add(flyi_cuda_plan *plan, flyi_cuda_entry entry) { plan->entries[plan->entry_count++] = entry; }

static int multiple(int x, int of) { return (x + of - 1) / of * of; }
static int larger(int a, int b) { return a > b ? a : b; }
static int pitch(int width) { return multiple(width, 64) * 2; } /* as tile_pitch of cuda_tile.h */

/* ---- forward ----------------------------------------------------------------------------------------------------- */

typedef struct forward_shape {
  int blocks, warps, keys, stages, keep_q;
} forward_shape;

/* 32 queries a warp halve what is read of K and V; from 129 columns on, registers take 16. A modifier's tables take
 * registers in all tiles: half the scores then. */
static forward_shape shape_of(int depth, int width, const device *d, bool tables) {
  int most = larger(depth, width);
  if (most <= 64 && tables) return (forward_shape){2, 4, 32, 2, 0};
  if (most <= 128 && tables) return (forward_shape){1, 8, 32, 2, 0};
  if (most <= 64) return (forward_shape){2, 4, 64, 2, 0};
  if (most <= 128 && d->shared_bytes < 128 << 10) return (forward_shape){1, 8, 32, 2, 0}; /* half the tensor units */
  if (most <= 128) return (forward_shape){2, 4, 32, 2, 0};
  return (forward_shape){1, 8, 32, most <= 192 ? 2 : 1, 0};
}

static void plan_forward(const fly_kernel_desc *desc, const device *d, int argument_bytes, bool tables,
                         flyi_cuda_plan *plan) {
  int depth = multiple(desc->head_dim, 16), width = multiple(desc->value_dim, 16);
  forward_shape s = shape_of(depth, width, d, tables);
  int queries = 16 * s.blocks * s.warps;
  flyi_cuda_part *part = &plan->parts[plan->part_count++];
  plan->set_tokens = true;
  plan->all_registers = tables; /* it spills some otherwise, for a third block */
  part->bitcode = (flyi_section){flyi_fwd_cuda_bitcode, (size_t)(flyi_fwd_cuda_bitcode_end - flyi_fwd_cuda_bitcode)};
  set(part, "fwd_dim", desc->head_dim), set(part, "fwd_value_dim", desc->value_dim);
  set(part, "fwd_depth", depth), set(part, "fwd_width", width);
  set(part, "fwd_blocks", s.blocks), set(part, "fwd_warps", s.warps), set(part, "fwd_keys", s.keys);
  set(part, "fwd_stages", s.stages), set(part, "fwd_keep_q", s.keep_q);
  set(part, "fwd_bf16", desc->type == FLY_BF16);
  flyi_cuda_entry entry = {.name = "fly_forward",
                           .role = FLYI_CUDA_FORWARD,
                           .needs = FLYI_CUDA_ALIGNED,
                           .outer = queries,
                           .inner = s.keys,
                           .threads = s.warps * 32,
                           .shared_bytes = queries * pitch(depth) + s.stages * s.keys * (pitch(depth) + pitch(width)),
                           .argument_bytes = argument_bytes};
  if (desc->head_dim % 8 == 0 && desc->value_dim % 8 == 0) add(plan, entry);
  entry.name = "fly_forward_any", entry.needs = 0;
  add(plan, entry);
}

/* f32: as many queries and keys a thread as registers and shared memory take. */
static void plan_forward_f32(const fly_kernel_desc *desc, int argument_bytes, flyi_cuda_plan *plan) {
  int depth = multiple(desc->head_dim, 4), width = multiple(desc->value_dim, 32);
  int each = larger(depth, width) <= 128 ? 4 : 2, queries = 16 * each, keys = 8 * each;
  flyi_cuda_part *part = &plan->parts[plan->part_count++];
  plan->set_tokens = true;
  plan->all_registers = true; /* it spills some otherwise, for more blocks than shared memory lets in */
  part->bitcode = (flyi_section){flyi_fwd_f32_cuda_bitcode,
                                 (size_t)(flyi_fwd_f32_cuda_bitcode_end - flyi_fwd_f32_cuda_bitcode)};
  set(part, "f32_dim", desc->head_dim), set(part, "f32_value_dim", desc->value_dim);
  set(part, "f32_depth", depth), set(part, "f32_width", width);
  set(part, "f32_rows", each), set(part, "f32_columns", each);
  flyi_cuda_entry entry = {.name = "fly_forward",
                           .role = FLYI_CUDA_FORWARD,
                           .needs = FLYI_CUDA_ALIGNED,
                           .outer = queries,
                           .inner = keys,
                           .threads = 128,
                           .shared_bytes = 4 *
                                           ((queries + keys) * (depth + 4) + keys * (width + 4) + queries * (keys + 4)),
                           .argument_bytes = argument_bytes};
  if (desc->head_dim % 4 == 0 && desc->value_dim % 4 == 0) add(plan, entry);
  entry.name = "fly_forward_any", entry.needs = 0;
  add(plan, entry);
}

/* ---- all --------------------------------------------------------------------------------------------------------- */

fly_status flyi_cuda_plan_make(const fly_kernel_desc *desc, flyi_direction direction, const char *target,
                               flyi_cuda_sources sources, flyi_cuda_plan *plan, fly_error *error) {
  const device *d = device_of(target);
  int64_t bytes = flyi_cuda_argument_size(sources.slots);
  *plan = (flyi_cuda_plan){0};
  if (!d)
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED,
                     "target %s: this build compiles for sm_80, sm_86, sm_87, sm_89%s; newer devices run sm_90", target,
                     FLYI_LLVM_MAJOR >= 20 ? ", sm_90, sm_100 and sm_120" : " and sm_90");
  if (bytes > FLYI_CUDA_MAX_ARGUMENT)
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED,
                     "the parameters and buffers of the mask%s take %d slots, and a CUDA kernel's argument has room "
                     "for %d (a parameter takes 1, a buffer %d): declare fewer",
                     sources.modified ? " and the score modifier" : "", sources.slots,
                     (int)((FLYI_CUDA_MAX_ARGUMENT - flyi_cuda_argument_size(0)) / 8), FLYI_BUFFER_SLOTS);
  if (direction == FLYI_DIRECTION_SPLIT && sources.modified)
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED, "the kernels that split keys know no score modifier");
  if (direction == FLYI_DIRECTION_SPLIT)
    flyi_cuda_plan_split(desc, (int)bytes, plan);
  else if (direction == FLYI_DIRECTION_FORWARD && desc->type == FLY_F32)
    plan_forward_f32(desc, (int)bytes, plan);
  else if (direction == FLYI_DIRECTION_FORWARD)
    plan_forward(desc, d, (int)bytes, sources.tables, plan);
  else
    flyi_cuda_plan_backward(desc, d->shared_bytes, (int)bytes, sources, plan);
  plan->differentiate = direction == FLYI_DIRECTION_BACKWARD;
  return FLY_OK;
}
