/* selections.c: attention over what others select. Four ways to choose keys for each query, by their papers' rules,
 * become lists or a bitmap of blocks, and enter by one door: fly_selection_create. Each output is held to attention
 * over the same keys in double precision.
 *
 *   selections masks/selected_tiles.c
 */
#include <flymask/flymask.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N = 512, HEADS = 2, DIM = 32 }; /* two query heads that share a head of keys and values */

static float queries[HEADS][N][DIM], keys[N][DIM], values[N][DIM], out[HEADS][N][DIM];
static bool sees[HEADS][N][N]; /* what was selected, for the reference */

static double product(const float *a, const float *b) {
  double sum = 0;
  for (int d = 0; d < DIM; d++) sum += (double)a[d] * (double)b[d];
  return sum;
}

/* The `wanted` best of `count`, of equal ones the earlier: their numbers, then -1. Scores of -INFINITY are none. */
static void top(const double *scores, int count, int wanted, int32_t *list) {
  bool taken[N] = {false};
  for (int i = 0; i < wanted; i++) {
    int best = -1;
    for (int j = 0; j < count; j++)
      if (!taken[j] && scores[j] > -INFINITY && (best < 0 || scores[j] > scores[best])) best = j;
    list[i] = best;
    if (best >= 0) taken[best] = true;
  }
}

/* ---- Quest (arXiv 2406.10774): pages of keys by an upper bound of their scores ----------------------------------- */

enum { PAGE = 16, PAGES = N / PAGE, QUEST_TOP = 6 };
static int32_t quest_lists[HEADS][N][QUEST_TOP];

/* No key of a page scores more than the sum of each channel's better end. The query's own page is always among them. */
static void choose_quest(void) {
  float low[PAGES][DIM], high[PAGES][DIM];
  for (int i = 0; i < N; i++)
    for (int d = 0; d < DIM; d++) {
      float x = keys[i][d], *least = &low[i / PAGE][d], *most = &high[i / PAGE][d];
      *least = i % PAGE && *least < x ? *least : x;
      *most = i % PAGE && *most > x ? *most : x;
    }
  for (int h = 0; h < HEADS; h++)
    for (int q = 0; q < N; q++) {
      double bound[PAGES];
      for (int p = 0; p < PAGES; p++) {
        bound[p] = 0;
        for (int d = 0; d < DIM; d++) bound[p] += fmax(queries[h][q][d] * low[p][d], queries[h][q][d] * high[p][d]);
        if (p >= q / PAGE) bound[p] = p == q / PAGE ? INFINITY : -INFINITY;
      }
      top(bound, PAGES, QUEST_TOP, quest_lists[h][q]);
    }
}

/* ---- NSA's selection branch (arXiv 2502.11089): blocks by the weights of compressed keys ------------------------- */

enum { BLOCK = 64, BLOCKS = N / BLOCK, PIECE = 32, PIECES = N / PIECE, NSA_TOP = 3 };
static int32_t nsa_lists[N][NSA_TOP];

/* Keys are compressed to means of 32 here; a block's importance is the weight of its pieces, summed over the heads that
 * share keys, so that they select alike. The first and the own block are forced. */
static void choose_nsa(void) {
  float means[PIECES][DIM] = {{0}};
  for (int i = 0; i < N; i++)
    for (int d = 0; d < DIM; d++) means[i / PIECE][d] += keys[i][d] / PIECE;
  for (int q = 0; q < N; q++) {
    double importance[BLOCKS] = {0};
    for (int h = 0; h < HEADS; h++) {
      double weight[PIECES], sum = 0;
      for (int p = 0; p < PIECES && (p + 1) * PIECE <= q + 1; p++)
        sum += weight[p] = exp(product(queries[h][q], means[p]) / sqrt(DIM));
      for (int p = 0; p < PIECES && (p + 1) * PIECE <= q + 1; p++) importance[p * PIECE / BLOCK] += weight[p] / sum;
    }
    for (int b = 0; b < BLOCKS; b++) {
      if (b == 0 || b == q / BLOCK) importance[b] = INFINITY;
      if (b > q / BLOCK) importance[b] = -INFINITY;
    }
    top(importance, BLOCKS, NSA_TOP, nsa_lists[q]);
  }
}

