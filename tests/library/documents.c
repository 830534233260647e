/* documents.c: masks that captured data decide: documents, groups and trees, as lists of their members. */
#include "scene.h"

static void draw_document(scene *s) {
  enum { IDS = 6 };
  int n = test_range(&s->random, 1, scene_end(s) + 3), length = 0;
  int32_t *doc = scene_buffer(s, "doc", FLY_I32, 1, (int64_t[]){n});
  bool sorted = scene_chance(s, 50);
  for (int i = 0, id = 0; i < n; i++)
    doc[i] = id = sorted ? id + scene_chance(s, 5) : (int)test_range(&s->random, 0, IDS - 1);
  int *members = malloc((scene_end(s) - scene_begin(s) + 1) * sizeof *members);
  for (int id = 0; id <= n + IDS; id++) {
    length = 0;
    for (int i = scene_begin(s); i < scene_end(s); i++)
      if (doc[scene_clamp(i, n)] == id) members[length++] = i;
    for (int i = 0; i < length; i++)
      for (int j = 0; j <= i; j++) scene_show(s, ALL, ALL, members[i], members[j]);
  }
  free(members);
}

/* Packed documents: document d holds the positions begin[d] .. begin[d + 1] - 1. The buffers end with the last
 * document; what is behind belongs to it, as what is before position 0 to the first. */
enum { DOCUMENTS = 8 };
typedef struct packing {
  int count, offsets[DOCUMENTS + 1], begin[DOCUMENTS + 1];
} packing;

static packing draw_packing(scene *s) {
  packing p = {.count = test_range(&s->random, 1, DOCUMENTS)};
  for (int d = 0; d < p.count; d++)
    p.offsets[d + 1] = p.offsets[d] + test_range(&s->random, 1, scene_end(s) / p.count + 4);
  memcpy(p.begin, p.offsets, sizeof p.begin);
  p.begin[0] = scene_begin(s);
  if (p.begin[p.count] < scene_end(s)) p.begin[p.count] = scene_end(s);
  int32_t *doc = scene_buffer(s, "doc", FLY_I32, 1, (int64_t[]){p.offsets[p.count]});
  int32_t *offsets = scene_buffer(s, "offsets", FLY_I32, 1, (int64_t[]){p.count + 1});
  for (int d = 0; d < p.count; d++)
    for (int i = p.offsets[d]; i < p.offsets[d + 1]; i++) doc[i] = d;
  for (int d = 0; d <= p.count; d++) offsets[d] = p.offsets[d];
  return p;
}

static void show_triangle(scene *s, int begin, int end) {
  for (int kv = begin; kv < end; kv++) scene_show_rectangle(s, ALL, ALL, kv, end, kv, kv + 1);
}

static void draw_packed_causal(scene *s) {
  packing p = draw_packing(s);
  for (int d = 0; d < p.count; d++) show_triangle(s, p.begin[d], p.begin[d + 1]);
}

static void draw_document_inner(scene *s) {
  int left = scene_int(s, "left", -1, 20), right = scene_int(s, "right", -1, 20), prefix = scene_int(s, "prefix", 0, 9);
  packing p = draw_packing(s);
  for (int d = 0; d < p.count; d++) {
    int begin = p.begin[d], end = p.begin[d + 1], inner = p.offsets[d] + prefix < end ? p.offsets[d] + prefix : end;
    scene_show_rectangle(s, ALL, ALL, begin, end, begin, inner);
    for (int q = begin; q < end; q++) {
      int first = left < 0 || q - left < begin ? begin : q - left,
          last = right < 0 || q + right >= end ? end - 1 : q + right;
      scene_show_rectangle(s, ALL, ALL, q, q + 1, first, last + 1);
    }
  }
}

static void draw_shared_prefix(scene *s) {
  packing p = draw_packing(s);
  int32_t *prefix_of = scene_buffer(s, "prefix_of", FLY_I32, 1, (int64_t[]){p.count});
  for (int d = 0; d < p.count; d++) {
    prefix_of[d] = scene_chance(s, 50) ? d : (int)test_range(&s->random, 0, p.count - 1);
    show_triangle(s, p.begin[d], p.begin[d + 1]);
    int other = prefix_of[d];
    if (other != d)
      scene_show_rectangle(s, ALL, ALL, p.begin[d], p.begin[d + 1], p.offsets[other], p.offsets[other + 1]);
  }
}

