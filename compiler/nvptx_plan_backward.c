/* nvptx_plan_backward.c: the kernels of a backward pass on a CUDA device, one template for each role. Input: element
 * type, dimensions, what a block may have of shared memory. Output: templates, values of their constants, entries.
 *
 * Sums of gradients are what registers are for: 32 rows a warp up to 64 columns, 16 beyond; where dK and dV of 16
 * keys are more than a thread has registers for, they take two walks. A score modifier takes registers too. */
#include "compiler.h"

typedef struct shape {
  int blocks, warps, inner, stages, keep, split;
} shape;

static int multiple(int x, int of) { return (x + of - 1) / of * of; }
static int larger(int a, int b) { return a > b ? a : b; }
static int pitch(int width) { return multiple(width, 64) * 2; } /* as tile_pitch of cuda_tile.h */

enum { KEEP_FIRST = 1, KEEP_BOTH = 3 }; /* operands, as KEEP_K and KEEP_V of bwd_cuda.h */

/* What most of D and DV columns take. With 99 KiB of shared memory tensor units are half as fast: what is read of it
 * does not count, and registers are left for it. Beyond 128 columns 32 rows that pass by spill there, and leave no room
 * for a second stage. */
static shape keys_shape(int most, int shared_bytes, bool modified) {
  bool slow = shared_bytes < 128 << 10;
  if (most <= 64 && (modified || slow)) return (shape){1, 8, 32, 2, KEEP_BOTH, 0};
  if (most <= 64) return (shape){2, 4, 16, 2, KEEP_FIRST, 0}; /* both, or 32 rows that pass by, spill */
  if (most <= 128) return (shape){1, 8, 16, 2, modified ? 0 : slow ? KEEP_FIRST : KEEP_BOTH, 0};
  return (shape){1, 4, slow ? 16 : 32, 2, 0, 1};
}

static shape queries_shape(int most, int shared_bytes, bool modified) {
  bool slow = shared_bytes < 128 << 10;
  if (most <= 64) return modified ? (shape){2, 4, 32, 2, 0, 0} : (shape){2, 4, 16, 2, KEEP_BOTH, 0};
  if (most <= 128) return (shape){1, 8, 32, 2, KEEP_BOTH, 0};
  return (shape){1, 4, slow ? 16 : 32, 2, 0, 0};
}

static void set(flyi_cuda_part *part, const char *name, int value) {
  part->constants[part->constant_count].name = name;
  part->constants[part->constant_count++].value = value;
}

/* An entry for tensors of whole, aligned rows, and one for all others. */
static void add_entries(const fly_kernel_desc *desc, const char *aligned, const char *any, flyi_cuda_entry entry,
                        flyi_cuda_plan *plan) {
  entry.name = aligned, entry.needs = FLYI_CUDA_ALIGNED;
  int chunk = desc->type == FLY_F32 ? 4 : 8; /* of 16 bytes */
  if (desc->head_dim % chunk == 0 && desc->value_dim % chunk == 0) plan->entries[plan->entry_count++] = entry;
  entry.name = any, entry.needs = 0;
  plan->entries[plan->entry_count++] = entry;
}

/* shared: bytes beside the tiles. */
static flyi_cuda_entry plan_products(const fly_kernel_desc *desc, flyi_section bitcode, shape s, int shared,
                                     flyi_cuda_plan *plan) {
  flyi_cuda_part *part = &plan->parts[plan->part_count++];
  int depth = multiple(desc->head_dim, 16), width = multiple(desc->value_dim, 16);
  int least = 8 * (32 * s.warps / s.inner); /* as LEAST of bwd_cuda.h */
  int rows = pitch(larger(depth, least)) + pitch(larger(width, least));
  part->bitcode = bitcode;
  set(part, "bwd_dim", desc->head_dim), set(part, "bwd_value_dim", desc->value_dim);
  set(part, "bwd_depth", depth), set(part, "bwd_width", width);
  set(part, "bwd_blocks", s.blocks), set(part, "bwd_warps", s.warps), set(part, "bwd_inner", s.inner);
  set(part, "bwd_stages", s.stages), set(part, "bwd_keep", s.keep), set(part, "bwd_split", s.split);
  set(part, "bwd_type", desc->type);
  int outer = 16 * s.blocks * s.warps;
  return (flyi_cuda_entry){.outer = outer,
                           .inner = s.inner,
                           .threads = s.warps * 32,
                           .shared_bytes = outer * rows + s.stages * s.inner * rows + shared};
}

/* f32: as many rows and columns a thread as registers and shared memory take. keys: both P and dS pass through shared
 * memory there. */
