/* sorted.c: masks that see something nearly everywhere, made sparse by an order of the tokens. Focus (arXiv 2604.03260)
 * groups tokens and sees a window and the own group; SMat (arXiv 2609.36062) has a table of which profile of query sees
 * which type of key. Each is computed twice, as the plain mask and sorted, and both results are compared. */
#include <flymask/flymask.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 4096, DIM = 32, GROUPS = 16, WINDOW = 128 };

static float queries[N][DIM], keys[N][DIM], values[N][DIM];
static int32_t group[N]; /* SMat: a key's type; a query's profile */

/* What an attention call makes, and how many tiles it had to look at. */
typedef struct result {
  float out[N][DIM], lse[N];
  int64_t tiles;
} result;

/* Attention through a mask's source that captures int32 arrays; rows NULL: tokens in their own order. */
static fly_status attend(const char *source, const fly_arg *args, int count, const int32_t *rows, result *to,
                         fly_error *error) {
  fly_mask *mask = NULL;
  fly_bound *bound = NULL;
  fly_kernel *kernel = NULL;
  fly_map *map = NULL;
  fly_map_info info;
  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), .type = FLY_F32, .head_dim = DIM};
  fly_geometry geometry = {
      FLY_INIT(fly_geometry),   .batch = 1, .heads = 1, .len_q = N, .len_kv = N, .q_rows = {.rows = rows},
      .kv_rows = {.rows = rows}};
  fly_status status = fly_mask_compile(source, "mask.c", NULL, &mask, error);
  if (status == FLY_OK) status = fly_mask_bind(mask, args, count, &bound, error);
  if (status == FLY_OK) status = fly_kernel_create(mask, &desc, &kernel, error);
  if (status == FLY_OK) status = fly_map_build(bound, &geometry, NULL, &map, error);
  if (status == FLY_OK) {
    fly_map_get_info(map, &info);
    to->tiles = info.tiles_full + info.tiles_partial;
    fly_attention call = {FLY_INIT(fly_attention),
                          .kernel = kernel,
                          .bound = bound,
                          .map = map,
                          .geometry = geometry,
                          .q = fly_tensor_dense(queries, FLY_F32, 1, 1, N, DIM),
                          .k = fly_tensor_dense(keys, FLY_F32, 1, 1, N, DIM),
                          .v = fly_tensor_dense(values, FLY_F32, 1, 1, N, DIM),
                          .out = fly_tensor_dense(to->out, FLY_F32, 1, 1, N, DIM),
                          .lse = fly_tensor_dense(to->lse, FLY_F32, 1, 1, N, 1)};
    status = fly_attention_forward(&call, error);
  }
  fly_map_release(&map);
  fly_kernel_release(&kernel);
  fly_bound_release(&bound);
  fly_mask_release(&mask);
  return status;
}

static fly_status capture(const int32_t *numbers, int count, fly_buffer **out, fly_error *error) {
  return fly_buffer_create(FLY_I32, 1, (int64_t[]){count}, numbers, out, error);
}

/* Tokens by group, in order within one; and their groups in that order. */
static void sort(int32_t *rows, int32_t *sorted) {
  int count = 0;
  for (int g = 0; g < GROUPS; g++)
    for (int i = 0; i < N; i++)
      if (group[i] == g) rows[count] = i, sorted[count++] = g;
}

static void tell(const char *name, const result *plain, const result *sorted, int64_t tiles) {
  double most = 0;
  for (int i = 0; i < N; i++)
    for (int d = 0; d < DIM; d++) most = fmax(most, fabs((double)plain->out[i][d] - (double)sorted->out[i][d]));
  printf("%-6s %lld tiles plain, %lld sorted; outputs apart by %.1e at most: %s\n", name, (long long)plain->tiles,
         (long long)tiles, most, most < 1e-5 && tiles < plain->tiles ? "as it should be" : "WRONG");
}

/* ---- Focus: two disjoint parts, merged by their log-sum-exp ------------------------------------------------------ */

#define HEAD "#include <flymask/mask.h>\nFLY_PARAM(int, window, 128);\nFLY_BUFFER(int32_t, group, 1);\n"

static const char focus[] = HEAD "bool mask(int b, int h, int q, int kv) {\n"
                                 "  return kv <= q && (q - kv < window || group[q] == group[kv]);\n"
                                 "}\n";
