/* nvptx_plan_split.c: the kernels for few queries and many keys on a CUDA device. Input: element type and dimensions.
 * Output: template, values of its constants, entries. Two blocks and more fit on a multiprocessor of every target, so
 * that loads of one run under the waits of another. */
#include "compiler.h"

enum { ROWS = 16, F32_KEYS = 32 };

static int multiple(int x, int of) { return (x + of - 1) / of * of; }
static int larger(int a, int b) { return a > b ? a : b; }
static int pitch(int width) { return multiple(width, 64) * 2; } /* as tile_pitch of cuda_tile.h */

static void set(flyi_cuda_part *part, const char *name, int value) {
  part->constants[part->constant_count].name = name;
  part->constants[part->constant_count++].value = value;
}

/* An entry for tensors of whole, aligned rows, and one for all others. */
static void add_entries(flyi_cuda_entry entry, bool whole, flyi_cuda_plan *plan) {
  entry.role = FLYI_CUDA_FORWARD_SPLIT, entry.outer = ROWS;
  entry.name = "fly_split", entry.needs = FLYI_CUDA_ALIGNED;
  if (whole) plan->entries[plan->entry_count++] = entry;
  entry.name = "fly_split_any", entry.needs = 0;
  plan->entries[plan->entry_count++] = entry;
}

static void plan_f32(const fly_kernel_desc *desc, int argument_bytes, flyi_cuda_plan *plan) {
  int depth = multiple(desc->head_dim, 4), width = multiple(desc->value_dim, 4);
  flyi_cuda_part *part = &plan->parts[plan->part_count++];
  part->bitcode = (flyi_section){flyi_split_f32_cuda_bitcode,
                                 (size_t)(flyi_split_f32_cuda_bitcode_end - flyi_split_f32_cuda_bitcode)};
  set(part, "split_dim", desc->head_dim), set(part, "split_value_dim", desc->value_dim);
  set(part, "split_depth", depth), set(part, "split_width", width);
  flyi_cuda_entry entry = {.inner = F32_KEYS,
                           .threads = 128,
                           .shared_bytes = 4 * ((ROWS + F32_KEYS) * (depth + 4) + F32_KEYS * (width + 4)),
                           .argument_bytes = argument_bytes};
  add_entries(entry, desc->head_dim % 4 == 0 && desc->value_dim % 4 == 0, plan);
}

static void plan_products(const fly_kernel_desc *desc, int argument_bytes, flyi_cuda_plan *plan) {
  int depth = multiple(desc->head_dim, 16), width = multiple(desc->value_dim, 16);
  int warps = larger(depth, width) <= 128 ? 4 : 2, keys = 16 * warps;
  int tiles = ROWS * pitch(depth) + 2 * keys * (pitch(depth) + pitch(width));
  int joining = 4 * warps * ROWS * (width + 8 + 2); /* outputs, tops and sums, in the same place */
  flyi_cuda_part *part = &plan->parts[plan->part_count++];
  part->bitcode = (flyi_section){flyi_split_cuda_bitcode,
                                 (size_t)(flyi_split_cuda_bitcode_end - flyi_split_cuda_bitcode)};
  set(part, "split_dim", desc->head_dim), set(part, "split_value_dim", desc->value_dim);
  set(part, "split_depth", depth), set(part, "split_width", width);
  set(part, "split_warps", warps), set(part, "split_keep_q", depth <= 128);
  set(part, "split_bf16", desc->type == FLY_BF16);
  flyi_cuda_entry entry = {
      .inner = keys, .threads = 32 * warps, .shared_bytes = larger(tiles, joining), .argument_bytes = argument_bytes};
  add_entries(entry, desc->head_dim % 8 == 0 && desc->value_dim % 8 == 0, plan);
}

void flyi_cuda_plan_split(const fly_kernel_desc *desc, int argument_bytes, flyi_cuda_plan *plan) {
  plan->set_tokens = true;
  plan->all_registers = true; /* some spill otherwise, for one block more on a multiprocessor */
  if (desc->type == FLY_F32)
    plan_f32(desc, argument_bytes, plan);
  else
    plan_products(desc, argument_bytes, plan);
}
