/* carry.c: block maps that come from files and go to files: a bitmap, FlexAttention's arrays, text. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"

/* The attributes of FlexAttention's BlockMask; NAME.npy in a directory. The first four are enough to read. */
static const char *const names[] = {"kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices",
                                    "q_num_blocks",  "q_indices",  "full_q_num_blocks",  "full_q_indices"};
enum { READ = 4 };

/* ---- reading ----------------------------------------------------------------------------------------------------- */

void map_source_free(map_source *source) {
  for (int i = 0; i < READ; i++) npy_free(&source->array[i]);
  fly_buffer_release(&source->bitmap);
  *source = (map_source){0};
}

static fly_status read_bitmap(const char *path, map_source *out, fly_error *error) {
  npy_array *a = &out->array[0];
  fly_status status = npy_read(path, a, error);
  if (status == FLY_OK && fly_type_size(a->type) != 1) status = npy_convert(a, FLY_U8, path, error);
  if (status != FLY_OK) return status;
  if (a->rank != 2 && a->rank != 4)
    return fail(error, FLY_ERROR_ARGUMENT, path, "a bitmap has 2 or 4 dimensions ([Q, KV] or [B, H, Q, KV]), not %d",
                a->rank);
  out->batch = a->rank == 4 ? a->shape[0] : 1, out->heads = a->rank == 4 ? a->shape[1] : 1;
  out->len_q = a->shape[a->rank - 2], out->len_kv = a->shape[a->rank - 1];
  return fly_buffer_create(a->type, a->rank, a->shape, a->data, &out->bitmap, error);
}

static fly_status read_array(const char *directory, int i, int rank, npy_array *out, fly_error *error) {
  char path[4200];
  snprintf(path, sizeof path, "%s/%s.npy", directory, names[i]);
  if (i >= 2 && access(path, F_OK) != 0) return FLY_OK; /* full blocks may be absent */
  fly_status status = npy_read(path, out, error);
  if (status == FLY_OK) status = npy_convert(out, FLY_I32, path, error);
  if (status != FLY_OK || out->rank == rank) return status;
  return fail(error, FLY_ERROR_ARGUMENT, path, "has %d dimensions, not %d", out->rank, rank);
}

static fly_status read_arrays(const char *directory, map_source *out, fly_error *error) {
  npy_array *a = out->array;
  if (strlen(directory) > 4000) return fail(error, FLY_ERROR_ARGUMENT, NULL, "--from-arrays: the path is too long");
  for (int i = 0; i < READ; i++) {
    fly_status status = read_array(directory, i, i % 2 ? 4 : 3, &a[i], error);
    if (status != FLY_OK) return status;
    bool same = i == 0 || !a[i].data || memcmp(a[i].shape, a[0].shape, 3 * sizeof a[0].shape[0]) == 0;
    if (!same || (i == 3 && a[i].data && a[i].shape[3] != a[1].shape[3]))
      return fail(error, FLY_ERROR_ARGUMENT, directory, "%s.npy has another shape than the arrays before it", names[i]);
  }
  out->batch = a[0].shape[0], out->heads = a[0].shape[1];
  out->len_q = out->len_kv = -1;
  out->lists = (fly_map_arrays){FLY_INIT(fly_map_arrays),
                                out->batch,
                                out->heads,
                                a[0].shape[2],
                                a[1].shape[3],
                                a[0].data,
                                a[1].data,
                                a[2].data,
                                a[3].data};
  return FLY_OK;
}

fly_status map_source_read(const arguments *args, map_source *out, fly_error *error) {
  *out = (map_source){0};
  fly_status status = args->from_bitmap ? read_bitmap(args->from_bitmap, out, error)
                                        : read_arrays(args->from_arrays, out, error);
  if (status != FLY_OK) map_source_free(out);
  return status;
}

fly_status map_source_make(const map_source *source, const fly_geometry *geometry, const fly_map_options *how,
                           fly_map **out, fly_error *error) {
  if (source->bitmap) return fly_map_from_bitmap(source->bitmap, geometry, how, out, error);
  return fly_map_from_arrays(&source->lists, geometry, how, out, error);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static fly_status write_order(const fly_map *map, fly_order order, const char *directory, fly_error *error) {
  fly_map_arrays a;
  char path[4200];
  fly_status status = fly_map_to_arrays(map, order, &a, error);
  const int32_t *data[] = {a.num, a.index, a.full_num, a.full_index};
  const int64_t shape[] = {a.batch, a.heads, a.rows, a.columns};
  for (int i = 0; status == FLY_OK && i < 4; i++) {
    snprintf(path, sizeof path, "%s/%s.npy", directory, names[4 * (order == FLY_BY_KEY) + i]);
    status = npy_write(path, FLY_I32, i % 2 ? 4 : 3, shape, data[i], error);
  }
  fly_map_arrays_free(&a);
  return status;
}

fly_status map_write_arrays(fly_map *map, const char *directory, fly_error *error) {
  if (strlen(directory) > 4000) return fail(error, FLY_ERROR_ARGUMENT, NULL, "--to-arrays: the path is too long");
  if (mkdir(directory, 0777) != 0 && errno != EEXIST)
    return fail(error, FLY_ERROR_IO, directory, "cannot create: %s", strerror(errno));
  fly_status status = fly_map_transpose(map, error);
  if (status == FLY_OK) status = write_order(map, FLY_BY_QUERY, directory, error);
  return status == FLY_OK ? write_order(map, FLY_BY_KEY, directory, error) : status;
}