static const char near[] = HEAD "bool mask(int b, int h, int q, int kv) { return kv <= q && q - kv < window; }\n";
static const char far[] = HEAD "bool mask(int b, int h, int q, int kv) {\n" /* q and kv are places among the sorted */
                               "  int behind = fly_token_q(b, h, q) - fly_token_kv(b, h, kv);\n"
                               "  return group[q] == group[kv] && behind >= window;\n"
                               "}\n";

/* parts[2]: what sees the window, what sees the group; then both. The backward pass of each part is
 * fly_attention_backward with the merged out and lse; the gradients of both add up. */
static fly_status merge(result *parts, result *to, fly_error *error) {
  fly_partial partials[2];
  for (int i = 0; i < 2; i++)
    partials[i] = (fly_partial){.out = fly_tensor_dense(parts[i].out, FLY_F32, 1, 1, N, DIM),
                                .lse = fly_tensor_dense(parts[i].lse, FLY_F32, 1, 1, N, 1)};
  fly_merge_call call = {FLY_INIT(fly_merge_call), .partials = partials, .count = 2,
                         .out = fly_tensor_dense(to->out, FLY_F32, 1, 1, N, DIM),
                         .lse = fly_tensor_dense(to->lse, FLY_F32, 1, 1, N, 1)};
  return fly_merge(&call, error);
}

static fly_status run_focus(const int32_t *rows, fly_buffer *own, fly_buffer *sorted, result *r, fly_error *error) {
  fly_arg by_token[] = {FLY_INT("window", WINDOW), FLY_CAPTURE("group", own)};
  fly_arg by_place[] = {FLY_INT("window", WINDOW), FLY_CAPTURE("group", sorted)};
  fly_status status = attend(focus, by_token, 2, NULL, &r[0], error);
  if (status == FLY_OK) status = attend(near, by_token, 2, NULL, &r[1], error);
  if (status == FLY_OK) status = attend(far, by_place, 2, rows, &r[2], error);
  if (status == FLY_OK) status = merge(&r[1], &r[3], error);
  if (status == FLY_OK) tell("Focus", &r[0], &r[3], r[1].tiles + r[2].tiles);
  return status;
}

/* ---- SMat: a table's cells become rectangles --------------------------------------------------------------------- */

#define TABLE /* every profile sees its own type and one other */                                                      \
  "#include <flymask/mask.h>\nFLY_BUFFER(int32_t, group, 1);\n"                                                        \
  "static bool visible(int profile, int type) { return type == profile || type == (profile + 5) % 16; }\n"             \
  "bool mask(int b, int h, int q, int kv) {\n"

static const char table[] = TABLE "  return kv <= q && visible(group[q], group[kv]);\n}\n";
static const char sorted_table[] = TABLE
    "  return visible(group[q], group[kv]) && fly_token_kv(b, h, kv) <= fly_token_q(b, h, q);\n}\n";

static fly_status run_smat(const int32_t *rows, fly_buffer *own, fly_buffer *sorted, result *r, fly_error *error) {
  fly_arg by_token = FLY_CAPTURE("group", own), by_place = FLY_CAPTURE("group", sorted);
  fly_status status = attend(table, &by_token, 1, NULL, &r[0], error);
  if (status == FLY_OK) status = attend(sorted_table, &by_place, 1, rows, &r[1], error);
  if (status == FLY_OK) tell("SMat", &r[0], &r[1], r[1].tiles);
  return status;
}

static void draw(void) {
  uint64_t state = 1;
  float *all[] = {&queries[0][0], &keys[0][0], &values[0][0]};
  for (int i = 0; i < 3 * N * DIM; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    all[i / (N * DIM)][i % (N * DIM)] = (float)((double)(state >> 40) * 0x1p-23 - 1);
  }
  for (int i = 0; i < N; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    group[i] = (int32_t)(state >> 60);
  }
}

int main(void) {
  static int32_t rows[N], sorted[N];
  fly_buffer *own = NULL, *by_place = NULL;
  fly_error error = {.status = FLY_OK};
  result *results = calloc(4, sizeof *results);
  if (!results) return fputs("out of memory\n", stderr), 1;
  draw();
  sort(rows, sorted);
  if (capture(group, N, &own, &error) || capture(sorted, N, &by_place, &error) ||
      run_focus(rows, own, by_place, results, &error) || run_smat(rows, own, by_place, results, &error))
    fprintf(stderr, "%s:%d:%d: %s\n", error.file, error.line, error.column, error.message);
  fly_buffer_release(&by_place);
  fly_buffer_release(&own);
  free(results);
  return error.status != FLY_OK;
}
