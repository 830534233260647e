/* bench/maps.c: what exact block maps cost, decoding and pyramids included: tiles of 128, one thread, medians; every
 * build gets new buffers, so that nothing is kept from the last one. `write` is the expansion to lists of tile indices.
 * `open` is the share of the listed tiles that the analysis left to the compiled mask; `at most` is what we hold
 * ourselves to, for the masks that have such a limit. Ends with 1 where one takes longer.
 *
 * Usage: bench_maps [figures|library] [n=TOKENS] [mask=NAME]   (default: both; n, of the library's masks: 131072)
 * FLYMASK_TEST_DATA names a folder with doc_lengths.npy, the lengths of real documents; without it
 * that row is left out. */
#include <flymask/flymask.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "cli/npy.h"

enum { MOST_RUNS = 25, MOST_ARGS = 12, SECONDS = 1 };

static fly_error error;

static void check(fly_status status) {
  if (status == FLY_OK) return;
  fprintf(stderr, "%s %s:%d: %s\n", fly_status_name(status), error.file, error.line, error.message);
  exit(1);
}

static double now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* one thread: the machine's other work does not count */
  return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b) {
  return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

typedef struct array {
  fly_type type;
  int rank;
  int64_t shape[4];
  void *data;
} array;

static uint32_t below(uint32_t limit) {
  static uint64_t state = 88172645463325252;
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return (uint32_t)((state >> 32) * limit >> 32);
}

static array make(fly_type type, int64_t a, int64_t b, int64_t c, int64_t d) {
  array x = {type, 0, {a, b, c, d}, NULL};
  size_t count = 1;
  for (; x.rank < 4 && x.shape[x.rank]; x.rank++) count *= (size_t)x.shape[x.rank];
  x.data = calloc(count, fly_type_size(type));
  if (!x.data) exit(1);
  return x;
}

/* Ends of documents of 1 to 4,095 tokens; the last is n. */
static int64_t document_end(int64_t start, int64_t n) {
  int64_t end = start + 1 + below(4095);
  return end < n ? end : n;
}

static array real_documents(const char *path) {
  npy_array lengths;
  check(npy_read(path, &lengths, &error));
  check(npy_convert(&lengths, FLY_I64, path, &error));
  int64_t n = 0;
  for (int64_t i = 0; i < lengths.count; i++) n += ((int64_t *)lengths.data)[i];
  array x = make(FLY_I32, n, 0, 0, 0);
  for (int64_t i = 0, at = 0; i < lengths.count; i++)
    for (int64_t k = 0; k < ((int64_t *)lengths.data)[i]; k++) ((int32_t *)x.data)[at++] = (int32_t)i;
  npy_free(&lengths);
  return x;
}

static array documents(int64_t n) {
  array x = make(FLY_I32, n, 0, 0, 0);
  for (int64_t at = 0, d = 0; at < n; d++)
    for (int64_t end = document_end(at, n); at < end;) ((int32_t *)x.data)[at++] = (int32_t)d;
  return x;
}

/* Of the documents in `doc`. */
static array offsets_of(const array *doc) {
  int64_t n = doc->shape[0], count = ((int32_t *)doc->data)[n - 1] + 1;
  array x = make(FLY_I32, count + 1, 0, 0, 0);
  for (int64_t i = 0; i < n; i++) ((int32_t *)x.data)[((int32_t *)doc->data)[i] + 1] = (int32_t)(i + 1);
  return x;
}

static array tokens(const char *kind, int64_t n) {
  bool bytes = !strcmp(kind, "is_global"), words = !strcmp(kind, "groups");
  array x = make(bytes ? FLY_U8 : words ? FLY_U32 : FLY_I32, n, 0, 0, 0);
  for (int64_t i = 0; i < n; i++) {
    if (bytes) ((uint8_t *)x.data)[i] = i % 16384 == 0;
    if (words) ((uint32_t *)x.data)[i] = 1u << (i / 200 * 5 % 32);
    if (!strcmp(kind, "profile")) ((int32_t *)x.data)[i] = (int32_t)(i / 3000 % 3);
    if (!strcmp(kind, "type")) ((int32_t *)x.data)[i] = (int32_t)(i / 700 % 4);
  }
  return x;
}

static array blocks(const char *kind, int64_t n) {
  int64_t b = n / 128;
  if (!strcmp(kind, "picks")) {
    array x = make(FLY_I32, 1, b, 3, 0);
    for (int64_t i = 0; i < 3 * b; i++) ((int32_t *)x.data)[i] = (int32_t)below((uint32_t)b);
    return x;
  }
  bool selected = !strcmp(kind, "selected"), heads = !strcmp(kind, "per_head");
  array x = selected ? make(FLY_U8, 1, 1, n, b) : heads ? make(FLY_U8, 1, 2, b, b) : make(FLY_U8, b, b, 0, 0);
  uint8_t *data = x.data;
  for (int64_t i = 0; selected && i < n; i++)
    for (int k = 0; k < 3; k++) data[i * b + (k ? below((uint32_t)(i / 128) + 1) : i / 128)] = 1;
  for (int64_t i = 0; !selected && i < (heads ? 2 : 1) * b * b; i++) data[i] = below(64) == 0;
  return x;
}

static array tree(bool words) {
  enum { NODES = 64 };
  static uint8_t above[NODES][NODES];
  array x = words ? make(FLY_U64, NODES, 0, 0, 0) : make(FLY_U8, NODES, NODES, 0, 0);
  for (int i = 0; i < NODES; i++) {
    int parent = i ? (i - 1) / 2 : -1;
    for (int j = 0; j < NODES && parent >= 0; j++) above[i][j] = above[parent][j];
    above[i][i] = 1;
    for (int j = 0; words && j < NODES; j++) ((uint64_t *)x.data)[i] |= (uint64_t)above[i][j] << j;
  }
  if (!words) memcpy(x.data, above, sizeof above);
  return x;
}

static array rings(int64_t n) {
  array x = make(FLY_U8, n, n / 8, 0, 0);
  for (int64_t q = 0; q < n; q++)
    for (int64_t kv = 0; kv < n; kv++) {
      int64_t r = ((kv - n / 2) * (kv - n / 2) + (q - n / 2) * (q - n / 2)) / (n * n / 64);
      if (r % 2 == 0) ((uint8_t *)x.data)[q * (n / 8) + kv / 8] |= (uint8_t)(1 << kv % 8);
    }
  return x;
}

static array small_table(const char *kind, int64_t n, int64_t count) {
  static const uint8_t visible[3][4] = {{1, 0, 1, 0}, {1, 1, 0, 0}, {0, 1, 1, 1}};
  array x = !strcmp(kind, "visible")     ? make(FLY_U8, 3, 4, 0, 0)
            : !strcmp(kind, "intervals") ? make(FLY_I32, n / 4096, 2, 0, 0)
            : !strcmp(kind, "blocks")    ? make(FLY_U64, 1, 1, n, 0)
            : !strcmp(kind, "tile")      ? make(FLY_I32, 1, 1, n, 0)
                                         : make(FLY_I32, count, 0, 0, 0);
  int32_t *data = x.data;
  if (!strcmp(kind, "visible")) memcpy(data, visible, sizeof visible);
  for (int64_t i = 0; i < n / 4096 && !strcmp(kind, "intervals"); i++)
    data[2 * i] = (int32_t)(i * 4096), data[2 * i + 1] = (int32_t)(i * 4096 + 6000);
  for (int64_t i = 0; i < n; i++) {
    if (!strcmp(kind, "tile")) data[i] = (int32_t)(i / 256 * (i / 64 % 3 != 0));
    if (!strcmp(kind, "blocks")) ((uint64_t *)x.data)[i] = i / 64 % 2 ? 5 : 10;
  }
  for (int64_t i = 0; i < count; i++) {
    if (!strcmp(kind, "window")) data[i] = (int32_t)(256 << i);
    if (!strcmp(kind, "lengths")) data[i] = (int32_t)(n - n / 4 * i - 100);
    if (!strcmp(kind, "prefix_of")) data[i] = (int32_t)(i / 4 * 4);
  }
  return x;
}

static array generate(const char *kind, int64_t n) {
  static array doc; /* offsets and prefix_of go with the documents made before */
  if (!strcmp(kind, "doc")) return doc = documents(n);
  if (!strcmp(kind, "offsets")) return offsets_of(&doc);
  if (!strcmp(kind, "prefix_of")) return small_table(kind, n, ((int32_t *)doc.data)[n - 1] + 1);
  if (!strcmp(kind, "window")) return small_table(kind, n, 4);
  if (!strcmp(kind, "lengths")) return small_table(kind, n, 2);
  if (!strcmp(kind, "tree")) return tree(false);
  if (!strcmp(kind, "words")) return tree(true);
  if (!strcmp(kind, "rings")) return rings(n);
  if (strstr("is_global groups profile type", kind)) return tokens(kind, n);
  if (strstr("bitmap per_head picks selected", kind)) return blocks(kind, n);
  return small_table(kind, n, 0);
}

/* ---- one row of the table ---------------------------------------------------------------------------------------- */

typedef struct subject {
  const char *label,
      *words; /* MASK NAME=NUMBER NAME=@BUFFER, @documents: the real ones; then B=, H=: batch and heads */
  int64_t n;
  bool permuted;
  double limit; /* ms; 0: none */
} subject;

typedef struct bindings {
  fly_mask *mask;
  fly_arg arg[MOST_ARGS];
  char name[MOST_ARGS][32];
  array data[MOST_ARGS];
  int count;
  fly_geometry geometry;
  int32_t *rows;
} bindings;

static void read_words(subject *s, bindings *b) {
  char words[256], path[512], *save, *word;
  snprintf(words, sizeof words, "%s", s->words);
  word = strtok_r(words, " ", &save);
  snprintf(path, sizeof path, "%s/masks/%s.c", FLYMASK_SOURCE, word);
  check(fly_mask_compile_file(path, NULL, &b->mask, &error));
  b->geometry = (fly_geometry){FLY_INIT(fly_geometry), .batch = 1, .heads = 1};
  while ((word = strtok_r(NULL, " ", &save))) {
    char *value = strchr(word, '=') + 1;
    if (*word == 'B' || *word == 'H') {
      *(*word == 'B' ? &b->geometry.batch : &b->geometry.heads) = atoi(value);
      continue;
    }
    int i = b->count++;
    snprintf(b->name[i], sizeof b->name[i], "%.*s", (int)(value - 1 - word), word);
    b->arg[i] = FLY_INT(b->name[i], atoll(value));
    if (*value != '@') continue;
    snprintf(path, sizeof path, "%s/doc_lengths.npy", getenv("FLYMASK_TEST_DATA") ? getenv("FLYMASK_TEST_DATA") : "");
    b->data[i] = strcmp(value, "@documents") ? generate(value + 1, s->n) : real_documents(path);
    if (!strcmp(value, "@documents")) s->n = b->data[i].shape[0];
  }
  b->geometry.len_q = b->geometry.len_kv = s->n;
  if (!s->permuted) return;
  b->rows = malloc((size_t)s->n * sizeof *b->rows);
  if (!b->rows) exit(1);
  check(fly_permutation(s->n, 1, 0, 0, 0, b->rows, &error));
  b->geometry.q_rows.rows = b->geometry.kv_rows.rows = b->rows;
}

static double build(bindings *b, fly_map **map) {
  fly_bound *bound;
  fly_map_options options = {FLY_INIT(fly_map_options), .threads = 1};
  for (int i = 0; i < b->count; i++) {
    const array *x = &b->data[i];
    if (!x->data) continue;
    b->arg[i].kind = FLY_ARG_BUFFER;
    check(fly_buffer_create(x->type, x->rank, x->shape, x->data, &b->arg[i].buffer, &error));
  }
  check(fly_mask_bind(b->mask, b->arg, b->count, &bound, &error));
  double start = now_ms();
  check(fly_map_build(bound, &b->geometry, &options, map, &error));
  double ms = now_ms() - start;
  fly_bound_release(&bound);
  for (int i = 0; i < b->count; i++)
    if (b->data[i].data) fly_buffer_release(&b->arg[i].buffer);
  return ms;
}

static double write_lists(const fly_map *map) {
  fly_map_lists lists;
  double start = now_ms();
  check(fly_map_expand(map, FLY_BY_QUERY, &lists, &error));
  double ms = now_ms() - start;
  fly_map_lists_free(&lists);
  return ms;
}

static int slow; /* masks that took longer than their limit */

static void measure(subject s) {
  double map_ms[MOST_RUNS], write_ms[MOST_RUNS], spent = 0;
  fly_map_info info = {0};
  int runs = 0;
  if (strstr(s.words, "@documents") && !getenv("FLYMASK_TEST_DATA")) return;
  bindings *b = calloc(1, sizeof *b);
  if (!b) exit(1);
  read_words(&s, b);
  while (runs < MOST_RUNS && (runs < 3 || spent < 1e3 * SECONDS)) {
    fly_map *map;
    map_ms[runs] = build(b, &map);
    fly_map_get_info(map, &info);
    write_ms[runs] = write_lists(map);
    spent += map_ms[runs] + write_ms[runs];
    runs++;
    fly_map_release(&map);
  }
  qsort(map_ms, (size_t)runs, sizeof *map_ms, by_value), qsort(write_ms, (size_t)runs, sizeof *write_ms, by_value);
  int64_t listed = info.tiles_full + info.tiles_partial;
  char limit[16] = "";
  if (s.limit > 0) snprintf(limit, sizeof limit, "%g", s.limit);
  printf("| %-26s | %8lld | %9lld | %9lld | %6.2f %% | %9.3f | %9.3f | %10zu | %7s |\n", s.label, (long long)s.n,
         (long long)info.tiles_full, (long long)info.tiles_partial,
         listed ? 100 * (double)info.undecided / (double)listed : 0, map_ms[runs / 2], write_ms[runs / 2], info.bytes,
         limit);
  fflush(stdout);
  slow += s.limit > 0 && map_ms[runs / 2] > s.limit;
  fly_mask_release(&b->mask);
  for (int i = 0; i < b->count; i++)
    if (strcmp(b->name[i], "doc")) free(b->data[i].data); /* generate() keeps it */
  free(b->rows), free(b);
}

static void head(void) {
  puts("| mask, tiles of 128         |   tokens |      full |   partial |     open |    map ms |  write ms |      "
       "bytes | at most |");
  puts("|----------------------------|---------:|----------:|----------:|---------:|----------:|----------:|-----------"
       ":|--------:|");
}

/* ---- the tables -------------------------------------------------------------------------------------------------- */

static const subject figures[] = {
    {"window 256", "sliding_window left=255 right=0", 131072, false, 0.5},
    {"window 256", "sliding_window left=255 right=0", 1048576, false, 8},
    {"chunked 8192", "chunked size=8192", 1048576, false, 8},
    {"prefix 1000", "prefix_lm prefix=1000", 1048576, false, 8},
    {"StreamingLLM 4 + 1024", "streaming_llm sinks=4 window=1024", 1048576, false, 8},
    {"causal", "causal", 1048576, false, 2},
    {"documents, real lengths", "document doc=@documents", 0, false, 20},
    {"window 256", "sliding_window left=255 right=0", 1 << 24, false, 80},
    {"SA 128 + 128, causal", "stochastic left=128 right=128", 32768, true, 3},
    {"SA 128 + 128, causal", "stochastic left=128 right=128", 1048576, true, 60},
};

static const char *const library[] = {
    "full",
    "causal",
    "prefix_lm prefix=1000",
    "key_padding lengths=@lengths B=2",
    "causal_window window=256",
    "sliding_window left=255 right=0",
    "symmetric_window radius=256",
    "head_window window=@window H=4",
    "dilated_window window=8 dilation=512",
    "global_window window=256 globals=16",
    "longformer window=256 is_global=@is_global",
    "longformer_dilated window=64 dilation=16 is_global=@is_global",
    "streaming_llm sinks=4 window=1024",
    "strided stride=4096",
    "strided_fixed stride=512 summary=8",
    "logarithmic window=256",
    "random_pairs per_mille=1",
    "stochastic_ring left=128 right=128 causal=0",
    "chunked size=8192",
    "block_sparse size=128 bitmap=@bitmap",
    "selected_tiles size=64 count=4 tile=@tile blocks=@blocks",
    "block_selected size_q=128 size_kv=128 bitmap=@per_head H=2",
    "moba size=128 selected=@selected",
    "bigbird size=128 picks=@picks",
    "batchify size=4096 left=255",
    "block_diffusion length=65536 size=1024",
    "bitmask bits=@rings",
    "document doc=@doc",
    "packed_causal doc=@doc offsets=@offsets",
    "document_inner doc=@doc offsets=@offsets left=255 prefix=8",
    "shared_prefix doc=@doc offsets=@offsets prefix_of=@prefix_of",
    "focus window=128 groups=@groups",
    "smat profile=@profile type=@type visible=@visible",
    "tree prefix=100000 ancestors=@tree",
    "tree_bits prefix=100000 ancestors=@words",
    "flamingo size=512 intervals=@intervals",
    "natten_1d kernel=129",
    "natten_2d height=256 width=512 kernel_h=13 kernel_w=13",
    "natten_2d_tiled height=256 width=512 kernel_h=13 kernel_w=13 tile_h=16 tile_w=8",
    "natten_2d_morton height=256 width=512 kernel_h=13 kernel_w=13",
    "sliding_tile_2d tiles_h=22 tiles_w=46 kernel_h=3 kernel_w=5 tile=128 text=256",
    "sliding_tile_3d tiles_t=8 tiles_h=8 tiles_w=16 kernel_t=3 kernel_h=3 kernel_w=3 tile=128",
    "svg_spatial prompt=226 frame=1350 frames=2 sink=1 rounding=128",
    "svg_temporal prompt=226 frame=1350 frames=97 width=2"};

/* Whose maps of 131,072 tokens take at most 30 ms. */
static bool has_limit(const char *label) {
  static const char *const limited[] = {
      "longformer",       "longformer_dilated", "bigbird",         "natten_2d",       "natten_2d_tiled",
      "natten_2d_morton", "sliding_tile_2d",    "sliding_tile_3d", "block_diffusion", "tree",
      "tree_bits",        "dilated_window",     "block_selected",  "block_sparse",    "focus"};
  for (size_t i = 0; i < sizeof limited / sizeof *limited; i++)
    if (!strcmp(label, limited[i])) return true;
  return false;
}

static void print_library(int64_t n, const char *only) {
  head();
  for (size_t i = 0; i < sizeof library / sizeof *library; i++) {
    char label[32];
    snprintf(label, sizeof label, "%.*s", (int)strcspn(library[i], " "), library[i]);
    if (only && strcmp(label, only) != 0) continue;
    bool bits = !strcmp(label, "bitmask"), selected = !strcmp(label, "moba");
    measure((subject){label, library[i], (bits || selected) && n > 32768 ? 32768 : n, false,
                      n == 131072 && has_limit(label) ? 30 : 0});
  }
}

int main(int argc, char **argv) {
  bool all = true, some[2] = {false, false};
  int64_t n = 131072;
  const char *only = NULL; /* one mask of the library */
  for (int i = 1; i < argc; i++) {
    bool first = !strcmp(argv[i], "figures"), second = !strcmp(argv[i], "library");
    some[0] |= first, some[1] |= second;
    all = all && !first && !second;
    if (!strncmp(argv[i], "n=", 2)) {
      n = atoll(argv[i] + 2);
    } else if (!strncmp(argv[i], "mask=", 5)) {
      only = argv[i] + 5, some[1] = true, all = false;
    } else if (!first && !second) {
      fprintf(stderr, "usage: %s [figures|library]... [n=TOKENS] [mask=NAME]\n", argv[0]);
      return 2;
    }
  }
  if (n < 8192) n = 8192;
  if (all || some[0]) {
    head();
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) measure(figures[i]);
    puts("");
  }
  if (all || some[1]) print_library(n, only);
  if (slow) fprintf(stderr, "%d of the maps took longer than they may\n", slow);
  return slow > 0;
}
