/* cuda_rows.c: launches of the kernels that no mask is joined with (templates/merge_ptx.c, gate_ptx.c, project_ptx.c,
 * choose_ptx.c). Input: a kernel and its argument. Output: work on the stream. Their PTX is part of the library; a
 * module is loaded once a handle. */
#include <inttypes.h>
#include <stdlib.h>

#include "cuda.h"

/* Made from the templates when the library is built. */
extern const char flyi_merge_ptx[], flyi_gate_ptx[], flyi_project_ptx[], flyi_choose_ptx[];

enum { MERGE, GATE, PROJECT, CHOOSE, MODULES, MOST_KERNELS = 3 /* of a module */ };

/* The PTX is for the lowest target, which every device runs. */
static const char target[] = "sm_80";

static const struct {
  int module, place; /* in the module's list */
} kernels[] = {[FLYI_ROWS_MERGE] = {MERGE, 0},    [FLYI_ROWS_MERGE_BACKWARD] = {MERGE, 1},
               [FLYI_ROWS_GATE] = {GATE, 0},      [FLYI_ROWS_GATE_BACKWARD] = {GATE, 1},
               [FLYI_ROWS_ZERO] = {GATE, 2},      [FLYI_ROWS_PRODUCT] = {PROJECT, 0},
               [FLYI_ROWS_SLICES] = {PROJECT, 1}, [FLYI_ROWS_MEANS] = {CHOOSE, 0},
               [FLYI_ROWS_CHOOSE] = {CHOOSE, 1}};

static const char *const names[MODULES][MOST_KERNELS] = {
    [MERGE] = {"fly_merge_rows", "fly_merge_rows_backward"},
    [GATE] = {"fly_gate_rows", "fly_gate_rows_backward", "fly_zero_rows"},
    [PROJECT] = {"fly_gate_product", "fly_gate_slices"},
    [CHOOSE] = {"fly_block_means", "fly_choose_blocks"}};

static fly_status find_functions(fly_cuda *cuda, int module, flyi_resident *made, fly_error *error) {
  made->function = flyi_alloc(MOST_KERNELS, sizeof *made->function);
  if (!made->function) return flyi_no_memory(error);
  for (int i = 0; i < MOST_KERNELS && names[module][i]; i++) {
    int code = cuda->driver.module_function(&made->function[i], made->module, names[module][i]);
    if (code) return flyi_cuda_fail(&cuda->driver, code, error, "kernel %s", names[module][i]);
  }
  return FLY_OK;
}

/* The lock is held. */
static fly_status load(fly_cuda *cuda, int module, flyi_resident **out, fly_error *error) {
  const char *const texts[] = {
      [MERGE] = flyi_merge_ptx, [GATE] = flyi_gate_ptx, [PROJECT] = flyi_project_ptx, [CHOOSE] = flyi_choose_ptx};
  flyi_resident made = {.cuda = cuda, .key = {(uint64_t)module, 0}};
  fly_status status = flyi_cuda_load_text(cuda, texts[module], target, &made.module, error);
  if (status) return status;
  status = find_functions(cuda, module, &made, error);
  if (!status) status = flyi_resident_add(&cuda->own, &made, out, error);
  if (status) {
    cuda->driver.module_unload(made.module);
    free(made.function);
  }
  return status;
}

fly_status flyi_cuda_run_blocks(fly_cuda *cuda, flyi_cuda_stream stream, flyi_cuda_rows_kernel kernel,
                                const void *argument, int64_t blocks, unsigned shared, fly_error *error) {
  int module = kernels[kernel].module;
  const char *name = names[module][kernels[kernel].place];
  fly_status status = FLY_OK;
  if (blocks == 0) return FLY_OK;
  if (blocks > INT32_MAX)
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED, "%s takes %" PRId64 " blocks: on a GPU %d at most", name, blocks,
                     INT32_MAX);
  pthread_mutex_lock(&cuda->lock);
  flyi_resident *r = flyi_resident_find(&cuda->own, cuda, (flyi_hash){(uint64_t)module, 0});
  if (!r) status = load(cuda, module, &r, error);
  pthread_mutex_unlock(&cuda->lock);
  if (status) return status;
  void *params[] = {(void *)(uintptr_t)argument};
  int code = cuda->driver.launch(r->function[kernels[kernel].place], (unsigned)blocks, 1, 1, FLYI_ROWS_THREADS, 1, 1,
                                 shared, stream, params, NULL);
  if (code) return flyi_cuda_fail(&cuda->driver, code, error, "kernel %s of %" PRId64 " blocks", name, blocks);
  return FLY_OK;
}

fly_status flyi_cuda_run_rows(fly_cuda *cuda, flyi_cuda_stream stream, flyi_cuda_rows_kernel kernel,
                              const void *argument, int64_t rows, fly_error *error) {
  int64_t blocks = (rows + FLYI_ROWS_WARPS - 1) / FLYI_ROWS_WARPS;
  if (blocks > INT32_MAX)
    return flyi_fail(error, FLY_ERROR_UNSUPPORTED, "%" PRId64 " rows: on a GPU a call takes %" PRId64, rows,
                     (int64_t)INT32_MAX * FLYI_ROWS_WARPS);
  return flyi_cuda_run_blocks(cuda, stream, kernel, argument, blocks, 0, error);
}