/* ---- XAttention (arXiv 2503.16428): tiles by the sums of their antidiagonals ------------------------------------- */

enum { STRIDE = 8 };
static const double share = 0.6; /* of the estimated weight, that the chosen tiles must hold */
static uint8_t xattention_bitmap[HEADS][BLOCKS][BLOCKS];

/* Of every STRIDE x STRIDE square of scores the antidiagonal stands for it; a row of squares is a softmax; a tile's
 * weight is what its squares hold. Tiles are taken from the heaviest down until the share is reached. */
static void choose_xattention(void) {
  enum { SQUARES = N / STRIDE };
  for (int h = 0; h < HEADS; h++)
    for (int i = 0; i < BLOCKS; i++) {
      double weight[BLOCKS] = {0}, all = 0, held = 0;
      int32_t order[BLOCKS];
      for (int a = i * BLOCK / STRIDE; a < (i + 1) * BLOCK / STRIDE; a++) {
        double square[SQUARES], sum = 0;
        for (int c = 0; c <= a; c++) {
          double score = 0;
          for (int s = 0; s < STRIDE; s++)
            score += product(queries[h][a * STRIDE + STRIDE - 1 - s], keys[c * STRIDE + s]);
          sum += square[c] = exp(score / sqrt(DIM) / STRIDE);
        }
        for (int c = 0; c <= a; c++) weight[c * STRIDE / BLOCK] += square[c] / sum;
      }
      for (int j = 0; j <= i; j++) all += weight[j];
      top(weight, i + 1, i + 1, order);
      for (int k = 0; k <= i && held < share * all; k++)
        xattention_bitmap[h][i][order[k]] = 1, held += weight[order[k]];
      xattention_bitmap[h][i][i] = 1; /* no query is left without keys */
    }
}

/* ---- DSA's top tokens (DeepSeek-V3.2): single keys by an indexer ------------------------------------------------- */

enum { DSA_TOP = 48 };
static int32_t dsa_lists[N][DSA_TOP];

/* The indexer's score is a sum over its own heads of w relu(q k); here the two query heads stand for its heads. */
static void choose_dsa(void) {
  static double score[N];
  for (int q = 0; q < N; q++) {
    for (int k = 0; k < N; k++) {
      score[k] = k <= q ? 0 : -INFINITY;
      for (int h = 0; h < HEADS && k <= q; h++) score[k] += fmax(product(queries[h][q], keys[k]), 0) / HEADS;
    }
    top(score, N, DSA_TOP, dsa_lists[q]);
  }
}

/* ---- attention over them ----------------------------------------------------------------------------------------- */

/* What the description says, pair by pair. */
static void note(const fly_selection_desc *s) {
  int64_t group = s->query_block ? s->query_block : 1;
  memset(sees, 0, sizeof sees);
  for (int h = 0; h < HEADS; h++)
    for (int q = 0; q < N; q++) {
      int64_t row = h * s->stride_head + q / group * s->stride_row;
      for (int k = 0; k <= q; k++) sees[h][q][k] = s->bitmap && s->bitmap[row + k / s->block];
      for (int i = 0; s->lists && i < s->count; i++)
        for (int k = 0; k <= q; k++) sees[h][q][k] |= k / s->block == s->lists[row + i];
    }
}

/* The largest difference of out from attention in double precision over what is seen; *visible: keys a query. */
static double differ(double *visible) {
  double most = 0;
  *visible = 0;
  for (int h = 0; h < HEADS; h++)
    for (int q = 0; q < N; q++) {
      double want[DIM] = {0}, sum = 0;
      for (int k = 0; k < N; k++) {
        if (!sees[h][q][k]) continue;
        double weight = exp(product(queries[h][q], keys[k]) / sqrt(DIM));
        sum += weight;
        *visible += 1.0 / (HEADS * N);
        for (int d = 0; d < DIM; d++) want[d] += weight * values[k][d];
      }
      for (int d = 0; d < DIM; d++) most = fmax(most, fabs(want[d] / sum - out[h][q][d]));
    }
  return most;
}

