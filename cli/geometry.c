/* geometry.c: which rows a call has: lengths, offset, and the row map of --rows, from a file or drawn at random. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

/* A file of integers [N], [heads or 1, N] or [batch or 1, heads or 1, N]. */
static fly_status read_rows(const char *path, int64_t batch, int64_t heads, call_geometry *out, int64_t *length,
                            fly_error *error) {
  npy_array array;
  fly_status status = npy_read(path, &array, error);
  if (status != FLY_OK) return status;
  status = npy_convert(&array, FLY_I32, path, error);
  if (status != FLY_OK) goto done;
  if (array.rank < 1 || array.rank > 3) {
    status = fail(error, FLY_ERROR_ARGUMENT, path, "rows have 1 to 3 dimensions ([batch,] [heads,] N), not %d",
                  array.rank);
    goto done;
  }
  *length = array.shape[array.rank - 1];
  int64_t row_heads = array.rank > 1 ? array.shape[array.rank - 2] : 1;
  int64_t row_batch = array.rank > 2 ? array.shape[0] : 1;
  if ((row_heads != 1 && row_heads != heads) || (row_batch != 1 && row_batch != batch)) {
    status = fail(error, FLY_ERROR_ARGUMENT, path,
                  "rows for %lld batch entries and %lld heads, but the call has %lld and %lld", (long long)row_batch,
                  (long long)row_heads, (long long)batch, (long long)heads);
    goto done;
  }
  out->rows = array.data;
  array.data = NULL;
  fly_row_map map = {.rows = out->rows,
                     .stride_batch = row_batch > 1 ? row_heads * *length : 0,
                     .stride_head = row_heads > 1 ? *length : 0};
  out->geometry.q_rows = out->geometry.kv_rows = map;
done:
  npy_free(&array);
  return status;
}

static fly_status draw_rows(const char *seed, int64_t length, call_geometry *out, fly_error *error) {
  out->rows = malloc(sizeof(int32_t) * (size_t)(length > 0 ? length : 1));
  if (!out->rows) return fail_memory(error);
  out->geometry.q_rows.rows = out->geometry.kv_rows.rows = out->rows;
  return fly_permutation(length, strtoull(seed, NULL, 10), 0, 0, 0, out->rows, error);
}

fly_status geometry_create(const arguments *args, int64_t batch, int64_t heads, int64_t tensor_q, int64_t tensor_kv,
                           call_geometry *out, fly_error *error) {
  fly_geometry *g = &out->geometry;
  memset(out, 0, sizeof *out);
  g->size = sizeof *g;
  g->batch = batch;
  g->heads = heads;
  g->len_q = args->len_q >= 0 ? args->len_q : tensor_q;
  g->len_kv = args->len_kv >= 0 ? args->len_kv : tensor_kv;
  fly_status status = FLY_OK;
  if (args->rows && strncmp(args->rows, "random:", 7) == 0) {
    if (g->len_q != g->len_kv)
      status = fail(error, FLY_ERROR_ARGUMENT, NULL,
                    "--rows random permutes queries and keys alike, but there are %lld queries and %lld keys",
                    (long long)g->len_q, (long long)g->len_kv);
    else
      status = draw_rows(args->rows + 7, g->len_q, out, error);
  } else if (args->rows) {
    int64_t length = 0;
    status = read_rows(args->rows, batch, heads, out, &length, error);
    if (status == FLY_OK && args->len_q >= 0 && (length != g->len_q || length != g->len_kv))
      status = fail(error, FLY_ERROR_ARGUMENT, args->rows, "%lld rows, but there are %lld queries and %lld keys",
                    (long long)length, (long long)g->len_q, (long long)g->len_kv);
    g->len_q = g->len_kv = length;
  }
  g->q_offset = args->offset_end ? g->len_kv - g->len_q : args->q_offset;
  if (status != FLY_OK) geometry_free(out);
  return status;
}

void geometry_free(call_geometry *geometry) {
  free(geometry->rows);
  memset(geometry, 0, sizeof *geometry);
}