static flyi_cuda_entry plan_f32(const fly_kernel_desc *desc, flyi_section bitcode, bool keys, flyi_cuda_plan *plan) {
  int depth = multiple(desc->head_dim, 32), width = multiple(desc->value_dim, 32), most = larger(depth, width);
  int rows = most <= 64 ? 4 : most <= 128 ? (keys ? 2 : 4) : keys ? 1 : 2; /* the sums of two gradients, or of one */
  int columns = most <= 64 ? 4 : most <= 128 || keys ? 2 : 1, stages = most <= 64 && !keys ? 2 : 1;
  int outer = 16 * rows, inner = 8 * columns;
  flyi_cuda_part *part = &plan->parts[plan->part_count++];
  part->bitcode = bitcode;
  set(part, "bwd_dim", desc->head_dim), set(part, "bwd_value_dim", desc->value_dim), set(part, "bwd_type", FLY_F32);
  set(part, "f32_depth", depth), set(part, "f32_width", width);
  set(part, "f32_rows", rows), set(part, "f32_columns", columns), set(part, "f32_stages", stages);
  return (flyi_cuda_entry){
      .outer = outer,
      .inner = inner,
      .threads = 128,
      .shared_bytes = 4 * ((outer + stages * inner) * (depth + 4 + width + 4) + (keys ? 2 : 1) * outer * (inner + 4))};
}

static void plan_rows(const fly_kernel_desc *desc, int argument_bytes, flyi_cuda_plan *plan) {
  enum { WARPS = 4, EACH = 8 };
  flyi_cuda_part *part = &plan->parts[plan->part_count++];
  part->bitcode = (flyi_section){flyi_bwd_rows_cuda_bitcode,
                                 (size_t)(flyi_bwd_rows_cuda_bitcode_end - flyi_bwd_rows_cuda_bitcode)};
  set(part, "bwd_value_dim", desc->value_dim), set(part, "bwd_type", desc->type);
  set(part, "bwd_row_warps", WARPS), set(part, "bwd_row_each", EACH);
  flyi_cuda_entry entry = {.name = "fly_backward_rows",
                           .role = FLYI_CUDA_BACKWARD_ROWS,
                           .outer = WARPS * EACH,
                           .threads = WARPS * 32,
                           .argument_bytes = argument_bytes};
  plan->entries[plan->entry_count++] = entry;
  entry.name = "fly_backward_finish", entry.role = FLYI_CUDA_BACKWARD_FINISH;
  plan->entries[plan->entry_count++] = entry;
  entry.name = "fly_backward_sink", entry.role = FLYI_CUDA_BACKWARD_SINK;
  entry.outer = 1, entry.shared_bytes = WARPS * 8;
  plan->entries[plan->entry_count++] = entry;
}

#define BITCODE(name) ((flyi_section){name, (size_t)(name##_end - name)})

void flyi_cuda_plan_backward(const fly_kernel_desc *desc, int shared_bytes, int argument_bytes,
                             flyi_cuda_sources sources, flyi_cuda_plan *plan) {
  int most = multiple(larger(desc->head_dim, desc->value_dim), 16);
  flyi_cuda_entry keys, queries;
  plan_rows(desc, argument_bytes, plan);
  plan->set_tokens = true;
  if (desc->type == FLY_F32) {
    keys = plan_f32(desc, BITCODE(flyi_bwd_keys_f32_cuda_bitcode), true, plan);
    queries = plan_f32(desc, BITCODE(flyi_bwd_queries_f32_cuda_bitcode), false, plan);
    plan->all_registers = true; /* it spills some otherwise, for more blocks than shared memory lets in */
  } else {
    shape s = keys_shape(most, shared_bytes, sources.modified);
    int stats = s.stages * s.inner * 12 + 16 * s.blocks * s.warps * 4; /* -LSE, delta; tokens of both sides */
    keys = plan_products(desc, BITCODE(flyi_bwd_keys_cuda_bitcode), s, stats, plan);
    s = queries_shape(most, shared_bytes, sources.modified);
    queries = plan_products(desc, BITCODE(flyi_bwd_queries_cuda_bitcode), s, 0, plan);
  }
  keys.role = FLYI_CUDA_BACKWARD_KEYS, keys.argument_bytes = argument_bytes;
  queries.role = FLYI_CUDA_BACKWARD_QUERIES, queries.argument_bytes = argument_bytes;
  add_entries(desc, "fly_backward_keys", "fly_backward_keys_any", keys, plan);
  add_entries(desc, "fly_backward_queries", "fly_backward_queries_any", queries, plan);
}