/* The same few lines for every selection. */
static fly_status attend(const char *name, fly_mask *mask, const fly_attention *call, const fly_selection_desc *desc,
                         fly_error *error) {
  fly_selection *selection = NULL;
  fly_status status = fly_selection_create(mask, desc, &selection, error);
  if (status == FLY_OK) status = fly_selection_forward(selection, call, error); /* and fly_selection_backward */
  fly_selection_release(&selection);
  if (status != FLY_OK) return status;
  double visible;
  note(desc);
  double most = differ(&visible);
  printf("%-12s blocks of %2d: %5.1f keys a query, off by %.1e at most: %s\n", name, desc->block, visible, most,
         most < 1e-5 ? "as it should be" : "WRONG");
  return FLY_OK;
}

static void draw(float *numbers, size_t count) {
  static uint64_t state = 1;
  for (size_t i = 0; i < count; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    numbers[i] = (float)((double)(state >> 40) * 0x1p-22 - 2);
  }
}

int main(int argc, char **argv) {
  fly_mask *mask = NULL;
  fly_kernel *kernel = NULL;
  fly_error error = {.status = FLY_OK};
  if (argc != 2) return fprintf(stderr, "Usage: selections masks/selected_tiles.c\n"), 2;
  draw(&queries[0][0][0], HEADS * N * DIM), draw(&keys[0][0], N * DIM), draw(&values[0][0], N * DIM);
  choose_quest(), choose_nsa(), choose_xattention(), choose_dsa();

  fly_kernel_desc desc = {FLY_INIT(fly_kernel_desc), .type = FLY_F32, .head_dim = DIM};
  fly_selection_desc quest = {
      FLY_INIT(fly_selection_desc), .block = PAGE, .batch = 1, .heads = HEADS, .len_q = N, .len_kv = N};
  fly_selection_desc nsa = quest, xattention = quest, dsa = quest;
  quest.lists = &quest_lists[0][0][0], quest.count = QUEST_TOP;
  quest.stride_head = N * QUEST_TOP, quest.stride_row = QUEST_TOP;
  nsa.block = BLOCK, nsa.lists = &nsa_lists[0][0], nsa.count = NSA_TOP, nsa.stride_row = NSA_TOP; /* heads alike */
  xattention.block = BLOCK, xattention.bitmap = &xattention_bitmap[0][0][0], xattention.query_block = BLOCK;
  xattention.stride_head = BLOCKS * BLOCKS, xattention.stride_row = BLOCKS;
  dsa.block = 1, dsa.lists = &dsa_lists[0][0], dsa.count = DSA_TOP, dsa.stride_row = DSA_TOP;

  if (fly_mask_compile_file(argv[1], NULL, &mask, &error) || fly_kernel_create(mask, &desc, &kernel, &error)) goto done;
  fly_attention call = {FLY_INIT(fly_attention),
                        .kernel = kernel,
                        .q = fly_tensor_dense(queries, FLY_F32, 1, HEADS, N, DIM),
                        .k = fly_tensor_dense(keys, FLY_F32, 1, 1, N, DIM),
                        .v = fly_tensor_dense(values, FLY_F32, 1, 1, N, DIM),
                        .out = fly_tensor_dense(out, FLY_F32, 1, HEADS, N, DIM)};
  if (attend("Quest", mask, &call, &quest, &error) || attend("NSA", mask, &call, &nsa, &error) ||
      attend("XAttention", mask, &call, &xattention, &error) || attend("DSA", mask, &call, &dsa, &error))
    goto done;
done:
  if (error.status) fprintf(stderr, "%s:%d:%d: %s\n", error.file, error.line, error.column, error.message);
  fly_kernel_release(&kernel);
  fly_mask_release(&mask);
  return error.status != FLY_OK;
}