/* Group by group: its members see the earlier members. */
static void draw_focus(scene *s) {
  int window = scene_int(s, "window", 0, 30), n = test_range(&s->random, 1, scene_end(s) + 3);
  uint32_t *groups = scene_buffer(s, "groups", FLY_U32, 1, (int64_t[]){n});
  bool member[512];
  ck_assert_int_lt(scene_end(s) - scene_begin(s), 512);
  for (int g = 0; g < 32; g++) {
    for (int i = 0; i < n; i++) {
      member[i] = scene_chance(s, 4);
      groups[i] += member[i] ? 1u << g : 0;
    }
    for (int q = scene_begin(s); q < scene_end(s); q++)
      for (int kv = 0; kv <= q; kv++)
        if (member[scene_clamp(q, n)] && member[scene_clamp(kv, n)]) scene_show(s, ALL, ALL, q, kv);
  }
  for (int q = scene_begin(s); q < scene_end(s); q++)
    for (int back = 0; back < window; back++) scene_show(s, ALL, ALL, q, q - back);
}

/* For each visible entry of the table, the queries of its profile and the keys of its type. Profiles and types
 * outside the table are those of its border. */
static void draw_smat(scene *s) {
  int rows = test_range(&s->random, 1, 5), columns = test_range(&s->random, 1, 5), n = scene_end(s);
  int32_t *profile = scene_buffer(s, "profile", FLY_I32, 1, (int64_t[]){n});
  int32_t *type = scene_buffer(s, "type", FLY_I32, 1, (int64_t[]){n});
  uint8_t *visible = scene_buffer(s, "visible", FLY_U8, 2, (int64_t[]){rows, columns});
  for (int i = 0; i < n; i++)
    profile[i] = test_range(&s->random, -1, rows), type[i] = test_range(&s->random, -1, columns);
  for (int i = 0; i < rows * columns; i++) visible[i] = scene_chance(s, 50) ? scene_true(s) : 0;
  for (int e = 0; e < rows * columns; e++)
    for (int q = scene_begin(s); q < n && visible[e]; q++)
      for (int kv = 0; kv <= q; kv++)
        if (scene_clamp(profile[scene_clamp(q, n)], rows) == e / columns &&
            scene_clamp(type[kv], columns) == e % columns)
          scene_show(s, ALL, ALL, q, kv);
}

/* A forest: the parent of node i is an earlier one, or -1. Ancestors are found by walking up. */
enum { NODES = 70 };
typedef struct forest {
  int prefix, nodes, parent[NODES];
} forest;

static forest draw_forest(scene *s, int most) {
  forest f = {.prefix = scene_int(s, "prefix", 0, scene_end(s)), .nodes = test_range(&s->random, 1, most)};
  for (int i = 0; i < f.nodes; i++) f.parent[i] = test_range(&s->random, -1, i - 1);
  show_triangle(s, scene_begin(s), f.prefix);
  scene_show_rectangle(s, ALL, ALL, f.prefix, scene_end(s), 0, f.prefix);
  for (int i = 0; i < f.nodes; i++)
    for (int j = i; j >= 0; j = f.parent[j]) scene_show(s, ALL, ALL, f.prefix + i, f.prefix + j);
  return f;
}

/* A node's row is its parent's, and itself. */
static void draw_tree(scene *s) {
  forest f = draw_forest(s, NODES);
  uint8_t *ancestors = scene_buffer(s, "ancestors", FLY_U8, 2, (int64_t[]){f.nodes, f.nodes});
  for (int i = 0; i < f.nodes; i++) {
    if (f.parent[i] >= 0) memcpy(ancestors + i * f.nodes, ancestors + f.parent[i] * f.nodes, f.nodes);
    ancestors[i * f.nodes + i] = scene_true(s);
  }
}

static void draw_tree_bits(scene *s) {
  forest f = draw_forest(s, 64);
  uint64_t *ancestors = scene_buffer(s, "ancestors", FLY_U64, 1, (int64_t[]){f.nodes});
  for (int i = 0; i < f.nodes; i++) ancestors[i] = (f.parent[i] >= 0 ? ancestors[f.parent[i]] : 0) + ((uint64_t)1 << i);
}

const library_mask library_documents[] = {
    {"document", draw_document, true},
    {"packed_causal", draw_packed_causal, true},
    {"document_inner", draw_document_inner, true},
    {"shared_prefix", draw_shared_prefix, true},
    {"focus", draw_focus, true},
    {"smat", draw_smat, true},
    {"tree", draw_tree, true},
    {"tree_bits", draw_tree_bits, true},
    {0},
};
